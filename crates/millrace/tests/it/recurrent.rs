//! A recurrent model in an engine: a sequence that is preempted, forked, parked or continued has the bits of one that was
//! not.

use crate::support::{Folder, millrace, stdout};
use cpu::{LoadOptions, Model};
use engine::{Choice, Engine, EngineConfig, Handle, Next, Request, SamplingParams, Token};
use kernels::{Isa, KvKind, Pool};
use std::time::{Duration, Instant};
use stream::{PoolLimits, Read, Reader, SegmentPool};
use synth::SynthSpec;
use weights::Architecture;
use weights::gguf::Gguf;

/// Families of each kind of recurrent layers, with attention in other layers, beside them, and nowhere.
const FAMILIES: [Architecture; 5] = [
    Architecture::Qwen35,
    Architecture::GraniteHybrid,
    Architecture::Lfm2,
    Architecture::Mamba2,
    Architecture::FalconH1,
];
const VOCAB: u32 = 400;
const PAGE: usize = 16;

/// An engine with the model, and the streams of its answers.
struct Bench {
    engine: Engine,
    handle: Handle,
    pool: SegmentPool<Token>,
    now: Instant,
}

/// Tokens and the bits of their log-probabilities.
type Said = Vec<(u32, u32)>;

/// A request and where it is cut.
#[derive(Clone)]
struct Ask {
    prompt: Vec<u32>,
    tokens: usize,
    seed: u64,
    /// Tokens of the prompt that are the beginning of the answer.
    answered: u32,
    first_choice: u32,
    choices: usize,
    credit_window: u64,
}

impl Ask {
    fn new(seed: u64, len: u32, tokens: usize) -> Self {
        let ids = (0..len).map(|i| 300 + (i * i + i * seed as u32) % 90);
        Self {
            prompt: ids.collect(),
            tokens,
            seed,
            answered: 0,
            first_choice: 0,
            choices: 1,
            credit_window: 0,
        }
    }
}

impl Bench {
    #[expect(clippy::disallowed_methods, reason = "where virtual time starts")]
    fn new(family: Architecture, pages: usize, states: usize) -> Self {
        let spec = SynthSpec {
            vocab: VOCAB,
            ..SynthSpec::tiny(family)
        };
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        let options = LoadOptions {
            context_max: Some(256),
            page_tokens: PAGE,
            pages,
            kv: KvKind::F16,
            states,
            rows_max: 64,
            logit_rows_max: 32,
            mtp: false,
        };
        let model = Model::load(gguf, Isa::detect(), Pool::new(2), &options, &mut |_| {});
        let (model, now) = (Box::new(model.unwrap()), Instant::now());
        let mut engine = Engine::new(model, EngineConfig::default(), now).unwrap();
        Self {
            handle: engine.handle(),
            engine,
            pool: SegmentPool::new(PoolLimits { segments_max: 1000 }),
            now,
        }
    }

    fn submit(&self, ask: &Ask) -> Vec<Reader<Token>> {
        let (mut readers, mut choices) = (Vec::new(), Vec::new());
        for _ in 0..ask.choices {
            let (tokens, reader) = stream::open(&self.pool, ask.tokens).unwrap();
            readers.push(reader);
            choices.push(Choice::new(tokens));
        }
        let request = Request {
            sampling: SamplingParams {
                temperature: 0.8,
                top_k: 20,
                logprobs: true,
                seed: ask.seed,
                answered: ask.answered,
                ..SamplingParams::default()
            },
            choices,
            first_choice: ask.first_choice,
            credit_window: ask.credit_window,
            ..Request::new(ask.prompt.clone(), ask.tokens)
        };
        self.handle.submit(request).unwrap();
        readers
    }

    /// Runs until nothing is left to do; returns what all readers got, read every few steps.
    fn run(&mut self, asked: &[Ask]) -> Vec<Said> {
        let mut readers = Vec::new();
        for ask in asked {
            readers.extend(self.submit(ask));
        }
        let mut said = vec![Said::new(); readers.len()];
        let wanted: usize = asked.iter().map(|ask| ask.tokens * ask.choices).sum();
        for step in 0.. {
            let next = self.engine.step(self.now).next;
            self.now += Duration::from_millis(1);
            if next != Next::Step || step % 8 == 0 {
                for (reader, said) in readers.iter_mut().zip(&mut said) {
                    read(reader, said);
                }
            }
            let got: usize = said.iter().map(Vec::len).sum();
            if got == wanted {
                return said;
            }
            assert!(step < 10_000, "{got} of {wanted} tokens");
        }
        unreachable!("returned above")
    }
}

