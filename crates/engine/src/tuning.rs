//! Settings that may change while the engine runs.

use crate::EngineConfig;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The part of [`EngineConfig`] that does not size any buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// As [`EngineConfig::ageing`].
    pub ageing: Duration,
    /// As [`EngineConfig::step_target`].
    pub step_target: Option<Duration>,
    /// As [`EngineConfig::slow_consumer`].
    pub slow_consumer: Duration,
}

impl From<&EngineConfig> for Tuning {
    fn from(config: &EngineConfig) -> Self {
        Self {
            ageing: config.ageing,
            step_target: config.step_target,
            slow_consumer: config.slow_consumer,
        }
    }
}

/// Settings that any thread writes and the engine thread reads at the head of each step. The values are read
/// one by one: a step may see one of them changed and another not yet, which is harmless.
#[derive(Debug)]
pub(crate) struct LiveTuning {
    ageing_ns: AtomicU64,
    /// `u64::MAX`: no target.
    step_target_ns: AtomicU64,
    slow_consumer_ns: AtomicU64,
}

impl LiveTuning {
    pub(crate) fn new(tuning: Tuning) -> Self {
        let live = Self {
            ageing_ns: AtomicU64::new(0),
            step_target_ns: AtomicU64::new(0),
            slow_consumer_ns: AtomicU64::new(0),
        };
        live.set(tuning);
        live
    }

    pub(crate) fn set(&self, tuning: Tuning) {
        let target = tuning.step_target.map_or(u64::MAX, nanos);
        self.ageing_ns
            .store(nanos(tuning.ageing), Ordering::Relaxed);
        self.step_target_ns.store(target, Ordering::Relaxed);
        self.slow_consumer_ns
            .store(nanos(tuning.slow_consumer), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Tuning {
        let read = |ns: &AtomicU64| ns.load(Ordering::Relaxed);
        let target = read(&self.step_target_ns);
        Tuning {
            ageing: Duration::from_nanos(read(&self.ageing_ns)),
            step_target: (target < u64::MAX).then(|| Duration::from_nanos(target)),
            slow_consumer: Duration::from_nanos(read(&self.slow_consumer_ns)),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1)
}
