//! Models whose new requests wait until the recovered streams of the model are submitted.
//!
//! A model becomes ready on one thread while the hold ends on another. The hold is read before the model is published and
//! again afterwards, and is removed before the published model is looked up: so one of the two sides sees the other.

use super::{ModelEntry, ModelRegistry};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Source of a model's weights; `None`: the model that the server was started with.
type WeightsKey = Option<String>;

/// Which models are on hold; at first none.
#[derive(Debug, Default)]
pub(crate) struct AdmissionHolds(Mutex<HeldModels>);

#[derive(Debug, Default)]
enum HeldModels {
    #[default]
    None,
    /// Recovered streams are not known yet.
    All,
    /// Models with recovered streams.
    Some(HashSet<WeightsKey>),
}

impl AdmissionHolds {
    fn contains(&self, entry: &ModelEntry) -> bool {
        match &*self.lock_models() {
            HeldModels::None => false,
            HeldModels::All => true,
            HeldModels::Some(models) => models.contains(&entry.weights),
        }
    }

    fn lock_models(&self) -> MutexGuard<'_, HeldModels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelRegistry {
    /// Puts every model on hold. To be called before the first model is ready.
    pub(crate) fn hold_all_models(&self) {
        *self.holds.lock_models() = HeldModels::All;
    }

    /// Ends the hold of all other models.
    pub(crate) fn hold_only(&self, models: impl IntoIterator<Item = WeightsKey>) {
        *self.holds.lock_models() = HeldModels::Some(models.into_iter().collect());
        for (entry, serving) in self.ready_models() {
            serving.admission.set_hold(self.is_held(&entry));
        }
    }

    /// Ends the hold of one model.
    pub(crate) fn release_hold(&self, entry: &ModelEntry) {
        if let HeldModels::Some(models) = &mut *self.holds.lock_models() {
            models.remove(&entry.weights);
        }
        if let Some(serving) = entry.ready_model() {
            serving.admission.set_hold(false);
        }
    }

    /// Whether new requests of a model wait.
    pub(crate) fn is_held(&self, entry: &ModelEntry) -> bool {
        self.holds.contains(entry)
    }
}
