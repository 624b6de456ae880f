//! The models of this machine for the server: the model store, and the engines that are loaded from it.
//!
//! ```text
//! engines    engines of loaded models      announced   models of a gateway, from its engines' announcements
//! progress   whether engines make steps
//! ```

mod announced;
mod engines;
#[cfg(test)]
mod tests;

pub(crate) use super::liveness::EngineProgress;
use crate::cluster_node::JoinedCluster;
use crate::config::{ClusterRole, Settings};
use crate::failure::Failure;
use crate::loading::{EngineChoice, RemoteLoadError};
use crate::model_lookup::StartModel;
use crate::model_store::ModelStore;
use crate::pull;
use crate::upstreams::UsedUpstreams;
use announced::FoundModels;
use engines::RunningEngines;
use server::{
    DerivedModel, LibraryError, LoadError, LoadProgress, LoadedModel, LocalModel, PullNews,
};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

/// All models of this machine, and the engines of the loaded ones.
pub(crate) struct Library {
    store: ModelStore,
    engines: RunningEngines,
    cluster: Option<JoinedCluster>,
    found: FoundModels,
    /// Where the weights of a start model are that engines have chosen.
    start_weights: OnceLock<Option<String>>,
    upstreams: Option<UsedUpstreams>,
    /// Why a request has to name its model.
    unnamed: Option<String>,
}

impl Library {
    /// The library of a server that was started with this model; a gateway without one gets it from its engines.
    pub(crate) fn new(settings: Settings, started: Option<StartModel>) -> Self {
        let (store, unnamed) = match started {
            Some(started) => (ModelStore::new(&settings, started.source), started.unnamed),
            None => (ModelStore::without_start(&settings), None),
        };
        for name in store.missing_named() {
            tracing::warn!(
                "models.named.{name} has no effect: its model is not on this machine, or it has the name of the started model"
            );
        }
        Self {
            store,
            engines: RunningEngines::new(settings),
            cluster: None,
            found: FoundModels::default(),
            start_weights: OnceLock::new(),
            upstreams: None,
            unnamed,
        }
    }

    /// Takes part in a cluster: a gateway with all models that engines announce, another process with the model that the
    /// server was started with.
    pub(crate) fn with_cluster(self, cluster: Option<JoinedCluster>) -> Self {
        Self { cluster, ..self }
    }

    /// Has servers of others compute the tokens of the model that the server was started with.
    pub(crate) fn with_upstreams(self, upstreams: Option<UsedUpstreams>) -> Self {
        Self { upstreams, ..self }
    }

    /// Loads the model that the server was started with.
    pub(crate) fn load_started(
        &self,
        report: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, Failure> {
        if let (None, Some(cluster)) = (self.store.started_name(), self.gateway()) {
            self.wait_for_start(cluster);
        }
        let source = self.store.source_of(None);
        match (&self.cluster, &self.upstreams) {
            (Some(cluster), _) => self.engines.load_in_cluster(&source, cluster, report),
            (None, Some(upstreams)) => self.engines.load_with_upstreams(&source, upstreams, report),
            (None, None) => self.engines.load(&source, report),
        }
    }

    /// Checks that the models of the settings that describe images are here and have towers. `loads_models`: this process loads
    /// models by name.
    ///
    /// # Errors
    /// One is not here, reads text only, or cannot be loaded; the message names its setting.
    pub(crate) fn check_vision_proxies(&self, loads_models: bool) -> Result<(), Failure> {
        let settings = self.engines.settings();
        // The gateways of a cluster have images described; its engines get the texts.
        let is_engine = settings.cluster.role == ClusterRole::Engine;
        if is_engine || settings.vision.proxy.address.is_some() {
            return Ok(());
        }
        for (key, name) in settings.vision_proxy_models() {
            if !loads_models {
                return Err(Failure::user(format!(
                    "{key}: this process loads no other model than the one it was started with: set vision.proxy.address"
                )));
            }
            let proxy = self.store.find_vision_proxy(&key, name)?;
            self.warn_without_memory((&key, name), &proxy, &settings);
        }
        Ok(())
    }

    /// A warning where the model that the server was started with leaves no memory for the one that describes images for it.
    fn warn_without_memory(
        &self,
        (key, name): (&str, &str),
        proxy: &LocalModel,
        settings: &Settings,
    ) {
        let started = self
            .store
            .started_name()
            .and_then(|name| self.store.find(name));
        let is_for = |started: &LocalModel| {
            let own = settings.of_model(&started.name);
            self.store.has_vision_proxy(started) && own.vision.proxy.model() == Some(name)
        };
        let Some(started) = started.filter(is_for) else {
            return;
        };
        let needed =
            |model: &LocalModel| server::Library::bytes_needed(self, model.weights.as_deref());
        let (Ok(text), Ok(vision)) = (needed(&started), needed(proxy)) else {
            return;
        };
        let budget = settings.models.limits().memory_bytes;
        if budget.is_some_and(|budget| text.saturating_add(vision) > budget) {
            let [text, vision, budget] =
                [text, vision, budget.unwrap_or(0)].map(|bytes| bytes >> 20);
            tracing::warn!(
                "{key}: {name} needs {vision} MiB of memory and {} needs {text} MiB, and all models together may have \
                 {budget} MiB (models.memory_budget_mib): images are not described unless both fit",
                started.name
            );
        }
    }

    /// Name of the model that the server was started with, once it is known.
    pub(crate) fn started_name(&self) -> Option<&str> {
        self.store.started_name()
    }

    /// Applies new settings to running engines, as far as these can change, and to later loads.
    pub(crate) fn apply_settings(&self, settings: Settings) {
        self.engines.apply_settings(settings);
    }

    /// Whether the engines of this process make progress, or have nothing to do, since the last look.
    pub(crate) fn look_at(&self, progress: &mut EngineProgress) -> bool {
        progress.look(&self.engines.sights())
    }
}

impl server::Library for Library {
    fn all(&self) -> Vec<LocalModel> {
        let all = self.store.all();
        match self.gateway() {
            Some(cluster) => self.announced_of(cluster, all),
            None => all,
        }
    }

