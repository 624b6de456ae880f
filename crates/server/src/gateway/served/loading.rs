//! The hand that loads a model, on whichever thread, and says how far it is.

use super::{LoadProgress, LoadedModel, ServedModel, ServedModels, Serving, Slot, State};
use crate::wire::clock;
use std::sync::Arc;

/// A model that is being loaded. Dropped without a word, loading has failed.
pub struct Loading {
    models: Arc<ServedModels>,
    slot: Arc<Slot>,
    told: bool,
}

impl Loading {
    pub(crate) fn begin(models: Arc<ServedModels>, slot: Arc<Slot>) -> Self {
        slot.set(State::Loading {
            since: clock::now(),
            progress: LoadProgress::default(),
        });
        Self {
            models,
            slot,
            told: false,
        }
    }

    /// Reports the progress. Cheap: a lock, and a wake-up of watchers.
    pub fn progress(&self, progress: LoadProgress) {
        self.slot.set_progress(progress);
    }

    /// The model is ready, for as long as the server runs. (If the server is leaving, it is told to leave at
    /// once.)
    pub fn ready(mut self, model: Arc<ServedModel>) {
        self.models.counts_load(&self.slot);
        let serving = self.slot.ready(model, &self.models.limits());
        self.answers(&serving);
    }

    /// The model is ready, until it is unloaded.
    pub fn loaded(mut self, model: LoadedModel) {
        self.models.counts_load(&self.slot);
        let serving = self.slot.loaded(model, &self.models.limits());
        self.answers(&serving);
    }

    /// Loading failed.
    pub fn failed(mut self) {
        self.told = true;
        self.models.loading_failed(&self.slot);
    }

    fn answers(&mut self, serving: &Serving) {
        self.told = true;
        self.models.look_again();
        if self.models.is_closed() {
            serving.close(&self.models.limits());
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if !self.told {
            self.models.loading_failed(&self.slot);
        }
    }
}
