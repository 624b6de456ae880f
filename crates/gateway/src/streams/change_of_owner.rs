//! Streams that change their owner.
//!
//! Where the work ends because another gateway continues the stream, readers get no end, but a closed connection, and go on
//! elsewhere with their position.
//!
//! The next owner has the stored tokens, and clients may have more. Where the engines compute these tokens again bit for bit, a
//! client that is ahead waits for them; otherwise the stream ends after the stored tokens with [`stream::End::Lost`], and such a
//! client gets an error with the position after which there is nothing else. So each client has one text.

use super::DurableStream;
use super::stream_record::{Started, StreamRecord, StreamStage, moved_error};
use crate::records::{ControlState, end_name};
use generate::error::{ApiError, ErrorKind};
use generate::output::generation_reader::is_good;
use generate::output::position::Position;
use generate::stream_source::{ChoiceLog, StartedGeneration};
use std::sync::atomic::{AtomicUsize, Ordering};
use stream::End;
use wire::clock;
use wire::cursor::{Cursor, EventIds, TerminalMarker};

/// The error for a client that has more of an ended stream than was stored when its owner died.
pub fn lost_error(resume_after: String) -> ApiError {
    let message = format!(
        "the stream was taken over from a gateway that had sent tokens which were not stored, and ended after \
         {resume_after:?}: read the end after this position"
    );
    ApiError {
        resume_after: Some(resume_after),
        ..ApiError::caller(ErrorKind::Conflict, "stream_lost", message)
    }
}

impl StreamRecord {
    /// Whether the stream continues at another gateway.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Whether a client may have more than this process, which computes the rest again.
    pub fn may_be_behind(&self) -> bool {
        self.is_taken_over() && !self.is_over()
    }

    /// Whether a client has more than this process has computed by now.
    pub fn is_behind(&self, positions: &[Position]) -> bool {
        self.is_taken_over() && self.has_reached(positions) == Some(false)
    }

    /// Steps of a choice before the end, where the choice was taken over and has not ended as its last owner would have
    /// ended it: a client with more has text that is not here.
    pub fn lost_after(&self, choice: usize) -> Option<u64> {
        let started = self.started().filter(|_| self.is_taken_over())?;
        let log = started.choices.get(choice)?;
        let has_lost = log.tokens.end().is_some_and(|end| !is_good(end));
        has_lost.then(|| u64::from(log.echo_text.is_some()) + log.tokens.len())
    }

    /// The error for a client that has more than there is of a stream that was taken over.
    ///
    /// # Errors
    /// A choice has ended before the client's position.
    pub fn expect_no_loss(&self, cursor: &Cursor) -> Result<(), ApiError> {
        // Output that the pipeline held back is a step before the first terminal frame.
        let held_back = u64::from(cursor.terminal != TerminalMarker::None);
        let places = cursor.positions.iter().enumerate();
        let places = places.map(|(choice, &position)| match self.lost_after(choice) {
            Some(end) if position.begun() > end + held_back => Position::whole(end),
            _ => position,
        });
        let places: Vec<_> = places.collect();
        if places == cursor.positions {
            return Ok(());
        }
        let place = EventIds::new(self.id(), places);
        let place = place.cursor_text(TerminalMarker::None, true);
        Err(lost_error(place.to_string()))
    }

    /// Another gateway owns the stream: the work ends, and nothing further is told.
    pub(crate) fn fence(&self) {
        self.has_left.store(true, Ordering::Release);
        if let Some(durable) = self.durable() {
            durable.give_up();
        }
        self.stop_moved();
    }

    /// The work ends here, and readers and webhooks get no end.
    pub(crate) fn withdraw(&self) {
        self.has_left.store(true, Ordering::Release);
        self.cancel();
    }

    /// The work ends here, and the journal keeps the stream as it is, for the next owner. False: the stream cannot continue.
    pub(crate) fn begin_move(&self) -> bool {
        let Some(durable) = self.durable().filter(|durable| durable.is_recorded()) else {
            return false;
        };
        durable.leave();
        self.stop_moved();
        true
    }

    /// Whether everything that was computed is in the journal, after [`Self::begin_move`].
    pub(crate) fn is_at_rest(&self) -> bool {
        let durable = self.durable();
        self.started().is_none() || durable.is_none_or(DurableStream::is_at_rest)
    }

    /// Closes the readers' connections.
    pub(crate) fn finish_move(&self) {
        self.has_left.store(true, Ordering::Release);
        if let Some(durable) = self.durable() {
            durable.show_all();
        }
    }

    fn stop_moved(&self) {
        self.transitions.leave();
        self.cancel();
        // Without effect after the start.
        self.set_rejected(moved_error());
    }
}

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
        self.control_history
            .restore_updates(history, now, clock::unix_us());
        self.steering().restore(control);
        self.paused.store(is_paused, Ordering::Relaxed);
    }

    /// Publishes that this process continues the stream of an earlier process, or of another gateway.
    pub(crate) fn publish_recovered(&self) {
        let is_taken_over = self.is_taken_over();
        self.transitions
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
            self.transitions
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
            self.transitions.publish_ended(how, detail, clock::now());
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
