//! An engine over a model on a device, in virtual time: with batches started ahead, or step by step.

use engine::{
    Choice, Constraint, Engine, EngineConfig, Handle, Next, Request, RequestId, SamplingParams,
    StopCondition, Token, TopLogprob,
};
use model::{Batch, Capabilities, Dims, Forward, ForwardError, PageId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{End, PoolLimits, Read, Reader, SegmentPool};
use testing::random::Random;

/// Steps after which a run counts as stuck.
const STEPS_MAX: usize = 4000;

/// The model without its way of running ahead: the engine reads rows of logits and draws itself.
struct StepByStep(gpu::Model);

impl Forward for StepByStep {
    fn dims(&self) -> Dims {
        self.0.dims()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        self.0.forward(batch)
    }
    fn hidden(&self) -> &[f32] {
        self.0.hidden()
    }
    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.0.copy_page(from, to);
    }
    fn recover(&mut self) -> Result<(), ForwardError> {
        self.0.recover()
    }
}

/// An engine stepped by hand.
pub(crate) struct Bench {
    engine: Engine,
    pub(crate) handle: Handle,
    now: Instant,
    pool: SegmentPool<Token>,
    side_pool: SegmentPool<TopLogprob>,
}

/// The part of an answer that is compared.
pub(crate) struct Answer {
    pub(crate) reader: Option<Reader<Token>>,
    side: Option<Reader<TopLogprob>>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) end: Option<End>,
}

impl Bench {
    pub(crate) fn new(model: gpu::Model, runs_ahead: bool) -> Self {
        let model: Box<dyn Forward> = if runs_ahead {
            Box::new(model)
        } else {
            Box::new(StepByStep(model))
        };
        Self::with(model, EngineConfig::default())
    }

    pub(crate) fn with(model: Box<dyn Forward>, config: EngineConfig) -> Self {
        let now = epoch();
        let mut engine = Engine::new(model, config, now).expect("a valid configuration");
        let limits = PoolLimits {
            segments_max: 1 << 14,
        };
        Self {
            handle: engine.handle(),
            engine,
            now,
            pool: SegmentPool::new(limits),
            side_pool: SegmentPool::new(limits),
        }
    }

    pub(crate) fn step(&mut self) -> Next {
        self.now += Duration::from_millis(1);
        self.engine.step(self.now).next
    }

    /// Steps until there is no work.
    pub(crate) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if matches!(self.step(), Next::Sleep | Next::Leave) {
                return;
            }
        }
        panic!("not done after {STEPS_MAX} steps");
    }

    pub(crate) fn request(&self, prompt: &[u32], max_tokens: usize) -> Request {
        Request {
            sampling: SamplingParams {
                temperature: 0.0,
                ..SamplingParams::default()
            },
            eos: Arc::from([0, 9]),
            ..Request::new(prompt.to_vec(), max_tokens)
        }
    }

    /// Adds a choice to a request whose other fields are set.
    pub(crate) fn choice(&self, request: &mut Request) -> Answer {
        let most = request.max_tokens;
        let (tokens, reader) = stream::open(&self.pool, most).expect("segments");
        let alternatives = request.sampling.top_logprobs as usize;
        let side = (alternatives > 0)
            .then(|| stream::open(&self.side_pool, most * alternatives).expect("segments"));
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

    pub(crate) fn submit(&self, request: Request) -> RequestId {
        self.handle.submit(request).expect("accepted")
    }
}

impl Answer {
    /// Reads and accepts what is new.
    pub(crate) fn read(&mut self) {
        let mut buffer = [Token::default(); 64];
        let Some(reader) = &mut self.reader else {
            return;
        };
        loop {
            match reader.read(&mut buffer) {
                Read::Items(n) => self.tokens.extend_from_slice(&buffer[..n]),
                Read::Empty => break,
                Read::Ended(end) => {
                    self.end = Some(end);
                    break;
                }
            }
        }
        reader.accept(reader.cursor());
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    pub(crate) fn alternatives(&mut self) -> Vec<TopLogprob> {
        let mut all = Vec::new();
        let mut buffer = [TopLogprob::default(); 64];
        let Some(side) = &mut self.side else {
            return all;
        };
        while let Read::Items(n) = side.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
        }
        all
    }
}

/// Allows tokens that leave another rest than the one before; complete after some tokens.
pub(crate) struct OtherRest {
    pub(crate) vocab: usize,
    pub(crate) last: u32,
    pub(crate) left: usize,
}

impl Constraint for OtherRest {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        for id in (10..self.vocab as u32).filter(|id| id % 5 != self.last % 5) {
            allowed[id as usize / 32] |= 1 << (id % 32);
        }
        true
    }
    fn accept(&mut self, token: u32) {
        assert!(token % 5 != self.last % 5, "a token that is not allowed");
        self.last = token;
        self.left = self.left.saturating_sub(1);
    }
    fn is_complete(&self) -> bool {
        self.left == 0
    }
}

/// Ends an answer at a token of a class.
pub(crate) struct StopAt(pub(crate) u32);

impl StopCondition for StopAt {
    fn push(&mut self, token: u32) -> Option<u16> {
        (token % 16 == self.0).then_some(0)
    }
}

/// Sampling parameters of every kind.
pub(crate) fn sampling(random: &mut Random) -> SamplingParams {
    let mut some = |value: f32, off: f32| if random.chance(30) { value } else { off };
    let mut sampling = SamplingParams {
        temperature: some(0.0, 0.9),
        top_k: some(20.0, 0.0) as u32,
        top_p: some(0.9, 1.0),
        min_p: some(0.05, 0.0),
        repetition_penalty: some(1.2, 1.0),
        presence_penalty: some(0.5, 0.0),
        frequency_penalty: some(0.3, 0.0),
        logit_bias: vec![(2, some(2.0, 0.0)), (77, -1.0)],
        min_tokens: some(10.0, 0.0) as u32,
        top_logprobs: some(3.0, 0.0) as u32,
        ..SamplingParams::default()
    };
    sampling.logprobs = random.chance(50);
    sampling.dry_multiplier = if random.chance(10) { 0.8 } else { 0.0 };
    sampling.typical_p = if random.chance(10) { 0.9 } else { 1.0 };
    sampling.seed = random.next();
    sampling
}

#[expect(
    clippy::disallowed_methods,
    reason = "where virtual time starts; only differences count"
)]
fn epoch() -> Instant {
    Instant::now()
}
