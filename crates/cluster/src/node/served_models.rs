//! Models of this process in its heartbeats.

use crate::executor::reported_load;
use crate::messages::{ContentIdentity, ServedModel};
use engine::Handle;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The models that this process serves; empty until one is ready.
pub(super) struct ServedModels {
    /// At most as many as the process has loaded.
    models: Mutex<Vec<(ServedModel, Option<Handle>)>>,
    /// Differs in each process, since each begins with an empty prefix cache.
    cache_epoch: u64,
}

impl ServedModels {
    pub(super) fn new(cache_epoch: u64) -> Self {
        Self {
            models: Mutex::default(),
            cache_epoch,
        }
    }

    /// Adds a model with an engine of this process.
    pub(super) fn add_engine(
        &self,
        key: &str,
        identity: &ContentIdentity,
        context_max: usize,
        engine: &Handle,
    ) {
        let model = served_model(key, identity, context_max);
        self.lock().push((model, Some(engine.clone())));
    }

    /// Adds a model whose engines are other processes.
    pub(super) fn add_relayed(&self, key: &str, identity: &ContentIdentity, context_max: usize) {
        let model = served_model(key, identity, context_max);
        self.lock().push((model, None));
    }

    /// All models, with the load of each engine.
    pub(super) fn describe(&self) -> Vec<ServedModel> {
        let models = self.lock();
        let described = models.iter().map(|(model, engine)| ServedModel {
            load: engine
                .as_ref()
                .map(|engine| reported_load(engine, self.cache_epoch)),
            ..model.clone()
        });
        described.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ServedModel, Option<Handle>)>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn served_model(key: &str, identity: &ContentIdentity, context_max: usize) -> ServedModel {
    ServedModel {
        key: key.to_owned(),
        identity: identity.clone(),
        context_max: context_max as u64,
        load: None,
    }
}
