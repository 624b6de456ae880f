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
        let serving = self.entry.set_ready(self.ready_model(model));
        self.can_answer(&serving);
    }

    /// The model is ready, until unloaded.
    pub fn model_loaded(mut self, model: LoadedModel) {
        if self.entry.weights.is_none() {
            self.models.find_first(&model.model.id);
        }
        self.models.counts_load(&self.entry);
        let serving = self.ready_model(Arc::clone(&model.model));
        let serving = self.entry.set_loaded(model, serving);
        self.can_answer(&serving);
    }

    /// Loading failed.
    pub fn load_failed(mut self) {
        self.told = true;
        self.models.loading_failed(&self.entry);
    }

    /// No engine of another process computes for the model.
    pub fn no_engine(mut self, why: String) {
        self.told = true;
        self.models
            .loading_ended(&self.entry, ModelState::NoEngine(why.into()));
    }

    fn ready_model(&self, model: Arc<ServedModel>) -> ReadyModel {
        let serving = ReadyModel::new(model, &self.models.gateway_limits());
        self.set_hold(&serving);
        serving
    }

    fn set_hold(&self, serving: &ReadyModel) {
        let is_on_hold = self.models.is_held(&self.entry);
        serving.admission.set_hold(is_on_hold);
    }

    fn can_answer(&mut self, serving: &ReadyModel) {
        self.told = true;
        // The hold may have ended before the model was published.
        self.set_hold(serving);
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
