//! Whether a client at an offset has the text that is told here.

use super::{RECOVERY_RETRY, offset_text};
use crate::routes::stream_watch::wait_decided;
use gateway::streams::diverged_stream::diverged_error;
use gateway::streams::step_offsets::offset_place;
use gateway::streams::stream_record::StreamRecord;
use gateway::streams::text_editions::CursorText;
use generate::error::ApiError;
use generate::output::position::Position;
use std::cmp::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use wire::cursor::{Cursor, TerminalMarker};
use wire::durable_streams::step_offset::StepOffset;

/// Time that a client waits for the messages that it has, where the owner before had not stored their tokens.
const COMPUTED_WAIT: Duration = Duration::from_secs(30);
/// Time between two looks at the tokens.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until the stream has the client's offset, where an owner that is gone has sent it.
///
/// # Errors
/// The client may have another text; or the tokens are not computed in time.
pub(super) async fn expect_same_text(
    record: &StreamRecord,
    (offset, edition): (StepOffset, u64),
) -> Result<(), ApiError> {
    let cursor = Cursor {
        positions: positions(record, offset),
        terminal: TerminalMarker::None,
        edition,
    };
    if cursor.positions.iter().all(|place| place.begun() == 0) {
        return Ok(());
    }
    wait_decided(record, &cursor).await;
    if let CursorText::Diverged(place) = record.compare_cursor(&cursor) {
        return Err(diverged_error(first_difference(record, &cursor, &place)));
    }
    let deadline = Instant::now() + COMPUTED_WAIT;
    while record.may_be_behind() && offset_place(record, offset).is_none() {
        if Instant::now() >= deadline {
            let message = "the messages before the offset are computed again";
            return Err(ApiError::capacity("recovering", message, RECOVERY_RETRY));
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// The positions of a client at an offset: all of the choices before.
fn positions(record: &StreamRecord, offset: StepOffset) -> Vec<Position> {
    let steps = |choice: usize| match choice.cmp(&offset.choice) {
        Ordering::Less => u64::MAX,
        Ordering::Equal => offset.steps,
        Ordering::Greater => 0,
    };
    let choices = 0..record.meta().choices;
    choices
        .map(|choice| Position::whole(steps(choice)))
        .collect()
}

/// The offset after which the client may have another text.
fn first_difference(record: &StreamRecord, cursor: &Cursor, place: &[Position]) -> String {
    let mut pairs = cursor.positions.iter().zip(place);
    let choice = pairs.position(|(has, same)| has != same).unwrap_or(0);
    let steps = place[choice].steps;
    offset_text(record, StepOffset { choice, steps })
}
