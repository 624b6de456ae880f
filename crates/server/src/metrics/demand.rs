//! Demand of this process: the counters of generations and engines, read at an interval for the forecast.

use super::MetricsSources;
use crate::config::live_config::LiveConfig;
use cluster::forecast::{CounterReading, DemandForecast, ScaleAdvice, ScaleTarget};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::sleep;
use wire::clock;

/// The forecast of this process's demand.
#[derive(Debug)]
pub(crate) struct DemandMeter {
    forecast: Mutex<DemandForecast>,
}

impl Default for DemandMeter {
    fn default() -> Self {
        Self {
            forecast: Mutex::new(DemandForecast::new(ScaleTarget::default())),
        }
    }
}

impl DemandMeter {
    /// Result of the readings so far.
    pub(super) fn advice(&self) -> ScaleAdvice {
        self.lock().advice(unix_s())
    }

    fn observe(&self, reading: &CounterReading, target: ScaleTarget) {
        let mut forecast = self.lock();
        forecast.set_target(target);
        forecast.observe(reading, unix_s());
    }

    fn lock(&self) -> MutexGuard<'_, DemandForecast> {
        self.forecast.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the counters each `demand_interval`.
pub(crate) async fn watch_demand(sources: MetricsSources, config: Arc<LiveConfig>) {
    loop {
        let now = config.now();
        sources.demand.observe(&read_counters(&sources), now.scale);
        sleep(now.demand_interval).await;
    }
}

/// Counters of all loaded models. A model that is unloaded takes its counters along, which the forecast notices.
fn read_counters(sources: &MetricsSources) -> CounterReading {
    let generations = &sources.metrics.generations;
    let mut reading = CounterReading {
        arrivals: generations.requests.get(),
        admitted: generations.admission_wait.distribution().sample_count(),
        ..CounterReading::default()
    };
    for (_, serving) in sources.models.ready_models() {
        let (stats, admission) = (
            serving.model.handle.engine.stats(),
            serving.admission.snapshot(),
        );
        reading.prefill_tokens += stats.prompt_tokens_computed();
        reading.generated_tokens += stats.tokens_generated();
        reading.steps += stats.steps();
        reading.step_ns += stats.step_ns_total();
        reading.waiting += admission.waiting as u64;
        reading.slots = reading.slots.max(admission.limit as u64);
    }
    reading
}

fn unix_s() -> f64 {
    clock::unix_us() as f64 / 1e6
}
