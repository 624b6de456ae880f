//! Programs on an engine that is stepped by hand, with a fake model whose tokens are bytes.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses a part"
)]

use engine::fake::{FakeConfig, FakeModel};
use engine::{Choice, Embedding, Engine, EngineConfig, Pooling, Request, SamplingParams, Token};
use generate::model_handle::ModelHandle;
use model::{Dims, Forward};
use serde_json::{Map, Value as Json};
pub use testing::random::Random;

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use stream::ring::RingWriter;
use stream::{End, PoolLimits, Read};
use testing::vocabulary::Vocabulary;
use text::{AnswerFormat, ChatTemplate, Tokenizer};
use workflow::{Event, Model, Ops, Outcome, Plan, Program, Run};

/// The end-of-sequence token.
pub const EOS: u32 = 256;

/// Polls after which a run counts as stuck.
const POLLS_MAX: usize = 200_000;

/// A chat template with turns.
const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>\n{% endfor %}\
    {% if add_generation_prompt %}<assistant>{% endif %}";

pub fn tokenizer() -> Arc<Tokenizer> {
    Vocabulary::of_bytes().with_eos("</s>").into_tokenizer()
}

/// A fake model that gives letters, and sometimes an end.
pub fn fake(eos_probability: f32) -> FakeConfig {
    FakeConfig {
        dims: Dims {
            vocab: 257,
            context_max: 512,
            page_tokens: 4,
            pages: 512,
            rows_max: 64,
            logit_rows_max: 16,
        },
        eos: EOS,
        eos_probability,
        tokens: 97..123,
        ..FakeConfig::default()
    }
}

pub struct Bench {
    pub engine: Engine,
    pub now: Instant,
    pub model: Arc<Model>,
}

impl Bench {
    pub fn new(eos_probability: f32) -> Self {
        Self::with(fake(eos_probability))
    }

    pub fn with(config: FakeConfig) -> Self {
        Self::over(Box::new(FakeModel::new(config)))
    }

    pub fn over(model: Box<dyn Forward>) -> Self {
        let now = epoch();
        let _context_max = model.dims().context_max;
        let mut engine = Engine::new(model, EngineConfig::default(), now).expect("an engine");
        let template = ChatTemplate::new(TEMPLATE, "", "</s>").expect("valid");
        let answers = AnswerFormat::default();
        let limits = PoolLimits { segments_max: 64 };
        let model = Model {
            handle: ModelHandle {
                capabilities: template.capabilities(answers),
                ..ModelHandle::new(engine.handle(), tokenizer(), template, &[EOS], limits)
            },
            pooling: Some(Pooling::Last),
        };
        Self {
            engine,
            now,
            model: Arc::new(model),
        }
    }

    pub fn run(&self, program: &Arc<Program>, given: &Json) -> Run {
        self.run_with(program, given, Plan::default())
    }

    pub fn run_with(&self, program: &Arc<Program>, given: &Json, plan: Plan) -> Run {
        let model = |_: Option<&str>| Some(Arc::clone(&self.model));
        Run::new(program, &object(given), model, plan, self.now).expect("what it needs")
    }

    /// The next event, stepping the engine while there is none.
    pub fn next(&mut self, run: &mut Run) -> Event {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..POLLS_MAX {
            match run.poll(&mut cx, self.now) {
                Poll::Ready(Some(Event::Heavy)) => run.labour(),
                Poll::Ready(Some(Event::Rest)) => {}
                Poll::Ready(event) => return event.expect("one end"),
                Poll::Pending => self.step(),
            }
        }
        panic!("no event after {POLLS_MAX} polls");
    }

    /// The next event, which must be a token.
    pub fn token(&mut self, run: &mut Run) -> u32 {
        match self.next(run) {
            Event::Token { id, .. } => id,
            _ => panic!("no token"),
        }
    }

