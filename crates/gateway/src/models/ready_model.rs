//! A ready model with admission to the model's engine, and models whose new requests wait until the recovered streams of the
//! model are submitted.
//!
//! A model becomes ready on one thread while the hold ends on another. The hold is read before the model is published and
//! again afterwards, and is removed before the published model is looked up: so one of the two sides sees the other.

use super::{ModelEntry, ModelRegistry, ServedModel};
use crate::limits::GatewayLimits;
use admission::{Admission, AdmissionBounds, ResourceEstimator};
use generate::constraint::compiler::ConstraintCompiler;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::clock;

/// A ready model, with the state that depends on the model's sizes.
pub struct ReadyModel {
    /// The loaded model.
    pub model: Arc<ServedModel>,
    /// Admission to the model's slots.
    pub admission: Admission,
    /// Compiles output constraints.
    pub(crate) constraints: Arc<ConstraintCompiler>,
}

impl ReadyModel {
    /// No request was admitted yet.
    pub(crate) fn new(model: Arc<ServedModel>, limits: &GatewayLimits) -> Self {
        let bounds = admission_bounds(&model, limits);
        let admission = Admission::to_engine(&model.handle.engine, bounds);
        let constraints = Arc::new(ConstraintCompiler::new(&model.handle));
        Self {
            model,
            admission,
            constraints,
        }
    }

    /// An estimator with the model's sizes.
    pub fn resource_estimator(&self, limits: &GatewayLimits) -> ResourceEstimator {
        resource_estimator(&self.model, limits)
    }

    /// Applies new bounds to waiting and new requests.
    pub(crate) fn set_limits(&self, limits: &GatewayLimits) {
        self.admission
            .set_bounds(admission_bounds(&self.model, limits));
    }

    /// Closes admission, and ends running requests within the drain time.
    pub(crate) fn close_admission(&self, limits: &GatewayLimits) {
        self.admission.close();
        self.model
            .handle
            .engine
            .shutdown(clock::now() + limits.drain);
    }
}

fn resource_estimator(model: &ServedModel, limits: &GatewayLimits) -> ResourceEstimator {
    let dims = model.handle.engine.dims();
    ResourceEstimator {
        page_tokens: dims.page_tokens,
        pages: dims.pages,
        context_max: model.handle.context_max,
        reservation: limits.reservation,
    }
}

fn admission_bounds(model: &ServedModel, limits: &GatewayLimits) -> AdmissionBounds {
    AdmissionBounds {
        adaptive: limits.adaptive_limits,
        queue: limits.queue,
        open_max: limits.open_requests_max,
        seats: model.handle.engine.sequences_max(),
        pages_limit: resource_estimator(model, limits).pages_limit(),
        retry_after: limits.retry_after,
    }
}

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
