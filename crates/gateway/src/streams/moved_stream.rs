//! Streams whose work here ends because they continue at another gateway: their readers get no end, but a closed
//! connection, and go on elsewhere with their position.

use super::stream_record::StreamRecord;
use crate::durability::DurableStream;
use generate::error::ApiError;
use generate::output::position::Position;
use std::time::Duration;

/// Code of the error for a request whose stream continues at another gateway.
pub const STREAM_MOVED: &str = "stream_moved";
/// `Retry-After` of that error.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error for a request whose stream continues at another gateway.
pub fn moved_error() -> ApiError {
    let message = "the stream continues at another gateway: read it again by its id";
    ApiError::capacity(STREAM_MOVED, message, RETRY_AFTER)
}

/// The error of a stream whose request was dropped before the start.
pub(super) fn never_started_error() -> ApiError {
    let message = "the request was lost before it started, since its model or the server went away; nothing was computed: send \
                   the request again";
    ApiError::ours("lost", message)
}

impl StreamRecord {
    /// Whether the stream continues at another gateway.
    pub fn is_moved(&self) -> bool {
        self.recovery_state().is_moved()
    }

    /// Whether a client may have more than this process, which an owner that is gone has sent: the stream goes on, and was
    /// taken over from records.
    pub fn may_be_behind(&self) -> bool {
        let note = self.recovery_state().note();
        note.is_some_and(|note| note.may_be_behind) && !self.is_over()
    }

    /// Whether a client has more than this process by now, which an owner that is gone has sent.
    pub fn is_behind(&self, positions: &[Position]) -> bool {
        let note = self.recovery_state().note();
        note.is_some_and(|note| note.may_be_behind) && self.has_reached(positions) == Some(false)
    }

    /// Another gateway owns the stream: the work ends, and nothing further is told.
    pub(crate) fn fence(&self) {
        self.recovery_state().set_moved();
        if let Some(durable) = self.durable() {
            durable.give_up();
        }
        self.stop_moved();
    }

    /// The work ends here, and readers and webhooks get no end.
    pub(crate) fn withdraw(&self) {
        self.recovery_state().set_moved();
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
        self.recovery_state().set_moved();
        if let Some(durable) = self.durable() {
            durable.show_all();
        }
    }

    fn stop_moved(&self) {
        self.transitions().leave();
        self.leave();
        // Without effect after the start.
        self.set_rejected(moved_error());
    }
}
