//! Whether the journal works: a watchdog, metrics, and lines of the log.
//!
//! The watchdog detects a journal that makes no progress: a write that stalls, or a thread that is gone. Streams do not
//! wait for such a journal: readers see everything at once, and streams that begin are not durable until the thread makes
//! progress again.

use super::stream_journal::{JournalSlot, StreamJournal, lock};
use journal::{Durability, FileSystem, Impairment, Writer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use wire::clock;

/// Time between two checks.
const PERIOD: Duration = Duration::from_millis(250);

/// Time without progress after which the gates are opened.
const STALL_MAX: Duration = Duration::from_secs(2);

/// The last progress of the recorder.
#[derive(Default)]
pub(crate) struct Watchdog {
    last: Option<(u64, Instant)>,
}

/// Watches the journal, from the time at which there is one. To be run as a task.
pub async fn watch_journal(slot: Arc<JournalSlot>) {
    let mut watchdog = Watchdog::default();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(journal) = slot.get() {
            watchdog.check_progress(journal, clock::now());
        }
    }
}

impl StreamJournal {
    fn is_running(&self) -> bool {
        let thread = lock(&self.thread);
        thread
            .as_ref()
            .is_some_and(journal::JournalThread::is_running)
    }

    /// Gives the recording of all present streams up.
    fn open_all_gates(&self) {
        for slot in self.state.live_slots() {
            slot.open_gates();
            slot.note_change();
        }
    }

    /// Returns the memory of streams that have ended while the thread stalls.
    fn drop_released_logs(&self) {
        if let Ok(mut table) = self.state.table.try_lock() {
            table.drop_released_logs();
        }
    }
}

impl Watchdog {
    /// Compares the recorder's progress with that of the last check.
    pub(crate) fn check_progress(&mut self, journal: &StreamJournal, now: Instant) {
        let state = &journal.state;
        if state.is(|state| &state.is_stopped) {
            return;
        }
        let beats = state.beats.load(Ordering::Acquire);
        let is_waiting = state.is(|state| &state.is_busy) || state.has_news();
        let before = self.last.filter(|(last, _)| is_waiting && *last == beats);
        let (_, since) = *self.last.insert(before.unwrap_or((beats, now)));
        let is_stalled = now.saturating_duration_since(since) >= STALL_MAX || !journal.is_running();
        let was_stalled = state.is_stalled.swap(is_stalled, Ordering::AcqRel);
        if is_stalled {
            journal.drop_released_logs();
        }
        if is_stalled && !was_stalled {
            tracing::error!("the journal makes no progress: streams are not durable");
            journal.open_all_gates();
        } else if was_stalled && !is_stalled {
            tracing::warn!("the journal makes progress again: new streams are durable");
        }
    }
}

/// Counts and sizes of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalGauges {
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Writes, syncs and removals that failed.
    pub errors: u64,
    /// Streams that were rewritten.
    pub rewritten_streams: u64,
    /// Segments on the disk.
    pub segments: u64,
    /// Bytes of live streams' records.
    pub live_bytes: u64,
    /// Live streams.
    pub streams: u64,
    /// Whether records reach the disk.
    pub is_durable: bool,
    /// Why not.
    pub impairment: Option<Impairment>,
    /// Tokens that are generated and not shown yet.
    pub behind_tokens: u64,
}

impl JournalGauges {
    pub(crate) fn of_writer<F: FileSystem>(writer: &Writer<F>) -> Self {
        let (counts, sizes) = (writer.counts(), writer.sizes());
        Self {
            written_bytes: counts.written_bytes,
            syncs: counts.syncs,
            errors: counts.errors,
            rewritten_streams: counts.rewritten_streams,
            segments: sizes.segments as u64,
            live_bytes: sizes.live_bytes,
            streams: sizes.streams as u64,
            is_durable: writer.durability() == Durability::Durable,
            impairment: match writer.durability() {
                Durability::Durable => None,
                Durability::NotDurable(why) => Some(why),
            },
            behind_tokens: 0,
        }
    }
}

/// What the log says so far.
#[derive(Debug, Default)]
pub(crate) struct DurabilityLog {
    is_lost: bool,
}

/// A line that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueLine {
    Lost(journal::Impairment),
    Back,
}

impl DurabilityLog {
    /// Logs a change of the durability; `gaps` streams have missing records.
    pub(crate) fn note(&mut self, durability: Durability, gaps: usize) {
        match self.due_line(durability, gaps) {
            Some(DueLine::Lost(why)) => tracing::error!(
                "the journal is not durable: {why}; streams continue, and are lost if the process ends"
            ),
            Some(DueLine::Back) => {
                tracing::warn!("the journal is durable again, with all streams");
            }
            None => {}
        }
    }

    /// Durability is back when the disk has all streams again: a single write that succeeds says little, and each attempt
    /// would be a line.
    fn due_line(&mut self, durability: Durability, gaps: usize) -> Option<DueLine> {
        match (durability, self.is_lost) {
            (Durability::NotDurable(why), false) => {
                self.is_lost = true;
                Some(DueLine::Lost(why))
            }
            (Durability::Durable, true) if gaps == 0 => {
                self.is_lost = false;
                Some(DueLine::Back)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::Impairment;

    #[test]
    fn each_loss_of_durability_has_two_lines() {
        let full = Durability::NotDurable(Impairment::DiskFull);
        let slow = Durability::NotDurable(Impairment::SyncSlow);
        let lost = Some(DueLine::Lost(Impairment::DiskFull));
        let mut log = DurabilityLog::default();
        let steps = [
            (Durability::Durable, 0, None),
            (full, 1, lost),
            (full, 2, None),
            // An attempt: the streams are not whole yet.
            (Durability::Durable, 2, None),
            (slow, 2, None),
            (Durability::Durable, 0, Some(DueLine::Back)),
            (Durability::Durable, 0, None),
            (full, 0, lost),
        ];
        for (step, (durability, gaps, line)) in steps.into_iter().enumerate() {
            assert_eq!(log.due_line(durability, gaps), line, "step {step}");
        }
    }
}
