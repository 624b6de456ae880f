//! An engine stepped by hand, in virtual time, and requests with readers.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod watched;

use engine::fake::{FakeConfig, FakeModel};
use engine::{
    Choice, ConfigError, Engine, EngineConfig, Handle, Next, Progress, Request, RequestId,
    SamplingParams, StepReport, Token, TopLogprob,
};
use model::Dims;
pub use testing::random::Random;

use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{End, PoolLimits, Read, Reader, SegmentPool};

/// Steps after which a run counts as stuck.
pub const STEPS_MAX: usize = 20_000;

/// An engine with its handle and a virtual time.
pub struct Bench {
    pub engine: Engine,
    pub handle: Handle,
    pub now: Instant,
    pub pool: SegmentPool<Token>,
    pub side_pool: SegmentPool<TopLogprob>,
}

/// A submitted request with the readers of its choices.
pub struct Asked {
    pub id: RequestId,
    pub answers: Vec<Answer>,
    pub progress: Arc<Progress>,
}

/// The reader of one choice with the tokens read so far.
pub struct Answer {
    pub reader: Option<Reader<Token>>,
    pub side: Option<Reader<TopLogprob>>,
    pub tokens: Vec<Token>,
    pub end: Option<End>,
}

/// A small model that never gives an end-of-sequence token.
pub fn model() -> FakeConfig {
    FakeConfig {
        dims: Dims {
            vocab: 64,
            context_max: 128,
            page_tokens: 4,
            pages: 64,
            rows_max: 16,
            logit_rows_max: 16,
        },
        tokens: 1..60,
        ..FakeConfig::default()
    }
}

/// A bench with the small model and default settings.
pub fn bench() -> Bench {
    Bench::new(model(), EngineConfig::default())
}

impl Bench {
    pub fn new(model: FakeConfig, config: EngineConfig) -> Self {
        Self::with(Box::new(FakeModel::new(model)), config)
    }

    pub fn with(model: Box<dyn model::Forward>, config: EngineConfig) -> Self {
        let now = epoch();
        Self::over(Engine::new(model, config, now), now)
    }

    pub fn with_draft(
        model: Box<dyn model::Forward>,
        draft: Box<dyn model::Forward>,
        config: EngineConfig,
    ) -> Self {
        let now = epoch();
        Self::over(Engine::with_draft(model, draft, config, now), now)
    }

    fn over(engine: Result<Engine, ConfigError>, now: Instant) -> Self {
        let mut engine = engine.expect("a valid configuration");
        let handle = engine.handle();
        let limits = PoolLimits {
            segments_max: 1 << 16,
        };
        Self {
            engine,
            handle,
            now,
            pool: SegmentPool::new(limits),
            side_pool: SegmentPool::new(limits),
        }
    }

    pub fn step(&mut self) -> StepReport {
        self.now += Duration::from_millis(1);
        self.engine.step(self.now)
    }

    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Steps until the engine has no work, without reading.
    pub fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if matches!(self.step().next, Next::Sleep | Next::Leave) {
                return;
            }
        }
        panic!("not done after {STEPS_MAX} steps");
    }

    pub fn run_until(&mut self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS_MAX {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("not so after {STEPS_MAX} steps");
    }

    pub fn request(&self, prompt: &[u32], max_tokens: usize) -> Request {
        Request {
            sampling: SamplingParams {
                temperature: 0.0,
                ..SamplingParams::default()
            },
            eos: Arc::from([0]),
            ..Request::new(prompt.to_vec(), max_tokens)
        }
    }

    /// Adds a choice to a request whose other fields are set.
    pub fn choice(&self, request: &mut Request) -> Answer {
        let max = request.max_tokens;
        let (tokens, reader) = stream::open(&self.pool, max).expect("segments");
        let alternatives = request.sampling.top_logprobs as usize;
        let side = (alternatives > 0)
            .then(|| stream::open(&self.side_pool, max * alternatives).expect("segments"));
        let (top, side) = side.unzip();
        request.choices.push(Choice {
            tokens,
            top,
            terminator: None,
            constraint: None,
        });
        Answer {
            reader: Some(reader),
            side,
            tokens: Vec::new(),
            end: None,
        }
    }

    pub fn ask(&self, mut request: Request, choices: usize) -> Asked {
        let answers = (0..choices).map(|_| self.choice(&mut request)).collect();
        self.submit(request, answers)
    }

    pub fn submit(&self, request: Request, answers: Vec<Answer>) -> Asked {
        let progress = Arc::clone(&request.progress);
        let id = self.handle.submit(request).expect("accepted");
        Asked {
            id,
            answers,
            progress,
        }
    }

    /// Runs a request to its end and returns its only answer.
    pub fn answer(&mut self, request: Request) -> Answer {
        let mut asked = self.ask(request, 1);
        self.run();
        let mut answer = asked.answers.remove(0);
        answer.read();
        answer
    }

    /// Panics unless no sequence holds a page.
    pub fn assert_empty(&self) {
        let (stats, dims) = (self.handle.stats(), self.handle.dims());
        assert_eq!(stats.pages_used(), 0, "pages in use");
        let pages = dims.pages as u64;
        assert_eq!(
            stats.pages_free() + stats.pages_cached(),
            pages,
            "pages in all"
        );
        let alive = [
            stats.queued(),
            stats.running(),
            stats.parked(),
            stats.waiting(),
        ];
        assert_eq!(alive, [0; 4], "queued, running, parked, waiting");
    }
}

impl Answer {
    /// Reads and accepts new tokens.
    pub fn read(&mut self) {
        let mut buffer = [Token::default(); 64];
        let Some(reader) = &mut self.reader else {
            return;
        };
        loop {
            match reader.read(&mut buffer) {
                Read::Items(n) => self.tokens.extend_from_slice(&buffer[..n]),
                Read::Empty => break,
                Read::Ended(end) => {
                    assert!(self.end.is_none_or(|old| old == end), "two ends");
                    self.end = Some(end);
                    break;
                }
            }
        }
        reader.accept(reader.cursor());
    }

    /// Reads once more. Returns the number of tokens and the end.
    pub fn seen(&mut self) -> (usize, Option<End>) {
        self.read();
        (self.tokens.len(), self.end)
    }

    pub fn alternatives(&mut self) -> Vec<TopLogprob> {
        let mut all = Vec::new();
        let mut buffer = [TopLogprob::default(); 64];
        let side = self.side.as_mut().expect("alternatives were asked for");
        while let Read::Items(n) = side.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
        }
        all
    }

    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "where virtual time starts; only differences count"
)]
fn epoch() -> Instant {
    Instant::now()
}

/// Hides panics that a test causes on purpose ("simulated").
pub fn quiet_expected_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic
                .payload_as_str()
                .is_some_and(|words| words.contains("simulated"))
            {
                usual(panic);
            }
        }));
    });
}
