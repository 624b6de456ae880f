//! Outcomes of exports: every export is counted, and a change of the outcome is logged.

use super::post::ExportError;
use crate::metrics::Metrics;
use std::sync::Arc;

/// Counts every export, and logs the first failure and the first success after it.
pub(super) struct ExportLog {
    metrics: Arc<Metrics>,
    to: String,
    /// Whether the last export succeeded; `None` before the first.
    accepted: Option<bool>,
}

impl ExportLog {
    pub(super) fn new(metrics: Arc<Metrics>, to: String) -> Self {
        Self {
            metrics,
            to,
            accepted: None,
        }
    }

    pub(super) fn record_outcome(&mut self, outcome: Result<(), ExportError>) {
        let accepted = outcome.is_ok();
        self.metrics.count_export(accepted);
        if self.accepted.replace(accepted) == Some(accepted) {
            return;
        }
        let to = &self.to;
        match outcome {
            Ok(()) => tracing::info!("the collector at {to} accepts metrics"),
            Err(why) => tracing::warn!("the collector at {to} does not accept metrics: {why}"),
        }
    }
}
