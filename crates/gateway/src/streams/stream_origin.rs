//! Streams that this process did not open: where their tokens come from, and the state that was recovered with them.

use super::stream_record::{Started, StreamRecord};
use crate::records::{ControlState, end_name};
use generate::error::ApiError;
use generate::output::generation_reader::is_good;
use generate::stream_source::{ChoiceLog, StartedGeneration};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stream::End;
use wire::clock;

/// How a stream of an earlier process came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecoveryNote {
    /// Processes that took the stream over.
    pub(crate) recoveries: u64,
    /// Whether a client had paused the stream.
    pub(crate) is_paused: bool,
    /// Whether another gateway owned the stream: clients may have more than was stored of it.
    pub(crate) is_claimed: bool,
    /// Whether it is to be found out if another gateway owns the stream by now.
    pub(crate) is_undecided: bool,
}

/// Whether a stream came back after a restart. Readers are counted while the stream waits for the start.
#[derive(Debug, Default)]
pub(crate) struct RecoveryState {
    note: OnceLock<RecoveryNote>,
    is_recomputed: AtomicBool,
    is_moved: AtomicBool,
    waiting_readers: AtomicUsize,
}

/// A reader that waits for the start; the drop ends the wait.
pub(crate) struct WaitingReader<'a>(&'a AtomicUsize);

impl RecoveryState {
    /// An earlier process opened the stream. The first note counts.
    pub(crate) fn set_note(&self, note: RecoveryNote) {
        let _ = self.note.set(note);
    }

    /// How the stream came back; `None` for a stream of this process.
    pub(crate) fn note(&self) -> Option<RecoveryNote> {
        self.note.get().copied()
    }

    /// Processes that took the stream over.
    pub(crate) fn recoveries(&self) -> u64 {
        self.note().map_or(0, |note| note.recoveries)
    }

    /// Another arithmetic computes the continuation than the answered tokens.
    pub(crate) fn set_recomputed(&self) {
        self.is_recomputed.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::set_recomputed`] was called.
    pub(crate) fn is_recomputed(&self) -> bool {
        self.is_recomputed.load(Ordering::Relaxed)
    }

    /// The stream continues at another gateway.
    pub(crate) fn set_moved(&self) {
        self.is_moved.store(true, Ordering::Release);
    }

    /// Whether [`Self::set_moved`] was called.
    pub(crate) fn is_moved(&self) -> bool {
        self.is_moved.load(Ordering::Acquire)
    }

    /// Counts a reader that begins to wait.
    pub(crate) fn count_reader(&self) -> WaitingReader<'_> {
        self.waiting_readers.fetch_add(1, Ordering::Relaxed);
        WaitingReader(&self.waiting_readers)
    }

    /// Whether a reader waits.
    pub(crate) fn has_waiting_reader(&self) -> bool {
        self.waiting_readers.load(Ordering::Relaxed) > 0
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamRecord {
    /// The control updates and the pause of an earlier process. To be called before the stream is started.
    pub(crate) fn restore_control(&self, control: &ControlState) {
        let now = clock::now();
        let history = (control.count, control.history.clone());
        self.control_history()
            .restore_updates(history, now, clock::unix_us());
        self.steering().restore(control);
        let note = self.recovery_state().note();
        let is_paused = note.is_some_and(|note| note.is_paused);
        self.paused.store(is_paused, Ordering::Relaxed);
    }

    /// This process owns the stream, which was undecided ([`super::RecoveryNote::is_undecided`]).
    pub(crate) fn note_owned(&self) {
        self.transitions().publish_restored(false, clock::now());
    }

    /// The stream never starts, as an earlier process has decided, or because this process cannot: without a record.
    pub(crate) fn restore_rejection(&self, error: ApiError) {
        let code = error.code;
        if self.source().settle(Err(error)) {
            self.transitions()
                .publish_ended("refused", Some(code), clock::now());
            self.settle_stage();
        }
    }

    /// Publishes the end of a stream that no engine request will end. The first bad end of a choice is the stream's.
    pub(crate) fn publish_written_end(&self) {
        let written = |log: &ChoiceLog| match &log.gate {
            Some(gate) => gate.written_end(),
            None => log.tokens.end(),
        };
        let ends = self.started().into_iter().flat_map(|s| &s.choices);
        let ends: Vec<End> = ends.filter_map(written).collect();
        let bad = ends.iter().find(|end| !is_good(**end));
        if let Some(end) = bad.or(ends.first()) {
            let (how, detail) = end_name(*end);
            self.transitions().publish_ended(how, detail, clock::now());
        }
    }
}

impl Started {
    /// A generation that is no run of a program.
    pub(crate) fn of_generation(generation: StartedGeneration) -> Self {
        Self {
            generation,
            program: None,
        }
    }
}
