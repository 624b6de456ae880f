//! Models of this process in its heartbeats: served ones, and those whose requests are relayed.

use super::model_searches::OpenSearch;
use crate::executor::reported_load;
use crate::messages::{ContentIdentity, MODELS_MAX, ServedModel, VECTOR_ENTRIES_MAX};
use engine::Handle;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The models that this process serves; empty until one is ready.
pub(super) struct ServedModels {
    models: Mutex<ModelTable>,
    /// Differs in each process, since each begins with an empty prefix cache.
    cache_epoch: u64,
}

#[derive(Default)]
struct ModelTable {
    /// At most [`MODELS_MAX`].
    entries: Vec<ServedEntry>,
    next: u64,
}

struct ServedEntry {
    number: u64,
    model: ServedModel,
    /// `None`: the engines are other processes.
    engine: Option<Handle>,
}

impl ServedModels {
    pub(super) fn new(cache_epoch: u64) -> Self {
        Self {
            models: Mutex::default(),
            cache_epoch,
        }
    }

    /// Adds a model; without `engine`, one whose engines are other processes. Returns the number for
    /// [`ServedModels::remove`].
    ///
    /// # Errors
    /// A heartbeat has no room for another model.
    pub(super) fn add(
        &self,
        key: &str,
        identity: &ContentIdentity,
        context_max: usize,
        engine: Option<&Handle>,
    ) -> Result<u64, String> {
        let mut table = self.lock();
        if table.entries.len() >= MODELS_MAX {
            return Err(format!(
                "this process serves {MODELS_MAX} models, and cannot serve another"
            ));
        }
        let number = table.next;
        table.next += 1;
        table.entries.push(ServedEntry {
            number,
            model: ServedModel {
                key: key.to_owned(),
                identity: identity.clone(),
                context_max: context_max as u64,
                hidden_dim: engine.map_or(0, announced_dim),
                load: None,
            },
            engine: engine.cloned(),
        });
        Ok(number)
    }

    /// Removes a model.
    pub(super) fn remove(&self, number: u64) {
        self.lock().entries.retain(|entry| entry.number != number);
    }

    /// All models, with the load of each engine.
    pub(super) fn describe(&self) -> Vec<ServedModel> {
        let table = self.lock();
        let described = table.entries.iter().map(|entry| ServedModel {
            load: entry
                .engine
                .as_ref()
                .map(|engine| reported_load(engine, self.cache_epoch)),
            ..entry.model.clone()
        });
        described.collect()
    }

    fn lock(&self) -> MutexGuard<'_, ModelTable> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries of an engine's vectors; 0 where they are too long for a message.
fn announced_dim(engine: &Handle) -> u64 {
    match engine.hidden_dim() {
        0..=VECTOR_ENTRIES_MAX => engine.hidden_dim() as u64,
        _ => 0,
    }
}

/// A relayed model in the heartbeats and the readiness of this process, until the drop. The requests end with the model's
/// handle.
pub struct Relaying {
    pub(super) served: Arc<ServedModels>,
    pub(super) number: u64,
    /// Ends with the drop.
    pub(super) _search: OpenSearch,
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.served.remove(self.number);
    }
}
