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
    pub(crate) fn begin_loading(models: Arc<ModelRegistry>, entry: Arc<ModelEntry>) -> Self {
        entry.set_state(ModelState::Loading {
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
    pub fn report_progress(&self, progress: LoadProgress) {
        self.entry.set_progress(progress);
    }

    /// The model is ready, for as long as the server runs. (During a shutdown, the model is closed at once.)
    pub fn model_ready(mut self, model: Arc<ServedModel>) {
        self.models.counts_load(&self.entry);
        let serving = self.entry.set_ready(model, &self.models.gateway_limits());
        self.can_answer(&serving);
    }

    /// The model is ready, until unloaded.
    pub fn model_loaded(mut self, model: LoadedModel) {
        self.models.counts_load(&self.entry);
        let serving = self.entry.set_loaded(model, &self.models.gateway_limits());
        self.can_answer(&serving);
    }

    /// Loading failed.
    pub fn load_failed(mut self) {
        self.told = true;
        self.models.loading_failed(&self.entry);
    }

    fn can_answer(&mut self, serving: &ReadyModel) {
        self.told = true;
        self.models.look_again();
        if self.models.is_closed() {
            serving.close_admission(&self.models.gateway_limits());
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
