//! The running engines, and the settings that apply to them.

use crate::bounds::tuning;
use crate::clock::now_unix_s;
use crate::cluster_node::JoinedCluster;
use crate::config::Settings;
use crate::failure::Failure;
use crate::liveness::EngineSight;
use crate::loading::{self, EngineChoice, LoadedEngine, RemoteLoadError};
use crate::model_files::ModelSource;
use crate::upstreams::UsedUpstreams;
use engine::Handle;
use server::{LoadProgress, LoadedModel, ServedModel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All running engines. An engine is in the table from load to close.
pub(super) struct RunningEngines(Arc<Mutex<EngineTable>>);

struct RunningEngine {
    id: u64,
    handle: Handle,
    /// Whether the steps are this process's.
    computes_here: bool,
}

struct EngineTable {
    settings: Settings,
    engines: Vec<RunningEngine>,
    next: u64,
}

impl RunningEngines {
    pub(super) fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(EngineTable {
            settings,
            engines: Vec::new(),
            next: 0,
        })))
    }

    /// Applies settings to running engines, as far as these can change, and to later loads.
    pub(super) fn apply_settings(&self, settings: Settings) {
        let mut table = lock(&self.0);
        for engine in &table.engines {
            engine.handle.tune(tuning(&settings));
        }
        table.settings = settings;
    }

    /// What is seen of the engines that compute in this process.
    pub(super) fn sights(&self) -> Vec<EngineSight> {
        let table = lock(&self.0);
        let engines = table.engines.iter().filter(|engine| engine.computes_here);
        engines
            .map(|engine| EngineSight::of(engine.id, engine.handle.stats()))
            .collect()
    }

    /// Bytes of memory that loading a model takes.
    pub(super) fn bytes_needed(&self, source: &ModelSource) -> Result<u64, Failure> {
        loading::bytes_needed(source, &self.settings_of(source))
    }

    /// Loads a model and starts the engine.
    pub(super) fn load(
        &self,
        source: &ModelSource,
        report: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, Failure> {
        let loaded = loading::load_from(source, &self.settings_of(source), report)?;
        Ok(self.adopt(loaded))
    }

    /// Loads a model of a process in a cluster: a gateway's requests go to other processes, another process's engine also
    /// computes for gateways.
    pub(super) fn load_in_cluster(
        &self,
        source: &ModelSource,
        cluster: &JoinedCluster,
        report: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, Failure> {
        let settings = self.settings_of(source);
        if cluster.is_gateway() {
            let loaded = self.load_remote(source, (cluster, &EngineChoice::Wait), report);
            return loaded.map_err(|why| match why {
                RemoteLoadError::Failed(why) => why,
                RemoteLoadError::NoEngine(why) => Failure::user(why),
            });
        }
        let loaded = loading::load_from(source, &settings, report)?;
        cluster.execute(&loaded)?;
        Ok(self.adopt(loaded))
    }

    /// Loads a model whose engines are other processes.
    pub(super) fn load_remote(
        &self,
        source: &ModelSource,
        engines: (&JoinedCluster, &EngineChoice),
        report: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, RemoteLoadError> {
        let settings = self.settings_of(source);
        let loaded = loading::load_remote(source, &settings, engines, report)?;
        Ok(self.adopt(loaded))
    }

    /// Loads a model whose requests go to servers of others.
    pub(super) fn load_with_upstreams(
        &self,
        source: &ModelSource,
        upstreams: &UsedUpstreams,
        report: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, Failure> {
        let settings = self.settings_of(source);
        let loaded = loading::load_upstream(source, &settings, upstreams, report)?;
        Ok(self.adopt(loaded))
    }

    fn adopt(&self, mut loaded: LoadedEngine) -> LoadedModel {
        let mut table = lock(&self.0);
        // The settings may have changed during the load.
        loaded.handle.engine.tune(tuning(&table.settings));
        let id = table.next;
        table.next += 1;
        table.engines.push(RunningEngine {
            id,
            handle: loaded.handle.engine.clone(),
            computes_here: loaded.computes_here(),
        });
        drop(table);
        let engines = Arc::clone(&self.0);
        LoadedModel {
            model: Arc::new(served_model(&mut loaded)),
            bytes: loaded.bytes,
            close: Box::new(move || {
                lock(&engines).engines.retain(|other| other.id != id);
                loaded.close();
            }),
        }
    }

    /// The settings that hold now.
    pub(super) fn settings(&self) -> Settings {
        lock(&self.0).settings.clone()
    }

    fn settings_of(&self, source: &ModelSource) -> Settings {
        source.settings(&lock(&self.0).settings)
    }
}

fn lock(table: &Mutex<EngineTable>) -> MutexGuard<'_, EngineTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn served_model(loaded: &mut LoadedEngine) -> ServedModel {
    ServedModel {
        id: loaded.name.clone(),
        created_unix_s: now_unix_s(),
        facts: loaded.facts.clone(),
        identity: loaded.identity.clone(),
        steps: Arc::clone(&loaded.steps),
        handle: loaded.handle.clone(),
        vision_proxy: loaded.vision_proxy.clone(),
        engine_absence: loaded.take_engine_absence(),
        engine_arithmetic: loaded.take_engine_arithmetic(),
        engine_sight: loaded.take_engine_sight(),
        device: loaded.device_name(),
    }
}
