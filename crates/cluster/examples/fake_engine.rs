//! An engine without weights, whose steps take a given time: many of them show what gateways and NATS can do where the
//! machine has no processors for as many real engines.
//!
//! ```text
//! cargo run --release -p cluster --example fake_engine -- nats://127.0.0.1:4222 NKEY-FILE STEP-MS SEQUENCES
//! ```
//!
//! The engine takes name and content of the model from a real engine of the cluster, which may end then.

use cluster::config::{LoginFiles, NatsConfig};
use cluster::executor::ExecutorModel;
use cluster::instances::MembershipConfig;
use cluster::messages::{Heartbeat, Role, ServedModel};
use cluster::names::{ClusterName, InstanceId};
use cluster::node::{ClusterNode, NodeConfig};
use cluster::placement::PlacementPolicy;
use engine::fake::{FakeConfig, FakeModel};
use engine::{Engine, EngineConfig, Handle, Observer, RequestId, StepFacts, Transition};
use generate::model_handle::ModelHandle;
use model::{Batch, Dims, Forward, ForwardError, PageId};
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};
use stream::PoolLimits;
use testing::small_vocabulary;
use text::ChatTemplate;

/// Vocabulary of the built-in model.
const VOCABULARY: usize = 1280;
/// Segments of 256 tokens: one for each sequence.
const SEGMENTS_MAX: usize = 1 << 14;
/// Pages of 16 tokens for each sequence, and at least.
const PAGES_PER_SEQUENCE: usize = 32;
const PAGES_MIN: usize = 1 << 14;

type Failed = Box<dyn Error>;

/// A model whose steps take their time without a processor, as steps of an accelerator do.
struct PacedModel {
    model: FakeModel,
    step: Duration,
}

impl Forward for PacedModel {
    fn dims(&self) -> Dims {
        self.model.dims()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a step that takes time and no processor"
    )]
    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        std::thread::sleep(self.step);
        self.model.forward(batch)
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.model.copy_page(from, to);
    }
}

/// Calls the tasks that send tokens, after each step.
struct StepSignal(Arc<OnceLock<Waker>>);

impl Observer for StepSignal {
    fn transition(&mut self, _: RequestId, _: Transition, _: Instant) {}

    fn step(&mut self, _: &StepFacts) {
        if let Some(waker) = self.0.get() {
            waker.wake_by_ref();
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, nkey, step_ms, sequences] = &arguments[..] else {
        return Err("arguments: NATS-URL NKEY-FILE STEP-MS SEQUENCES".into());
    };
    let id = InstanceId::random()?;
    let node = ClusterNode::start(NodeConfig {
        nats: NatsConfig {
            servers: vec![server.clone()],
            connection_name: "fake engine".to_owned(),
            login: LoginFiles {
                nkey: Some(nkey.into()),
                ..LoginFiles::default()
            },
            ..NatsConfig::default()
        },
        membership: MembershipConfig {
            name: ClusterName::new("millrace")?,
            id,
            heartbeat: Duration::from_millis(250),
            secret: None,
        },
        role: Role::Engine,
        placement: PlacementPolicy::default(),
        engine_wait: Duration::from_secs(60),
        describe: Box::new(move || Heartbeat::new(id, Role::Engine)),
    })
    .await?;
    let served = model_of_the_cluster(&node).await;
    let signal = Arc::new(OnceLock::new());
    let engine = start_engine(&signal, step_ms.parse()?, sequences.parse()?)?;
    let context_max = usize::try_from(served.context_max)?;
    let handle = model_handle(engine, context_max)?;
    let model = ExecutorModel::new(served.key, served.identity, handle);
    node.execute((vec![model], None), &signal).await?;
    tokio::signal::ctrl_c().await?;
    node.leave().await;
    Ok(())
}

/// What a real engine announces.
async fn model_of_the_cluster(node: &ClusterNode) -> ServedModel {
    loop {
        let instances = node.membership().instances();
        let mut engines = instances.iter().map(|instance| &instance.heartbeat);
        let found =
            engines.find_map(|heartbeat| heartbeat.models.iter().find(|m| m.load.is_some()));
        if let Some(model) = found {
            return model.clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
fn start_engine(
    signal: &Arc<OnceLock<Waker>>,
    step_ms: u64,
    sequences: usize,
) -> Result<Handle, Failed> {
    let fake = FakeConfig {
        dims: Dims {
            vocab: VOCABULARY,
            context_max: 2048,
            page_tokens: 16,
            pages: PAGES_MIN.max(sequences * PAGES_PER_SEQUENCE),
            rows_max: 512,
            logit_rows_max: 512,
        },
        // Whole words of the built-in vocabulary.
        tokens: 300..1200,
        ..FakeConfig::default()
    };
    let model = PacedModel {
        model: FakeModel::new(fake),
        step: Duration::from_millis(step_ms),
    };
    let config = EngineConfig {
        sequences_max: sequences,
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(Box::new(model), config, Instant::now())?;
    engine.observe(Box::new(StepSignal(Arc::clone(signal))));
    let (handle, _joiner) = engine::spawn(engine)?;
    Ok(handle)
}

/// Requests come as token ids, so that tokenizer and template are of no importance, but for the size of the vocabulary.
fn model_handle(engine: Handle, _context_max: usize) -> Result<ModelHandle, Failed> {
    let limits = PoolLimits {
        segments_max: SEGMENTS_MAX,
    };
    let words: Vec<_> = (0..VOCABULARY)
        .map(|number| format!("word{number}"))
        .collect();
    Ok(ModelHandle::new(
        engine,
        small_vocabulary::with_words(&words),
        ChatTemplate::new("", "", "").map_err(|e| e.to_string())?,
        &[0],
        limits,
    ))
}
