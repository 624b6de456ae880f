//! Outcomes of exports: every export is counted, and a change of the outcome is logged.

use super::post::Problem;
use crate::metrics::Metrics;
use std::sync::Arc;

/// Counts every export, and logs the first failure and the first success after it.
pub(super) struct Journal {
    metrics: Arc<Metrics>,
    to: String,
    /// Whether the last export succeeded; `None` before the first.
    taken: Option<bool>,
}

impl Journal {
    pub(super) fn new(metrics: Arc<Metrics>, to: String) -> Self {
        Self {
            metrics,
            to,
            taken: None,
        }
    }

    pub(super) fn note(&mut self, told: Result<(), Problem>) {
        let taken = told.is_ok();
        self.metrics.exported(taken);
        if self.taken.replace(taken) == Some(taken) {
            return;
        }
        let to = &self.to;
        match told {
            Ok(()) => tracing::info!("the collector at {to} accepts metrics"),
            Err(why) => tracing::warn!("the collector at {to} does not accept metrics: {why}"),
        }
    }
}
