//! How far loading is, in counts of work that was done.

use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Bounds of `Retry-After` for a model that is loading.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Phase of loading a model.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadPhase {
    /// The header of the model file is read.
    #[default]
    Opening,
    /// The tokenizer and the chat template are created.
    Tokenizer,
    /// The weights are read and packed.
    Weights,
    /// Memory is reserved, and the engine is started.
    Starting,
}

impl LoadPhase {
    /// Name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Tokenizer => "tokenizer",
            Self::Weights => "weights",
            Self::Starting => "starting",
        }
    }
}

/// Progress of loading a model; a total of 0 is not known yet.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct LoadProgress {
    /// The current phase.
    pub phase: LoadPhase,
    /// Bytes of the tensors that are loaded.
    pub bytes_done: u64,
    /// Bytes of all tensors of the model.
    pub bytes_total: u64,
    /// Number of tensors that are loaded.
    pub tensors_done: u64,
    /// Number of all tensors of the model.
    pub tensors_total: u64,
}

impl LoadProgress {
    /// Percent by bytes, rounded down. 100 is reported for ready models only.
    pub fn percent(&self) -> u64 {
        let done = u128::from(self.bytes_done) * 100 / u128::from(self.bytes_total.max(1));
        u64::try_from(done).unwrap_or(u64::MAX).min(99)
    }

    /// For people.
    pub(crate) fn summary_text(&self) -> String {
        let (phase, percent) = (self.phase.name(), self.percent());
        format!(
            "{percent} %, {phase}, {} of {} tensors",
            self.tensors_done, self.tensors_total
        )
    }

    /// Remaining time at the speed of the time `passed`; `unknown` before the first bytes.
    pub(crate) fn time_left(&self, passed: Duration, unknown: Duration) -> Duration {
        let left = match self.bytes_done {
            0 => unknown,
            done => passed.mul_f64(self.bytes_total.saturating_sub(done) as f64 / done as f64),
        };
        left.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_progress_has_percent_and_time_left() {
        let at = |bytes_done, bytes_total| LoadProgress {
            bytes_done,
            bytes_total,
            ..LoadProgress::default()
        };
        let (passed, unknown) = (Duration::from_secs(10), Duration::from_secs(1));
        let rows = [
            ("nothing known", at(0, 0), 0, 1000),
            ("nothing done", at(0, 100), 0, 1000),
            ("a tenth: the most", at(1, 100), 1, 60_000),
            ("half", at(50, 100), 50, 10_000),
            ("nearly", at(100, 101), 99, 100),
            ("packed, not ready", at(100, 100), 99, 100),
            ("no overflow", at(u64::MAX, u64::MAX), 99, 100),
        ];
        for (label, progress, percent, left_ms) in rows {
            assert_eq!(progress.percent(), percent, "{label}");
            let left = progress.time_left(passed, unknown);
            assert_eq!(left.as_millis(), left_ms, "{label}");
        }
    }
}
