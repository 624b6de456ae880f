//! A server with a fake model on a port of its own, and a client that sees every byte.
#![allow(dead_code, unreachable_pub, reason = "benchmarks use a part")]

pub mod automaton;
pub mod client;
pub mod described;
pub mod dialects;
pub mod disk;
pub mod echo;
pub mod exported;
pub mod feed;
pub mod framing;
pub mod infill;
pub mod logged;
pub mod messages;
pub mod named;
pub mod owners;
pub mod responses;
pub mod sse;
pub mod talk;
pub mod told;
pub mod ui_messages;
pub mod webhook_receiver;

pub use testing::small_vocabulary as vocab;
pub use testing::wait::{PATIENCE, wait_until};

use ::gateway::recovery::StartingJournal;
use ::gateway::streams::{StreamFeed, StreamJournal};
use ::journal::{FileSystem, JournalConfig, JournalDirectory, lock_journal};
use engine::fake::{FakeConfig, FakeModel, Gate};
use engine::{Engine, EngineConfig, Handle, Token, TopLogprob};
use model::{Dims, Forward};
use serde_json::Value;
use server::{
    Drained, Keys, Loading, ModelFacts, ModelHandle, ModelIdentity, ServedModel, Server,
    ServerConfig, StepMetrics, io_runtime,
};
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use stream::{PoolLimits, SegmentPool};
use text::{AnswerFormat, Capabilities, ChatTemplate, Tokenizer, ToolFamily};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

/// The served model's name.
pub const MODEL: &str = "fake";

/// Words with the roles left out: what was said is the prompt.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

/// A fake model over the tests' vocabulary that says letters.
pub fn fake() -> FakeConfig {
    FakeConfig {
        dims: Dims {
            vocab: 258 + vocab::WORDS.len(),
            context_max: 512,
            page_tokens: 16,
            pages: 1024,
            rows_max: 512,
            logit_rows_max: 256,
        },
        eos: vocab::EOS,
        eos_probability: 0.02,
        habit: 0.0,
        tokens: 97..123,
        faults: Vec::new(),
    }
}

/// Name of the fake model's device.
pub const DEVICE: &str = "fake device";

/// Bounds as in production, on a port of its own.
pub fn config() -> ServerConfig {
    ServerConfig {
        bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        ..ServerConfig::default()
    }
}

/// How a server's model writes.
struct Speech {
    template: &'static str,
    answers: AnswerFormat,
    capabilities: Capabilities,
    tokenizer: Arc<Tokenizer>,
}

type PrepareServer = Box<dyn FnOnce(Server) -> Server>;

thread_local! {
    /// Prepares the next server that this thread starts.
    static NEXT_SERVER: RefCell<Option<PrepareServer>> = const { RefCell::new(None) };
    /// Content of the next server's model.
    static NEXT_IDENTITY: RefCell<Option<ModelIdentity>> = const { RefCell::new(None) };
}

/// A running server.
pub struct Rig {
    pub addr: SocketAddr,
    pub engine: Handle,
    pub gate: Arc<Gate>,
    pub tokens: SegmentPool<Token>,
    pub top: SegmentPool<TopLogprob>,
    /// Until [`Rig::ready`], of a server that was bound early.
    early: Option<(Loading, Arc<ServedModel>)>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<Drained>>,
    runtime: Runtime,
}

impl Rig {
    /// A server whose model runs freely.
    pub fn start() -> Self {
        Self::with(fake(), config())
    }

    /// The same with other bounds.
    pub fn with(fake: FakeConfig, config: ServerConfig) -> Self {
        let rig = Self::gated(fake, config);
        rig.gate.open();
        rig
    }

    /// A server that asks for keys.
    pub fn keyed(config: ServerConfig, keys: &Arc<Keys>) -> Self {
        let rig = Self::behind(fake(), config, Arc::clone(keys));
        rig.gate.open();
        rig
    }

    /// A server whose model waits for the gate before each pass.
    pub fn gated(fake: FakeConfig, config: ServerConfig) -> Self {
        Self::behind(fake, config, Arc::new(Keys::anonymous()))
    }

    /// A server whose model waits for the gate before each pass, and that records streams on this disk.
    pub fn recorded(fake: FakeConfig, config: ServerConfig, disk: impl FileSystem) -> Self {
        Self::set_next_journal(move |feed| disk::start_journal(disk, feed));
        Self::gated(fake, config)
    }

