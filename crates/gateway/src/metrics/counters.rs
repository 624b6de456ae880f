//! Counts in atomic words: plain ones, by label, and those of the recovery after a restart.

use super::histogram::{Latency, Sizes};
use engine::{Observer, RequestId, StepFacts, Transition};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::clock;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of something there are now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one.
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Up to `N` labels, each with a value, and one more value for all further labels.
///
/// A label takes the first free slot and keeps the slot: slots are filled from the front and never emptied. Two
/// threads with new labels meet at one slot, where one wins; the other compares that slot again, so that no label
/// appears twice.
#[derive(Debug)]
pub struct LabelTable<V, const N: usize> {
    slots: [LabelSlot<V>; N],
    beyond: V,
}

#[derive(Debug)]
struct LabelSlot<V> {
    label: OnceLock<Box<str>>,
    value: V,
}

/// Label of the value for labels without a slot.
pub const BEYOND: &str = "other";

impl<V, const N: usize> LabelTable<V, N> {
    /// The value of a label. The first use of a label allocates; others do not.
    pub fn value_of(&self, label: &str) -> &V {
        for slot in &self.slots {
            let taken = slot.label.get_or_init(|| Box::from(label));
            if **taken == *label {
                return &slot.value;
            }
        }
        &self.beyond
    }

    /// All labels in use, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let named = self
            .slots
            .iter()
            .map_while(|slot| Some((&**slot.label.get()?, &slot.value)));
        named.chain([(BEYOND, &self.beyond)])
    }
}

impl<V: Default, const N: usize> Default for LabelTable<V, N> {
    fn default() -> Self {
        Self {
            slots: std::array::from_fn(|_| LabelSlot {
                label: OnceLock::new(),
                value: V::default(),
            }),
            beyond: V::default(),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::counters::Counter;

    #[test]
    fn labels_keep_their_slots_within_the_bound() {
        let table = LabelTable::<Counter, 2>::default();
        for label in ["a", "b", "a", "c", "d", "b", "a"] {
            table.value_of(label).add(1);
        }
        let told: Vec<_> = table.iter().map(|(l, v)| (l, v.get())).collect();
        assert_eq!(told, [("a", 3), ("b", 2), (BEYOND, 2)]);
    }

    #[test]
    fn threads_with_equal_labels_share_slots() {
        let table = LabelTable::<Counter, 8>::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for i in 0..800 {
                        let label = (i + thread) % 8;
                        table.value_of(&label.to_string()).add(1);
                    }
                });
            }
        });
        let mut told: Vec<_> = table.iter().map(|(l, v)| (l.to_owned(), v.get())).collect();
        told.sort();
        let mut want: Vec<_> = (0..8).map(|i| (i.to_string(), 400)).collect();
        want.push((BEYOND.to_owned(), 0));
        assert_eq!(told, want);
    }
}
