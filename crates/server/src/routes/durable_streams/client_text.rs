//! Whether the stream has the messages that a client at an offset has.

use super::{RECOVERY_RETRY, offset_text};
use gateway::streams::positions::offset_place;
use gateway::streams::{StreamRecord, lost_error};
use generate::error::ApiError;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use wire::durable_streams::step_offset::StepOffset;

/// Time that a client waits for the messages that it has, where the owner before had not stored their tokens.
const COMPUTED_WAIT: Duration = Duration::from_secs(30);
/// Time between two looks at the tokens.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until the stream has the client's offset, where an owner that is gone has sent it.
///
/// # Errors
/// The stream has ended before the offset; or the tokens are not computed in time.
pub(super) async fn wait_for_offset(
    record: &StreamRecord,
    offset: StepOffset,
) -> Result<(), ApiError> {
    let deadline = Instant::now() + COMPUTED_WAIT;
    while record.may_be_behind() && offset_place(record, offset).is_none() {
        if Instant::now() >= deadline {
            let message = "the messages before the offset are computed again";
            return Err(ApiError::capacity("recovering", message, RECOVERY_RETRY));
        }
        sleep(LOOK).await;
    }
    match record.lost_after(offset.choice) {
        Some(steps) if offset.steps > steps => {
            let place = StepOffset { steps, ..offset };
            Err(lost_error(offset_text(record, place)))
        }
        _ => Ok(()),
    }
}
