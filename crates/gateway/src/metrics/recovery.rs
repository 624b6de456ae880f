//! Metrics of the recovery after a restart.

use super::count::Counter;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::clock;

/// Outcomes of the streams of earlier processes.
#[derive(Debug, Default)]
pub struct RecoveryMetrics {
    begun: OnceLock<Instant>,
    submitted_us: AtomicU64,
    /// Streams by the name of their outcome.
    outcomes: [Counter; RecoveryOutcome::ALL.len()],
    /// Tokens of recovered streams.
    pub tokens: Counter,
}

/// Outcome of a recovered stream when it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryOutcome {
    /// Computed on, or in the queue again.
    Open,
    /// Readable, without further tokens.
    Ended,
    /// Readers get an error.
    Rejected,
    /// The retention was over.
    Expired,
    /// Written by another version.
    Unreadable,
}

impl RecoveryOutcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [
        Self::Open,
        Self::Ended,
        Self::Rejected,
        Self::Expired,
        Self::Unreadable,
    ];

    /// The label's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "continued",
            Self::Ended => "ended",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Unreadable => "unreadable",
        }
    }
}

impl RecoveryMetrics {
    /// The reading of the journal began at `at`.
    pub(crate) fn set_begun(&self, at: Instant) {
        let _ = self.begun.set(at);
    }

    /// Counts streams with this outcome.
    pub(crate) fn count_streams(&self, outcome: RecoveryOutcome, streams: u64) {
        self.outcomes[outcome as usize].add(streams);
    }

    /// Every recovered stream was submitted.
    pub(crate) fn note_submitted(&self) {
        if let Some(begun) = self.begun.get() {
            let took = clock::now().saturating_duration_since(*begun);
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.submitted_us.store(took_us.max(1), Ordering::Relaxed);
        }
    }

    /// Time from the reading of the journal to the last submission; zero before.
    pub fn duration(&self) -> Duration {
        Duration::from_micros(self.submitted_us.load(Ordering::Relaxed))
    }

    /// Streams with this outcome.
    pub fn streams(&self, outcome: RecoveryOutcome) -> u64 {
        self.outcomes[outcome as usize].get()
    }
}
