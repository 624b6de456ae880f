//! Guesses with real models: the same words as without, from the engine and from the binary.

use crate::support::{Folder, millrace, stdout, synth};
use cpu::{LoadOptions, Model};
use engine::{Choice, Engine, EngineConfig, Next, Request, SamplingParams, Speculation, Token};
use kernels::{Isa, KvKind, Pool};
use model::Forward;
use std::time::{Duration, Instant};
use stream::{PoolLimits, Read, SegmentPool};
use synth::SynthSpec;
use weights::Architecture;
use weights::gguf::Gguf;

const VOCAB: u32 = 512;

fn load(architecture: Architecture, seed: u64, threads: usize) -> Box<dyn Forward> {
    load_with(architecture, (seed, false), threads)
}

/// A model of this seed, with an MTP head or without.
fn load_with(
    architecture: Architecture,
    (seed, mtp): (u64, bool),
    threads: usize,
) -> Box<dyn Forward> {
    let spec = SynthSpec {
        vocab: VOCAB,
        seed,
        mtp,
        ..SynthSpec::tiny(architecture)
    };
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let options = LoadOptions {
        context_max: Some(256),
        page_tokens: 16,
        pages: 80,
        kv: KvKind::F16,
        states: 16,
        rows_max: 128,
        logit_rows_max: 64,
        mtp,
    };
    let pool = Pool::new(threads);
    let model = Model::load(gguf, Isa::detect(), pool, &options, &mut |_| {});
    Box::new(model.unwrap())
}

#[expect(clippy::disallowed_methods, reason = "where virtual time starts")]
fn epoch() -> Instant {
    Instant::now()
}

/// Some requests at once, greedy and sampled: their tokens and log-probabilities, guesses made and
/// guesses that were right.
fn answers(
    architecture: Architecture,
    speculation: Speculation,
    draft: Option<Box<dyn Forward>>,
) -> (Vec<Vec<(u32, u32)>>, u64, u64) {
    let config = EngineConfig {
        speculation,
        ..EngineConfig::default()
    };
    let mtp = speculation == Speculation::Mtp;
    let (model, mut now) = (load_with(architecture, (1, mtp), 2), epoch());
    let recurrent = model.capabilities().states > 0;
    let mut engine = match draft {
        None => Engine::new(model, config, now).unwrap(),
        Some(draft) => Engine::with_draft(model, draft, config, now).unwrap(),
    };
    let handle = engine.handle();
    let pool = SegmentPool::<Token>::new(PoolLimits { segments_max: 1000 });
    // Random recurrent models rarely repeat themselves: with nine tokens they do.
    let favored = if recurrent { 300..309 } else { 0..0 };
    let bias: Vec<(u32, f32)> = favored.map(|id| (id, 30.0)).collect();
    let mut readers = Vec::new();
    for at in 0..6u32 {
        let (tokens, reader) = stream::open(&pool, 120).unwrap();
        readers.push(reader);
        let sampling = SamplingParams {
            temperature: [0.0, 0.0, 0.7][at as usize % 3],
            top_k: 8,
            logprobs: true,
            logit_bias: bias.clone(),
            seed: u64::from(at),
            ..SamplingParams::default()
        };
        let words = (0..20 + 7 * at).map(|i| 300 + (i + at) % 9);
        let request = Request {
            sampling,
            choices: vec![Choice::new(tokens)],
            ..Request::new(words.collect(), 120)
        };
        handle.submit(request).unwrap();
    }
    while engine.step(now).next == Next::Step {
        now += Duration::from_millis(1);
    }
    let mut read = |reader: &mut stream::Reader<Token>| {
        let mut all = [Token::default(); 128];
        let mut at = 0;
        while let Read::Items(n) = reader.read(&mut all[at..]) {
            at += n;
        }
        all[..at]
            .iter()
            .map(|t| (t.id, t.logprob.to_bits()))
            .collect()
    };
    let tokens = readers.iter_mut().map(&mut read).collect();
    let stats = engine.stats();
    (tokens, stats.tokens_drafted(), stats.tokens_accepted())
}

