//! Streams that this process did not open: where their tokens come from, and the state that was recovered with them.

use super::stream_record::{Started, StreamRecord, StreamStage};
use crate::records::{ControlState, end_name};
use generate::error::ApiError;
use generate::output::generation_reader::is_good;
use generate::stream_source::{ChoiceLog, StartedGeneration};
use std::sync::atomic::{AtomicUsize, Ordering};
use stream::End;
use wire::clock;

/// Where the tokens of a stream come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOrigin {
    /// A request that this process has received.
    Request,
    /// The journal of this machine: an earlier process has shown no tokens that are not in it.
    Journal,
    /// The records of another gateway that is gone: clients may have more than was stored.
    OtherGateway,
}

/// A reader that waits for the start; the drop ends the wait.
pub(crate) struct WaitingReader<'a>(&'a AtomicUsize);

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamRecord {
    /// The control updates and the pause of an earlier process. To be called before the stream is started.
    pub(crate) fn restore_control(&self, control: &ControlState, is_paused: bool) {
        let now = clock::now();
        let history = (control.count, control.history.clone());
        self.control_history()
            .restore_updates(history, now, clock::unix_us());
        self.steering().restore(control);
        self.paused.store(is_paused, Ordering::Relaxed);
    }

    /// Publishes that this process continues the stream of an earlier process, or of another gateway.
    pub(crate) fn publish_recovered(&self) {
        let is_taken_over = self.is_taken_over();
        self.transitions()
            .publish_recovered(is_taken_over, clock::now());
    }

    /// Whether another process opened the stream: a client may have more than this process has shown so far.
    pub fn is_recovered(&self) -> bool {
        self.origin != StreamOrigin::Request
    }

    /// Whether the stream was taken over from a gateway that is gone, which may have sent more than was stored.
    pub fn is_taken_over(&self) -> bool {
        self.origin == StreamOrigin::OtherGateway
    }

    /// Another arithmetic computes the continuation than the answered tokens.
    pub(crate) fn set_recomputed(&self) {
        self.is_recomputed.store(true, Ordering::Relaxed);
    }

    /// Counts a reader that waits for the start.
    pub(super) fn count_reader(&self) -> WaitingReader<'_> {
        self.waiting_readers.fetch_add(1, Ordering::Relaxed);
        WaitingReader(&self.waiting_readers)
    }

    /// Whether a reader waits for the start.
    pub(crate) fn has_waiting_reader(&self) -> bool {
        self.waiting_readers.load(Ordering::Relaxed) > 0
    }

    /// The stream never starts, as an earlier process has decided, or because this process cannot: without a record.
    pub(crate) fn restore_rejection(&self, error: ApiError) {
        let code = error.code;
        if self.source().settle(Err(error)) {
            self.transitions()
                .publish_ended("refused", Some(code), clock::now());
            self.stage.send_replace(StreamStage::Settled);
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
