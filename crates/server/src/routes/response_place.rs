//! The place in a response's stream of a client that has the events up to a sequence number.
//!
//! Sequence numbers name no edition of the text: after an edition has begun, a client that has more than the text before
//! is told the last number of that text, also where it has read the edition.

use super::stream_watch::wait_decided;
use gateway::streams::StreamRecord;
use gateway::streams::diverged_stream::diverged_error;
use gateway::streams::text_editions::CursorText;
use generate::error::ApiError;
use generate::output::position::Position;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use wire::cursor::{Cursor, TerminalMarker};
use wire::responses::sequence_number::{cursor_after, number_at};

/// Time that a client waits for the events that it has, where the owner before had not stored their tokens.
const COMPUTED_WAIT: Duration = Duration::from_secs(30);
/// Time between two looks at the tokens.
const LOOK: Duration = Duration::from_millis(50);
/// When the client is to ask again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The cursor of a client that has all events up to the number `after`; `None`: before the first delta.
///
/// # Errors
/// A number that no event has; the client may have another text than the one that is told here.
pub(super) async fn cursor_after_event(
    entry: &Arc<StreamRecord>,
    after: u64,
) -> Result<Option<Cursor>, ApiError> {
    let beyond = Cursor {
        positions: vec![Position::whole(u64::MAX); entry.meta().choices],
        terminal: TerminalMarker::None,
        edition: 0,
    };
    let deadline = Instant::now() + COMPUTED_WAIT;
    loop {
        let found = cursor_after(entry.source(), after);
        let cursor = match &found {
            Ok(None) => return found,
            Ok(Some(cursor)) => cursor,
            Err(_) => &beyond,
        };
        wait_decided(entry, cursor).await;
        if let CursorText::Diverged(place) = entry.compare_cursor(cursor) {
            let steps = place.first().map_or(0, |place| place.steps);
            return Err(diverged_error(number_at(entry.source(), steps).to_string()));
        }
        if found.is_ok() || !entry.may_be_behind() {
            return found;
        }
        if Instant::now() >= deadline {
            let message = "the events up to starting_after are computed again";
            return Err(ApiError::capacity("recovering", message, RETRY_AFTER));
        }
        sleep(LOOK).await;
    }
}