    /// Makes the journal of the next server that this thread starts.
    pub fn set_next_journal(start: impl FnOnce(StreamFeed) -> Arc<StreamJournal> + 'static) {
        Self::set_next_server(|server| {
            let journal = start(server.stream_feed());
            server.with_stream_journal(journal)
        });
    }

    /// The next server that this thread starts continues the streams of the journal in this folder.
    pub fn set_next_directory(path: PathBuf) {
        Self::set_next_server(|server| {
            let locked = lock_journal(JournalDirectory::new(path), JournalConfig::default());
            server.with_journal(StartingJournal::new(
                locked.expect("no other server has it"),
            ))
        });
    }

    /// The next server that this thread starts has a model with this content.
    pub fn set_next_identity(identity: ModelIdentity) {
        NEXT_IDENTITY.with_borrow_mut(|next| *next = Some(identity));
    }

    /// Prepares the next server that this thread starts, inside its runtime.
    pub fn set_next_server(prepare: impl FnOnce(Server) -> Server + 'static) {
        NEXT_SERVER.with_borrow_mut(|next| *next = Some(Box::new(prepare)));
    }

    /// The same, for callers with these keys.
    pub fn behind(fake: FakeConfig, config: ServerConfig, keys: Arc<Keys>) -> Self {
        Self::tuned(fake, EngineConfig::default(), config, keys)
    }

    /// The same, with other bounds of the engine.
    pub fn tuned(
        fake: FakeConfig,
        tuning: EngineConfig,
        config: ServerConfig,
        keys: Arc<Keys>,
    ) -> Self {
        let mut rig = Self::early(fake, tuning, config, keys);
        rig.ready();
        rig
    }

    /// A server whose model is being loaded.
    pub fn early(
        fake: FakeConfig,
        tuning: EngineConfig,
        config: ServerConfig,
        keys: Arc<Keys>,
    ) -> Self {
        let gate = Arc::new(Gate::default());
        let model = Box::new(FakeModel::gated(fake, Arc::clone(&gate)));
        Self::over(model, gate, tuning, config, keys)
    }

    /// A server whose model says what it is told to, and whose answers are read so.
    pub fn echoing(answers: AnswerFormat, config: ServerConfig) -> Self {
        let gate = Arc::new(Gate::default());
        gate.open();
        let speech = Speech {
            template: echo::TEMPLATE,
            answers,
            capabilities: Capabilities::default(),
            tokenizer: vocab::tokenizer(),
        };
        let mut rig = Self::speaking(
            Box::new(echo::Echo::new()),
            speech,
            gate,
            EngineConfig::default(),
            config,
            Arc::new(Keys::anonymous()),
        );
        rig.ready();
        rig
    }

    /// The same, whose template has no place for tools: what it can be asked for is found out as when it is loaded.
    pub fn without_tools(answers: AnswerFormat) -> Self {
        let gate = Arc::new(Gate::default());
        gate.open();
        let template = echo::TEMPLATE_WITHOUT_TOOLS;
        let tried = ChatTemplate::new(template, "", "").expect("a template");
        let speech = Speech {
            template,
            answers,
            capabilities: tried.capabilities(answers),
            tokenizer: vocab::tokenizer(),
        };
        let (model, tuning) = (Box::new(echo::Echo::new()), EngineConfig::default());
        let keys = Arc::new(Keys::anonymous());
        let mut rig = Self::speaking(model, speech, gate, tuning, config(), keys);
        rig.ready();
        rig
    }

    /// A server of this model, which writes in channels.
    pub fn in_channels(model: Box<dyn Forward>, config: ServerConfig) -> Self {
        let gate = Arc::new(Gate::default());
        gate.open();
        let speech = Speech {
            template: echo::TEMPLATE_OF_CHANNELS,
            answers: AnswerFormat {
                tools: ToolFamily::Harmony,
                ..AnswerFormat::default()
            },
            capabilities: Capabilities::default(),
            tokenizer: vocab::in_channels(),
        };
        let (tuning, keys) = (EngineConfig::default(), Arc::new(Keys::anonymous()));
        let mut rig = Self::speaking(model, speech, gate, tuning, config, keys);
        rig.ready();
        rig
    }

