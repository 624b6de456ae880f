//! What became of the messages: each is counted, a change is logged.

use super::post::Problem;
use crate::metrics::Metrics;
use std::sync::Arc;

/// Counts every message, and says so once when they begin or cease to be taken.
pub(super) struct Journal {
    metrics: Arc<Metrics>,
    to: String,
    /// Whether the last one was taken; `None` before the first.
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