fn read(reader: &mut Reader<Token>, said: &mut Said) {
    let mut items = [Token::default(); 32];
    while let Read::Items(n) = reader.read(&mut items) {
        let items = items[..n].iter();
        said.extend(items.map(|token| (token.id, token.logprob.to_bits())));
    }
    reader.accept(reader.cursor());
}

/// The answer to a request in an engine of its own, with plenty of everything.
fn alone(family: Architecture, ask: &Ask) -> Said {
    let [said] =
        <[Said; 1]>::try_from(Bench::new(family, 80, 32).run(std::slice::from_ref(ask))).unwrap();
    assert_eq!(said.len(), ask.tokens);
    said
}

#[test]
fn draft_model_has_no_effect_on_the_command_line() {
    let folder = Folder::new("recurrent");
    let model = folder.0.join("model.gguf").display().to_string();
    stdout(&millrace(&["synth", &model, "--preset", "tiny-qwen35"]));
    let run = ["run", &model, "hello", "-n", "24", "--temperature", "0"];
    let plain = stdout(&millrace(&run));
    for (more, warns) in [
        (["--draft-model", &model], true),
        (["--speculation", "prompt_lookup"], false),
    ] {
        let output = millrace(&[&run[..], &more].concat());
        assert_eq!(stdout(&output), plain);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let warned = log.contains("engine.draft_model has no effect");
        assert_eq!(warned, warns, "{log}");
    }
}

#[test]
fn preempted_and_parked_sequences_have_the_bits_of_others() {
    FAMILIES.into_iter().for_each(preempt_and_park);
}

fn preempt_and_park(family: Architecture) {
    // Pages for two of six sequences.
    let mut bench = Bench::new(family, 20, 16);
    let asked: Vec<_> = (0..6)
        .map(|seed| Ask {
            credit_window: if seed % 2 == 0 { 0 } else { 4 },
            ..Ask::new(seed, 20 + 9 * seed as u32, 60)
        })
        .collect();
    let together = bench.run(&asked);
    let stats = bench.engine.stats();
    assert!(stats.preemptions() > 0, "nothing was preempted");
    assert!(stats.parks() > 0, "nothing was parked");
    for (ask, said) in asked.iter().zip(&together) {
        assert!(*said == alone(family, ask), "{family}, seed {}", ask.seed);
    }
}

#[test]
fn choices_and_continued_answers_have_the_bits_of_whole_ones() {
    FAMILIES.into_iter().for_each(fork_and_continue);
}

fn fork_and_continue(family: Architecture) {
    let ask = Ask {
        choices: 4,
        ..Ask::new(7, 37, 50)
    };
    let mut bench = Bench::new(family, 80, 32);
    let choices = bench.run(std::slice::from_ref(&ask));
    for (choice, said) in (0..).zip(&choices) {
        let single = Ask {
            choices: 1,
            first_choice: choice,
            ..ask.clone()
        };
        assert!(*said == alone(family, &single), "{family}, choice {choice}");
    }
    let said = &choices[0];
    for cut in [1, 10, 11, 27, 49] {
        let continued = Ask {
            prompt: ask
                .prompt
                .iter()
                .copied()
                .chain(said[..cut].iter().map(|t| t.0))
                .collect(),
            tokens: 50 - cut,
            answered: cut as u32,
            choices: 1,
            ..ask.clone()
        };
        // In the engine with checkpoints of the beginning, and in one without.
        let before = bench.engine.stats().prefix_hit_tokens();
        assert!(
            bench.run(std::slice::from_ref(&continued))[0] == said[cut..],
            "cut at {cut}"
        );
        assert!(
            bench.engine.stats().prefix_hit_tokens() > before,
            "from a checkpoint"
        );
        assert!(
            alone(family, &continued) == said[cut..],
            "cut at {cut}, alone"
        );
    }
}
