//! Detects a journal that makes no progress: a write that stalls, or a thread that is gone.
//!
//! Streams do not wait for such a journal: readers see everything at once, and streams that begin are not durable until
//! the thread makes progress again.

use super::journal_state::lock;
use super::stream_journal::{JournalSlot, StreamJournal};
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