    /// The same, over any model with the tests' vocabulary.
    pub fn over(
        model: Box<dyn Forward>,
        gate: Arc<Gate>,
        tuning: EngineConfig,
        config: ServerConfig,
        keys: Arc<Keys>,
    ) -> Self {
        let plain = Speech {
            template: TEMPLATE,
            answers: AnswerFormat::default(),
            capabilities: Capabilities::default(),
            tokenizer: vocab::tokenizer(),
        };
        Self::speaking(model, plain, gate, tuning, config, keys)
    }

    /// The same, whose template and answers are these.
    #[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
    fn speaking(
        model: Box<dyn Forward>,
        speech: Speech,
        gate: Arc<Gate>,
        tuning: EngineConfig,
        config: ServerConfig,
        keys: Arc<Keys>,
    ) -> Self {
        let mut engine = Engine::new(model, tuning, Instant::now()).expect("an engine");
        let steps = Arc::new(StepMetrics::default());
        engine.observe(steps.observer());
        let (engine, _joiner) = engine::spawn(engine).expect("a thread");
        let limits = PoolLimits {
            segments_max: 1 << 14,
        };
        let template = ChatTemplate::new(speech.template, "<|bos|>", "<|eos|>");
        let handle = ModelHandle {
            answers: speech.answers,
            capabilities: speech.capabilities,
            ..ModelHandle::new(
                engine.clone(),
                speech.tokenizer,
                template.expect("a template"),
                &[vocab::EOS],
                limits,
            )
        };
        let (tokens, top) = (handle.token_pool.clone(), handle.top_pool.clone());
        let served = Arc::new(ServedModel {
            id: MODEL.to_owned(),
            created_unix_s: 7,
            facts: ModelFacts::default(),
            identity: NEXT_IDENTITY.take().unwrap_or_default(),
            steps,
            vision_proxy: None,
            engine_absence: None,
            engine_arithmetic: None,
            engine_sight: None,
            device: Some(Box::new(|| DEVICE.to_owned())),
            handle,
        });
        let runtime = io_runtime(2).expect("io threads");
        let (server, loading) = {
            let _inside = runtime.enter();
            let (server, loading) = Server::bind_early(config, MODEL).expect("a free port");
            let server = server.with_keys(keys);
            let server = match NEXT_SERVER.with_borrow_mut(Option::take) {
                Some(prepare) => prepare(server),
                None => server,
            };
            (server, loading)
        };
        let addr = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let serving = runtime.spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Self {
            addr,
            engine,
            gate,
            tokens,
            top,
            early: Some((loading, served)),
            stop: Some(stop),
            serving: Some(serving),
            runtime,
        }
    }

    /// Head and body of an event stream, one frame at a time: the model does a pass, the client reads what it gave.
    pub fn stepwise(&self, path: &str, body: &Value) -> (client::Head, String) {
        let mut client = client::Client::connect(self.addr);
        client.post(path, body);
        let head = client.head();
        let begun = client.chunk();
        let mut text = begun.expect("a beginning before the model did anything");
        self.gate.allow(1);
        while let Some(chunk) = client.chunk() {
            text.push_str(&chunk);
            self.gate.allow(1);
        }
        (head, text)
    }

    /// The hand that loads the model, of a server that was bound early.
    pub fn loading(&self) -> &Loading {
        &self.early.as_ref().expect("it is still loading").0
    }

    /// The model answers from now on.
    pub fn ready(&mut self) {
        let (loading, served) = self.early.take().expect("it is still loading");
        loading.model_ready(served);
    }

    /// The model will not answer.
    pub fn failed(&mut self) {
        let (loading, _) = self.early.take().expect("it is still loading");
        loading.load_failed();
    }

    /// Asks the server to leave.
    pub fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until requests of new connections are rejected because the server leaves.
    pub fn wait_until_leaving(&self) {
        wait_until("new requests are rejected", || {
            client::get(self.addr, "/health").head.status == 503
        });
    }

    /// Waits until it left.
    pub fn stopped(&mut self) -> Drained {
        let serving = self.serving.take().expect("not asked before");
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, serving).await })
            .expect("it leaves")
            .expect("no panic")
    }

    /// Waits until nothing is left of any request: no choice, no page, no segment.
    pub fn wait_until_empty(&self) {
        wait_until("all is given back", || {
            let stats = self.engine.stats();
            let choices = stats.queued() + stats.running() + stats.parked() + stats.waiting();
            choices == 0
                && stats.pages_used() == 0
                && self.tokens.stats().reserved == 0
                && self.top.stats().reserved == 0
        });
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.gate.open();
        self.ask_to_stop();
    }
}
