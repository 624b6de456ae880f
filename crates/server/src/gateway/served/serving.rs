//! A model that is ready, behind its own admission.

use super::ServedModel;
use crate::gateway::admission::{Admission, Bounds, Sizing};
use crate::gateway::limits::GatewayLimits;
use crate::wire::clock;
use generate::constraint::mask_worker::Masks;
use std::sync::{Arc, OnceLock};
use text::{DelimiterSet, GrammarCompiler};

/// A model that is ready, with what depends on its sizes.
pub(crate) struct Serving {
    pub(crate) model: Arc<ServedModel>,
    pub(crate) admission: Admission,
    /// Compiles the forms its answers are asked to have.
    pub(crate) grammars: Arc<GrammarCompiler>,
    pub(crate) masks: Arc<Masks>,
    /// What opens calls in its answers, once that was asked for.
    openings: OnceLock<Option<Arc<DelimiterSet>>>,
    /// What closes its thoughts, likewise.
    closings: OnceLock<Option<Arc<DelimiterSet>>>,
}

impl Serving {
    /// Nobody was let in yet.
    pub(crate) fn new(model: Arc<ServedModel>, limits: &GatewayLimits) -> Self {
        let admission = Admission::new(bounds(&model, limits));
        let grammars = GrammarCompiler::new(Arc::clone(&model.handle.tokenizer), &model.handle.eos);
        Self {
            model,
            admission,
            grammars: Arc::new(grammars),
            masks: Arc::default(),
            openings: OnceLock::new(),
            closings: OnceLock::new(),
        }
    }

    /// What opens calls in its answers. The first time it takes a walk through the vocabulary.
    pub(crate) fn openings(&self) -> Option<Arc<DelimiterSet>> {
        let (answers, tokenizer) = (self.model.handle.answers, &self.model.handle.tokenizer);
        let find = || DelimiterSet::call_openings(answers, tokenizer).map(Arc::new);
        self.openings.get_or_init(find).clone()
    }

    /// What closes its thoughts. The first time it takes a walk through the vocabulary.
    pub(crate) fn closings(&self) -> Option<Arc<DelimiterSet>> {
        let (answers, tokenizer) = (self.model.handle.answers, &self.model.handle.tokenizer);
        let find = || DelimiterSet::reasoning_closings(answers, tokenizer).map(Arc::new);
        self.closings.get_or_init(find).clone()
    }

    /// Turns lengths into needs, as things stand.
    pub(crate) fn sizing(&self, limits: &GatewayLimits) -> Sizing {
        sizing(&self.model, limits)
    }

    /// Other bounds for who comes, and for who is there already.
    pub(crate) fn rebound(&self, limits: &GatewayLimits) {
        self.admission.rebound(bounds(&self.model, limits));
    }

    /// Lets nobody in any more, and has what runs end within the configured time.
    pub(crate) fn close(&self, limits: &GatewayLimits) {
        self.admission.close();
        self.model
            .handle
            .engine
            .shutdown(clock::now() + limits.drain);
    }
}

fn sizing(model: &ServedModel, limits: &GatewayLimits) -> Sizing {
    let dims = model.handle.engine.dims();
    Sizing {
        page_tokens: dims.page_tokens,
        pages: dims.pages,
        context_max: model.handle.context_max,
        reservation: limits.reservation,
    }
}

fn bounds(model: &ServedModel, limits: &GatewayLimits) -> Bounds {
    Bounds {
        adaptive: limits.adaptive_limits,
        queue: limits.queue,
        open_max: limits.open_requests_max,
        seats: model.handle.engine.sequences_max(),
        pages_limit: sizing(model, limits).pages_limit(),
        retry_after: limits.retry_after,
    }
}
