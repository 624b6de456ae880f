//! A server over a fake model.

use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig, Token, TopLogprob};
use model::Dims;
use server::{
    ModelFacts, ModelHandle, ModelIdentity, RealtimeLimits, ServedModel, Server, ServerConfig,
    StepMetrics,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{PoolLimits, SegmentPool};
use testing::small_vocabulary as vocab;
use text::{AnswerFormat, Capabilities, ChatTemplate};

/// Time until the streams of a session that is gone have given everything back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams of one connection: few, so that scripts reach the limit.
const STREAMS_MAX: usize = 4;
/// Bytes of a message: few, so that scripts reach the limit.
const MESSAGE_BYTES_MAX: usize = 2048;

/// The engine, and the logs of its streams.
pub struct FakeEngine {
    served: Arc<ServedModel>,
    tokens: SegmentPool<Token>,
    top: SegmentPool<TopLogprob>,
}

impl FakeEngine {
    pub fn start() -> Self {
        let dims = Dims {
            vocab: 258 + vocab::WORDS.len(),
            context_max: 256,
            page_tokens: 16,
            pages: 512,
            rows_max: 512,
            logit_rows_max: 256,
        };
        let fake = FakeConfig {
            dims,
            eos: vocab::EOS,
            eos_probability: 0.02,
            habit: 0.0,
            tokens: 97..123,
            faults: Vec::new(),
        };
        let model = Box::new(FakeModel::new(fake));
        let engine = Engine::new(model, EngineConfig::default(), Instant::now());
        let mut engine = engine.expect("valid limits");
        let steps = Arc::new(StepMetrics::default());
        engine.observe(steps.observer());
        let (engine, _joiner) = engine::spawn(engine).expect("a thread");
        let limits = PoolLimits {
            segments_max: 1 << 10,
        };
        let (tokens, top) = (SegmentPool::new(limits), SegmentPool::new(limits));
        let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
        let template = ChatTemplate::new(template, "", "").expect("a template");
        let handle = ModelHandle {
            vision: None,
            adapters: Arc::default(),
            tokenizer: vocab::tokenizer(),
            template: Arc::new(template),
            answers: AnswerFormat::default(),
            capabilities: Capabilities::default(),
            engine,
            context_max: dims.context_max,
            eos: Arc::from([vocab::EOS]),
            token_pool: tokens.clone(),
            top_pool: top.clone(),
        };
        let served = Arc::new(ServedModel {
            id: "fake".to_owned(),
            created_unix_s: 7,
            facts: ModelFacts::default(),
            identity: ModelIdentity::default(),
            steps,
            handle,
            engine_absence: None,
            engine_arithmetic: None,
        });
        Self {
            served,
            tokens,
            top,
        }
    }

    /// A server without streams.
    pub fn server(&self) -> Server {
        let config = ServerConfig {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            realtime: RealtimeLimits {
                streams_max: STREAMS_MAX,
                message_bytes_max: MESSAGE_BYTES_MAX,
                ..RealtimeLimits::default()
            },
            ..ServerConfig::default()
        };
        Server::bind(config, Arc::clone(&self.served)).expect("a free port")
    }

    /// Waits until no sequence, page or log is left.
    pub fn wait_until_empty(&self) {
        let begun = Instant::now();
        while !self.is_empty() {
            let stats = self.served.handle.engine.stats();
            assert!(
                begun.elapsed() < RELEASE_TIMEOUT,
                "held after the session: {} pages, {} and {} segments",
                stats.pages_used(),
                self.tokens.stats().reserved,
                self.top.stats().reserved,
            );
            std::thread::yield_now();
        }
    }

    fn is_empty(&self) -> bool {
        let stats = self.served.handle.engine.stats();
        let sequences = stats.queued() + stats.running() + stats.parked() + stats.waiting();
        sequences == 0
            && stats.pages_used() == 0
            && self.tokens.stats().reserved == 0
            && self.top.stats().reserved == 0
    }
}
