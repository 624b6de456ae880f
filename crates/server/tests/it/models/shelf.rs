//! A library of fake models, whose loading waits for the test, and a server over it.

use crate::support::{PATIENCE, fake, vocab};
use engine::fake::{FakeModel, Gate};
use engine::{Engine, EngineConfig};
use server::{
    DerivedModel, Keys, Library, LibraryError, LoadError, LoadPhase, LoadProgress, LoadedModel,
    LocalModel, ModelFacts, ModelHandle, ModelIdentity, ModelLimits, PullNews, ServedModel, Server,
    ServerConfig, StepMetrics, io_runtime,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use stream::PoolLimits;
use text::ChatTemplate;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// The model the server is started with.
pub(crate) const FIRST: &str = "first";
/// Loads that may be allowed ahead.
const ALLOWED_MAX: usize = 16;
const MIB: u64 = 1 << 20;

/// Fake models by name, with their sizes in MiB.
pub(crate) struct Shelf {
    sizes: BTreeMap<&'static str, u64>,
    /// What becomes of the next load.
    next: Mutex<Receiver<Result<(), LoadError>>>,
    /// Its gates, by name, of models that were loaded.
    gates: Mutex<BTreeMap<String, Arc<Gate>>>,
    /// What happened, in order.
    pub(crate) log: Mutex<Vec<String>>,
    /// Models that are loaded now wait at their gates.
    pub(crate) shut: AtomicBool,
    /// Pulls tell so many parts, each when the test lets them.
    pulls: Mutex<Receiver<()>>,
}

impl Shelf {
    fn note(log: &Mutex<Vec<String>>, what: String) {
        log.lock().unwrap().push(what);
    }

    pub(crate) fn gate(&self, name: &str) -> Arc<Gate> {
        Arc::clone(&self.gates.lock().unwrap()[name])
    }

    fn loaded(self: &Arc<Self>, name: &str) -> LoadedModel {
        let gate = Arc::new(Gate::default());
        if !self.shut.load(Ordering::SeqCst) {
            gate.open();
        }
        self.gates
            .lock()
            .unwrap()
            .insert(name.to_owned(), Arc::clone(&gate));
        let (model, joiner) = served(name, gate);
        let (engine, shelf, name) = (
            model.handle.engine.clone(),
            Arc::clone(self),
            name.to_owned(),
        );
        let bytes = self.sizes[name.as_str()] * MIB;
        LoadedModel {
            model: Arc::new(model),
            bytes,
            close: Box::new(move || {
                #[expect(clippy::disallowed_methods, reason = "at once")]
                engine.shutdown(Instant::now());
                joiner.join().expect("no panic");
                Self::note(&shelf.log, format!("closed {name}"));
            }),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an epoch for the engine")]
fn served(name: &str, gate: Arc<Gate>) -> (ServedModel, engine::EngineThread) {
    let model = Box::new(FakeModel::gated(fake(), gate));
    let engine = Engine::new(model, EngineConfig::default(), Instant::now());
    let mut engine = engine.expect("bounds that make an engine");
    let steps = Arc::new(StepMetrics::default());
    engine.observe(steps.observer());
    let (engine, joiner) = engine::spawn(engine).expect("a thread");
    let limits = PoolLimits {
        segments_max: 1 << 12,
    };
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let template = ChatTemplate::new(template, "<|bos|>", "<|eos|>");
    let served = ServedModel {
        id: name.to_owned(),
        created_unix_s: 7,
        facts: ModelFacts::default(),
        identity: ModelIdentity::default(),
        steps,
        vision_proxy: None,
        engine_absence: None,
        engine_arithmetic: None,
        engine_sight: None,
        device: None,
        handle: ModelHandle::new(
            engine,
            vocab::tokenizer(),
            template.expect("a template"),
            &[vocab::EOS],
            limits,
        ),
    };
    (served, joiner)
}

/// The library itself, which can hand out what outlives it.
pub(crate) struct Shelves(pub(crate) Arc<Shelf>);

impl Shelves {
    fn local(name: &str) -> LocalModel {
        LocalModel {
            name: name.to_owned(),
            weights: (name != FIRST).then(|| name.to_owned()),
            facts: Arc::new(ModelFacts {
                family: "fake".to_owned(),
                ..ModelFacts::default()
            }),
            made: None,
            engines: None,
        }
    }
}

impl Library for Shelves {
    fn all(&self) -> Vec<LocalModel> {
        let others = self.0.sizes.keys().filter(|name| **name != FIRST);
        std::iter::once(&FIRST)
            .chain(others)
            .map(|name| Self::local(name))
            .collect()
    }

    fn find(&self, name: &str) -> Option<LocalModel> {
        let bare = name.strip_suffix(":latest").unwrap_or(name);
        if bare == "made" {
            let made = DerivedModel {
                parent: "a".to_owned(),
                system: Some("You are made.".to_owned()),
                ..DerivedModel::default()
            };
            return Some(LocalModel {
                name: "made".to_owned(),
                made: Some(Arc::new(made)),
                ..Self::local("a")
            });
        }
        self.0.sizes.contains_key(bare).then(|| Self::local(bare))
    }

    fn bytes_needed(&self, weights: Option<&str>) -> Result<u64, String> {
        Ok(self.0.sizes[weights.unwrap_or(FIRST)] * MIB)
    }

    fn load(
        &self,
        weights: Option<&str>,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, LoadError> {
        let name = weights.unwrap_or(FIRST);
        Shelf::note(&self.0.log, format!("loading {name}"));
        tell(LoadProgress {
            phase: LoadPhase::Weights,
            bytes_done: 25,
            bytes_total: 100,
            tensors_done: 1,
            tensors_total: 4,
        });
        let next = self.0.next.lock().unwrap().recv_timeout(PATIENCE);
        next.map_err(|why| LoadError::Failed(why.to_string()))??;
        Ok(self.0.loaded(name))
    }

    fn pull(
        &self,
        name: &str,
        tell: &mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>,
    ) -> Result<(), LibraryError> {
        if name == "nobody" {
            return Err(LibraryError::Unknown(name.to_owned()));
        }
        let sum = format!("sha256:{}", "ab".repeat(32));
        for completed in [0, 50, 100] {
            let pulls = self.0.pulls.lock().unwrap();
            let _ = pulls.recv_timeout(PATIENCE);
            let news = PullNews::Fetching {
                digest: &sum,
                total: 100,
                completed,
            };
            if tell(news).is_break() {
                Shelf::note(&self.0.log, "abandoned".to_owned());
                return Err(LibraryError::Abandoned);
            }
        }
        let _ = tell(PullNews::Verifying);
        Ok(())
    }

    fn copy(&self, from: &str, to: &str) -> Result<(), LibraryError> {
        Shelf::note(&self.0.log, format!("copy {from} {to}"));
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<(), LibraryError> {
        Shelf::note(&self.0.log, format!("delete {name}"));
        Ok(())
    }

    fn make(&self, name: &str, made: DerivedModel) -> Result<(), LibraryError> {
        let system = made.system.unwrap_or_default();
        let (parent, options) = (made.parent, serde_json::to_string(&made.options).unwrap());
        Shelf::note(
            &self.0.log,
            format!("make {name} of {parent}: {system} {options}"),
        );
        Ok(())
    }
}

/// A server over fake models: `first` of 100 MiB, which is loaded; `a` and `b` of 150, `huge` of 1000.
pub(crate) struct Rig {
    pub(crate) addr: SocketAddr,
    pub(crate) shelf: Arc<Shelf>,
    allow: SyncSender<Result<(), LoadError>>,
    pub(crate) pulls: SyncSender<()>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: Option<tokio::task::JoinHandle<server::Drained>>,
    pub(crate) runtime: Runtime,
}

impl Rig {
    pub(crate) fn start(limits: ModelLimits) -> Self {
        Self::keyed(limits, Arc::new(Keys::anonymous()))
    }

    pub(crate) fn keyed(limits: ModelLimits, keys: Arc<Keys>) -> Self {
        let config = ServerConfig {
            models: limits,
            keep_alive: std::time::Duration::from_millis(20),
            ..crate::support::config()
        };
        let (allow, next) = sync_channel(ALLOWED_MAX);
        let (pulls, pulled) = sync_channel(ALLOWED_MAX);
        let shelf = Arc::new(Shelf {
            sizes: BTreeMap::from([(FIRST, 100), ("a", 150), ("b", 150), ("huge", 1000)]),
            next: Mutex::new(next),
            gates: Mutex::default(),
            log: Mutex::default(),
            shut: AtomicBool::new(false),
            pulls: Mutex::new(pulled),
        });
        let runtime = io_runtime(2).expect("io threads");
        let server = {
            let _inside = runtime.enter();
            let (server, loading) = Server::bind_early(config, FIRST).expect("a free port");
            let server = server
                .with_keys(keys)
                .with_library(Arc::new(Shelves(Arc::clone(&shelf))));
            loading.model_loaded(shelf.loaded(FIRST));
            server
        };
        let addr = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let serving = runtime.spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Self {
            addr,
            shelf,
            allow,
            pulls,
            stop: Some(stop),
            serving: Some(serving),
            runtime,
        }
    }

    /// Lets the next load, or one that waits, go on.
    pub(crate) fn allow(&self) {
        self.allow.send(Ok(())).unwrap();
    }

    /// Has it fail.
    pub(crate) fn refuse(&self) {
        let broken = LoadError::Failed("a broken file".to_owned());
        self.allow.send(Err(broken)).unwrap();
    }

    /// Has its device refuse it.
    pub(crate) fn refuse_memory(&self) {
        let full = LoadError::DeviceMemory("no memory for 4096 bytes".to_owned());
        self.allow.send(Err(full)).unwrap();
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.shelf.log.lock().unwrap().clone()
    }

    /// Asks the server to leave.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for gate in self.shelf.gates.lock().unwrap().values() {
            gate.open();
        }
        self.ask_to_stop();
    }
}
