//! Clients whose text may be another than the one that is told here.

use super::stream_record::StreamRecord;
use super::text_editions::{CursorText, TextEditions};
use engine::Transition;
use generate::error::{ApiError, ErrorKind};
use generate::output::position::Position;
use generate::stream_source::ChoiceLog;
use std::fmt;
use std::sync::{Arc, Weak};
use wire::cursor::{Cursor, TerminalMarker};
use wire::event_id::EventIds;

/// Code of the error for a client that may have another text.
pub const STREAM_DIVERGED: &str = "stream_diverged";

/// The text of a request, as the request's transitions decide on it.
pub(crate) struct FollowedText {
    editions: Arc<TextEditions>,
    /// The stream, which has the request.
    record: Weak<StreamRecord>,
}

impl FollowedText {
    /// The text of a request of this stream.
    pub(crate) fn new(record: &Arc<StreamRecord>) -> Self {
        Self {
            editions: Arc::clone(record.editions()),
            record: Arc::downgrade(record),
        }
    }

    /// The request has this transition.
    pub(crate) fn follow(&self, what: Transition) {
        let note: fn(&StreamRecord) = match what {
            Transition::Adopted => StreamRecord::note_adopted,
            Transition::Recomputed | Transition::Ended(_) => StreamRecord::note_recomputed,
            _ => return,
        };
        let is_due = match what {
            // A request that ends before an engine had it never has the tokens of the owner before.
            Transition::Ended(_) => self.editions.is_expected(),
            _ => self.editions.may_begin(),
        };
        if is_due && let Some(record) = self.record.upgrade() {
            note(&record);
        }
    }
}

impl fmt::Debug for FollowedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FollowedText({:?})", self.editions)
    }
}

/// The error for a client that may have another text after this place.
pub fn diverged_error(resume_after: String) -> ApiError {
    let message = format!(
        "the stream was taken over from a gateway that had told tokens which were not stored, and the tokens after \
         {resume_after:?} may differ from those that the client has: read the stream again after this position"
    );
    ApiError {
        resume_after: Some(resume_after),
        ..ApiError::caller(ErrorKind::Conflict, STREAM_DIVERGED, message)
    }
}

impl StreamRecord {
    /// Whether a client with this cursor has the text that is told here.
    pub fn compare_cursor(&self, cursor: &Cursor) -> CursorText {
        self.editions().compare(&cursor.positions, cursor.edition)
    }

    /// Waits until that is known.
    pub async fn cursor_decided(&self, cursor: &Cursor) {
        let (positions, edition) = (&cursor.positions, cursor.edition);
        self.editions().decided(positions, edition).await;
    }

    /// The error for a client that may have another text after these positions.
    pub fn diverged_at(&self, positions: Vec<Position>) -> ApiError {
        let place = EventIds::of_stream(self.source(), positions);
        diverged_error(place.cursor_text(TerminalMarker::None, true).to_string())
    }

    /// The error for a client with this cursor, if its text may be another one.
    ///
    /// # Errors
    /// The text may be another one.
    pub fn expect_same_text(&self, cursor: &Cursor) -> Result<(), ApiError> {
        match self.compare_cursor(cursor) {
            CursorText::Diverged(place) => Err(self.diverged_at(place)),
            CursorText::Same | CursorText::Undecided => Ok(()),
        }
    }

    /// An edition begins after so many steps, unless engines go on with all requests; the records say so from now on.
    pub(crate) fn propose_edition(&self, steps: Vec<u64>) {
        let number = self.recovery_state().recoveries();
        self.editions().propose(steps, number);
        self.record_control(&self.steering().lock());
    }

    /// An engine goes on with a request of the owner before.
    pub(crate) fn note_adopted(&self) {
        if self.editions().adopt() {
            // The proposed edition is not in the records any more.
            self.record_control(&self.steering().lock());
        }
    }

    /// A request of the owner before is computed again, or will never be.
    pub(crate) fn note_recomputed(&self) {
        let steps = || {
            let choices = self.started().into_iter().flat_map(|s| &s.choices);
            choices.map(ChoiceLog::steps).collect()
        };
        if self.editions().begin(steps) {
            let number = self.source().edition().get();
            tracing::info!(stream = %self.id(), edition = number, "the text of a stream may differ from here on");
            self.record_control(&self.steering().lock());
        }
    }
}