#[test]
fn draft_tokens_change_no_answer_bit_for_bit() {
    use Architecture::Llama;
    let (plain, drafted, _) = answers(Llama, Speculation::Off, None);
    assert!(drafted == 0 && plain.iter().all(|tokens| tokens.len() == 120));
    let (looked_up, _, accepted) = answers(Llama, Speculation::PromptLookup, None);
    assert_eq!(plain, looked_up);
    assert!(accepted > 0, "nothing was looked up");
    // The same weights on another number of threads: guesses that are always right.
    let same = load(Architecture::Llama, 1, 1);
    let (guessed, drafted, accepted) = answers(Llama, Speculation::Draft, Some(same));
    assert_eq!(plain, guessed);
    assert!(
        accepted == drafted && drafted > 300,
        "{accepted} of {drafted}"
    );
    let other = load(Architecture::Qwen3, 2, 1);
    let (guessed, drafted, accepted) = answers(Llama, Speculation::Draft, Some(other));
    assert_eq!(plain, guessed);
    assert!(accepted < drafted, "{accepted} of {drafted}");
}

/// A draft's rows choose experts next to the rows that would have been computed alone, and read latents. Where layers share
/// keys and values, rows without outputs are dropped in the middle of the layers, and a rolled back position has parts in two
/// caches.
#[test]
fn draft_tokens_change_no_answer_of_other_layers() {
    for (architecture, repeats) in [
        (Architecture::Qwen3Moe, true),
        (Architecture::DeepSeek2, true),
        (Architecture::Gemma4, false),
        (Architecture::Gemma3n, false),
    ] {
        let (plain, ..) = answers(architecture, Speculation::Off, None);
        let (looked_up, _, accepted) = answers(architecture, Speculation::PromptLookup, None);
        assert_eq!(plain, looked_up, "{architecture}");
        assert!(
            accepted > 0 || !repeats,
            "{architecture}: nothing was looked up"
        );
        let same = load(architecture, 1, 1);
        let (guessed, drafted, accepted) = answers(architecture, Speculation::Draft, Some(same));
        assert_eq!(plain, guessed, "{architecture}");
        assert!(
            accepted == drafted && drafted > 0,
            "{architecture}: {accepted} of {drafted}"
        );
    }
}

/// The states between draft tokens are those of single steps.
#[test]
fn draft_tokens_change_no_answer_of_recurrent_layers() {
    for architecture in [Architecture::Qwen35, Architecture::GraniteHybrid] {
        let (plain, ..) = answers(architecture, Speculation::Off, None);
        let (looked_up, drafted, _) = answers(architecture, Speculation::PromptLookup, None);
        assert_eq!(plain, looked_up, "{architecture}");
        assert!(drafted > 0, "{architecture}: nothing was looked up");
    }
}

#[test]
fn draft_tokens_of_an_mtp_head_change_no_answer() {
    for architecture in [Architecture::Qwen35, Architecture::Qwen35Moe] {
        let (plain, ..) = answers(architecture, Speculation::Off, None);
        let (guessed, drafted, accepted) = answers(architecture, Speculation::Mtp, None);
        assert_eq!(plain, guessed, "{architecture}");
        // The head's weights are random.
        assert!(drafted > 0 && accepted < drafted, "{accepted} of {drafted}");
    }
}

#[test]
fn mtp_head_on_the_command_line() {
    let folder = Folder::new("mtp");
    let path = |name: &str| folder.0.join(name).display().to_string();
    let (model, without) = (path("mtp.gguf"), path("without.gguf"));
    stdout(&millrace(&["synth", &model, "--preset", "tiny-qwen35-mtp"]));
    stdout(&millrace(&["synth", &without, "--preset", "tiny-qwen35"]));
    let say = |model: &str, source: &str| {
        let run = ["run", model, "hello", "-n", "24", "--temperature", "0"];
        millrace(&[&run[..], &["--speculation", source]].concat())
    };
    assert_eq!(stdout(&say(&model, "mtp")), stdout(&say(&model, "off")));
    let output = say(&without, "mtp");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    let key = "metadata key `qwen35.nextn_predict_layers` is 0, must be 1";
    assert!(!output.status.success() && why.contains(key), "{why}");
}

#[test]
fn draft_model_on_the_command_line() {
    let folder = Folder::new("draft");
    let model = synth(&folder);
    let say = |more: &[&str]| {
        let run = ["run", &model, "hello", "-n", "24", "--temperature", "0"];
        stdout(&millrace(&[&run, more].concat()))
    };
    let plain = say(&[]);
    assert_eq!(plain, say(&["--draft-model", &model]));
    assert_eq!(plain, say(&["--speculation", "prompt_lookup"]));
    let other = folder.0.join("other.gguf").display().to_string();
    stdout(&millrace(&["synth", &other, "--vocab", "777"]));
    for (args, why) in [
        (&["--draft-model", &other][..], "same vocabulary"),
        (
            &["--speculation", "draft"],
            "engine.draft_model (default): not set",
        ),
    ] {
        let output = millrace(&[&["run", &model, "hello"], args].concat());
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.contains(why), "{words}");
    }
}
