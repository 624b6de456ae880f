//! Metrics of the engine's steps, recorded by the engine.

use super::histogram::{Latency, Sizes};
use engine::{Observer, RequestId, StepFacts, Transition};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Histograms of the steps in which the model ran. The engine gets an [`Observer`] (see [`StepMetrics::observer`]),
/// the [`ServedModel`](crate::models::ServedModel) the metrics.
#[derive(Debug, Default)]
pub struct StepMetrics {
    /// Duration of a step.
    pub time: Latency,
    /// Rows of prompts in the steps that had some.
    pub prefill_rows: Sizes,
    /// Sequences that had rows.
    pub batch: Sizes,
}

impl StepMetrics {
    /// The observer for [`engine::Engine::observe`], to be set before the engine is spawned. A step costs six
    /// additions.
    pub fn observer(self: &Arc<Self>) -> Box<dyn Observer> {
        Box::new(StepObserver(Arc::clone(self)))
    }
}

struct StepObserver(Arc<StepMetrics>);

impl Observer for StepObserver {
    /// The engine counts transitions.
    fn transition(&mut self, _: RequestId, _: Transition, _: Instant) {}

    fn step(&mut self, facts: &StepFacts) {
        let steps = &self.0;
        steps.time.record(Duration::from_nanos(facts.duration_ns));
        steps.batch.record(facts.batch);
        if facts.rows_prefill > 0 {
            steps.prefill_rows.record(facts.rows_prefill);
        }
    }
}
