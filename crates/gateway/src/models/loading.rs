//! Reports the progress and result of loading a model, from any thread.

use super::{
    LoadProgress, LoadedModel, ModelEntry, ModelRegistry, ModelState, ReadyModel, ServedModel,
};
use std::sync::Arc;
use wire::clock;

/// A model that is being loaded. Dropped without a word, loading has failed.
pub struct Loading {
    models: Arc<ModelRegistry>,
    entry: Arc<ModelEntry>,
    told: bool,
}

impl Loading {
    pub(crate) fn begin(models: Arc<ModelRegistry>, entry: Arc<ModelEntry>) -> Self {
        entry.set(ModelState::Loading {
            since: clock::now(),
            progress: LoadProgress::default(),
        });
        Self {
            models,
            entry,
            told: false,
        }
    }

    /// Reports the progress. Cheap: a lock, and a wake-up of watchers.
    pub fn progress(&self, progress: LoadProgress) {
        self.entry.set_progress(progress);
    }

    /// The model is ready, for as long as the server runs. (During a shutdown, the model is closed at once.)
    pub fn ready(mut self, model: Arc<ServedModel>) {
        self.models.counts_load(&self.entry);
        let serving = self.entry.ready(model, &self.models.limits());
        self.answers(&serving);
    }

    /// The model is ready, until unloaded.
    pub fn loaded(mut self, model: LoadedModel) {
        self.models.counts_load(&self.entry);
        let serving = self.entry.loaded(model, &self.models.limits());
        self.answers(&serving);
    }

    /// Loading failed.
    pub fn failed(mut self) {
        self.told = true;
        self.models.loading_failed(&self.entry);
    }

    fn answers(&mut self, serving: &ReadyModel) {
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
            self.models.loading_failed(&self.entry);
        }
    }
}
