//! The place in a response's stream of a client that has the events up to a sequence number.

use gateway::streams::{StreamRecord, lost_error};
use generate::error::ApiError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use wire::cursor::Cursor;
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
/// A number that no event has; the stream was taken over, and has ended before the event of this number.
pub(super) async fn cursor_after_event(
    entry: &Arc<StreamRecord>,
    after: u64,
) -> Result<Option<Cursor>, ApiError> {
    let deadline = Instant::now() + COMPUTED_WAIT;
    while entry.may_be_behind() && cursor_after(entry.source(), after).is_err() {
        if Instant::now() >= deadline {
            let message = "the events up to starting_after are computed again";
            return Err(ApiError::capacity("recovering", message, RETRY_AFTER));
        }
        sleep(LOOK).await;
    }
    if let Some(steps) = entry.lost_after(0) {
        let last = number_at(entry.source(), steps);
        if after > last {
            return Err(lost_error(last.to_string()));
        }
    }
    cursor_after(entry.source(), after)
}