    fn find(&self, name: &str) -> Option<LocalModel> {
        let found = self.store.find(name)?;
        Some(match self.gateway() {
            Some(cluster) => self.as_announced(cluster, name, found),
            None => found,
        })
    }

    fn is_started(&self) -> bool {
        self.store.started_name().is_some()
    }

    fn unnamed(&self) -> Option<&str> {
        self.unnamed.as_deref()
    }

    fn started_defaults(&self) -> Option<Arc<DerivedModel>> {
        self.store.started_defaults()
    }

    fn bytes_needed(&self, weights: Option<&str>) -> Result<u64, String> {
        if self.gateway().is_some() {
            return Ok(0);
        }
        let source = self.store.source_of(weights);
        let needed = self.engines.bytes_needed(&source);
        needed.map_err(|why| why.to_string())
    }

    fn load(
        &self,
        weights: Option<&str>,
        report: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, LoadError> {
        let source = self.store.source_of(weights);
        let Some(cluster) = self.gateway() else {
            let loaded = self.engines.load(&source, report);
            return loaded.map_err(|why| match why {
                Failure::DeviceMemory(why) => LoadError::DeviceMemory(why),
                why => LoadError::Failed(why.to_string()),
            });
        };
        let names = self.announced_names(cluster, weights).into_iter();
        let choice = EngineChoice::AnyOf(names.map(|model| model.key).collect());
        let loaded = self
            .engines
            .load_remote(&source, (cluster, &choice), report);
        loaded.map_err(|why| match why {
            RemoteLoadError::Failed(why) => LoadError::Failed(why.to_string()),
            RemoteLoadError::NoEngine(why) => LoadError::NoEngine(why),
        })
    }

    fn has_vision_proxy(&self, model: &LocalModel) -> bool {
        self.store.has_vision_proxy(model)
    }

    fn obstacle(&self, name: &str, weights: Option<&str>) -> Option<String> {
        self.missing_engine(self.gateway()?, name, weights)
    }

    fn absence(&self, name: &str) -> Option<String> {
        self.missing_files(self.gateway()?, name)
    }

    fn pull(
        &self,
        name: &str,
        report: &mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>,
    ) -> Result<(), LibraryError> {
        Ok(pull::pull(&self.store, name, report)?)
    }

    fn copy(&self, from: &str, to: &str) -> Result<(), LibraryError> {
        self.store.copy_name(from, to)
    }

    fn delete(&self, name: &str) -> Result<(), LibraryError> {
        self.store.delete_name(name)
    }

    fn make(&self, name: &str, made: DerivedModel) -> Result<(), LibraryError> {
        self.store.make_model(name, made)
    }
}
