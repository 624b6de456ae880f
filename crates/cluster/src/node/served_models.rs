//! Models of this process in its heartbeats: served ones, and those whose requests are relayed.

use super::model_searches::OpenSearch;
use crate::executor::{ArithmeticNow, ExecutorModel, reported_load};
use crate::messages::{MODELS_MAX, ServedModel, VECTOR_ENTRIES_MAX};
use crate::relay::RelayedModel;
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
    /// The arithmetic at a moment, of a device that may be given up.
    arithmetic_now: Option<ArithmeticNow>,
}

impl ServedModels {
    pub(super) fn new(cache_epoch: u64) -> Self {
        Self {
            models: Mutex::default(),
            cache_epoch,
        }
    }

    /// Adds a model whose engines are other processes. Returns the number for [`ServedModels::remove`].
    ///
    /// # Errors
    /// A heartbeat has no room for another model.
    pub(super) fn add_relayed(&self, model: &RelayedModel) -> Result<u64, String> {
        let served = ServedModel {
            key: model.key.clone(),
            identity: model.identity.clone(),
            context_max: model.context_max as u64,
            ..ServedModel::default()
        };
        self.add((served, None, None))
    }

    /// Adds a model with an engine of this process.
    ///
    /// # Errors
    /// As of [`ServedModels::add_relayed`].
    pub(super) fn add_executed(&self, model: &ExecutorModel) -> Result<u64, String> {
        let vision = model.handle.vision.as_ref();
        let served = ServedModel {
            key: model.key.clone(),
            identity: model.identity.clone(),
            context_max: model.handle.context_max as u64,
            hidden_dim: announced_dim(&model.handle.engine),
            tower: vision.map_or_else(String::new, |vision| vision.fingerprint_text()),
            load: None,
        };
        let engine = Some(model.handle.engine.clone());
        self.add((served, engine, model.arithmetic_now().cloned()))
    }

    fn add(
        &self,
        (model, engine, arithmetic_now): (ServedModel, Option<Handle>, Option<ArithmeticNow>),
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
            model,
            engine,
            arithmetic_now,
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
        let described = table.entries.iter();
        described
            .map(|entry| entry.describe(self.cache_epoch))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, ModelTable> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedEntry {
    fn describe(&self, cache_epoch: u64) -> ServedModel {
        let engine = self.engine.as_ref();
        let mut model = ServedModel {
            load: engine.map(|engine| reported_load(engine, cache_epoch)),
            ..self.model.clone()
        };
        if let Some(now) = self.arithmetic_now.as_ref().and_then(|now| now()) {
            model.identity.arithmetic = now;
        }
        model
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