    /// Whether no event follows, with the engine stepped many times.
    pub fn is_stuck(&mut self, run: &mut Run) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        (0..100).all(|_| {
            self.step();
            run.poll(&mut cx, self.now).is_pending()
        })
    }

    pub fn step(&mut self) {
        self.now += Duration::from_millis(1);
        self.engine.step(self.now);
    }

    /// Runs to the end. Returns all tokens and the result.
    pub fn finish(&mut self, run: &mut Run) -> (Vec<u32>, Outcome) {
        let mut ids = Vec::new();
        loop {
            match self.next(run) {
                Event::Token { id, .. } => ids.push(id),
                Event::Opened { .. } | Event::Heavy | Event::Rest => {}
                Event::Ended(outcome) => return (ids, outcome),
            }
        }
    }

    /// Runs to the end with a host: `choose` gets each emitted token and the channel's writer.
    pub fn play(
        &mut self,
        run: &mut Run,
        mut choose: impl FnMut(u32, &mut RingWriter<u32>),
    ) -> (Vec<u32>, Outcome) {
        let (mut ids, mut other) = (Vec::new(), None);
        loop {
            match self.next(run) {
                Event::Token { id, .. } => {
                    ids.push(id);
                    choose(id, other.as_mut().expect("opened before"));
                }
                Event::Opened { writer, .. } => other = Some(writer),
                Event::Heavy | Event::Rest => {}
                Event::Ended(outcome) => return (ids, outcome),
            }
        }
    }

    /// The engine's answer to a plain request: the reference of every program.
    pub fn plain(
        &mut self,
        prompt: &[u32],
        sampling: &SamplingParams,
        max_tokens: usize,
    ) -> Vec<u32> {
        let (tokens, mut reader) =
            stream::open(&self.model.handle.token_pool, max_tokens).expect("room");
        let request = Request {
            sampling: sampling.clone(),
            eos: Arc::clone(&self.model.handle.eos),
            choices: vec![Choice::new(tokens)],
            ..Request::new(prompt.to_vec(), max_tokens)
        };
        self.model.handle.engine.submit(request).expect("accepted");
        let mut ids = Vec::new();
        let mut buffer = [Token::default(); 64];
        for _ in 0..POLLS_MAX {
            match reader.read(&mut buffer) {
                Read::Items(n) => ids.extend(buffer[..n].iter().map(|token| token.id)),
                Read::Empty => self.step(),
                Read::Ended(End::Length | End::Stop(_)) => return ids,
                Read::Ended(end) => panic!("{end:?}"),
            }
        }
        panic!("no end");
    }

    /// The engine's vector of these ids, of unit length: the reference of `forward`.
    pub fn embedded(&mut self, prompt: &[u32]) -> Vec<f32> {
        let (tokens, mut reader) = stream::open(&self.model.handle.token_pool, 1).expect("room");
        let vector = Arc::new(OnceLock::new());
        let request = Request {
            choices: vec![Choice::new(tokens)],
            embedding: Some(Embedding {
                pooling: Pooling::Last,
                vector: Arc::clone(&vector),
            }),
            ..Request::new(prompt.to_vec(), 1)
        };
        self.model.handle.engine.submit(request).expect("accepted");
        let mut nothing = [Token::default()];
        for _ in 0..POLLS_MAX {
            if let Read::Ended(_) = reader.read(&mut nothing) {
                let vector = vector.get().expect("a vector");
                let length = vector
                    .iter()
                    .map(|x| f64::from(*x).powi(2))
                    .sum::<f64>()
                    .sqrt();
                return vector
                    .iter()
                    .map(|x| (f64::from(*x) / length) as f32)
                    .collect();
            }
            self.step();
        }
        panic!("no end");
    }

    /// Ids of a conversation with one question.
    pub fn asked(&self, prompt: &str) -> Vec<u32> {
        let text = format!("<user>{prompt}</s>\n<assistant>");
        self.model
            .handle
            .tokenizer
            .encode(&text, true)
            .expect("text")
    }

    /// Panics unless the engine is empty after its ended requests are swept.
    pub fn assert_empty(&mut self) {
        for _ in 0..4 {
            self.step();
        }
        let stats = self.engine.stats();
        assert_eq!(stats.pages_used(), 0, "pages in use");
        assert_eq!(stats.running() + stats.parked() + stats.queued(), 0);
        assert_eq!(self.model.handle.token_pool.stats().reserved, 0, "logs");
    }
}

pub fn object(json: &Json) -> Map<String, Json> {
    json.as_object().expect("an object").clone()
}

pub fn compile(document: &Json) -> Arc<Program> {
    match Program::compile(document.to_string().as_bytes(), &Ops::default()) {
        Ok(program) => Arc::new(program),
        Err(faults) => panic!("{faults}"),
    }
}

/// The samples by name.
pub fn samples() -> Vec<(String, Json)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows");
    let files = std::fs::read_dir(folder).expect("the samples' folder");
    let mut samples: Vec<(String, Json)> = files
        .map(|file| {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
            let json: Json = serde_json::from_str(&text).expect("JSON");
            (json["name"].as_str().expect("a name").to_owned(), json)
        })
        .collect();
    samples.sort_by(|a, b| a.0.cmp(&b.0));
    samples
}

pub fn sample(name: &str) -> Arc<Program> {
    let found = samples().into_iter().find(|(n, _)| n == name);
    compile(&found.expect("a sample").1)
}

#[expect(
    clippy::disallowed_methods,
    reason = "where virtual time starts; only differences count"
)]
fn epoch() -> Instant {
    Instant::now()
}
