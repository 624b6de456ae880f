//! A ready model, and admission to the model's engine.

use super::ServedModel;
use crate::limits::GatewayLimits;
use admission::{Admission, AdmissionBounds, ResourceEstimator};
use generate::constraint::compiler::ConstraintCompiler;
use std::sync::Arc;
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
