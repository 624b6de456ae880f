//! Control updates of running streams.

use super::control_history::ControlUpdate;
use super::stream_record::StreamRecord;
use engine::{RequestUpdate, UpdateRejected};
use generate::error::{ApiError, ErrorKind};
use std::time::Duration;
use text::Tokenizer;
use wire::control_request::ControlRequest;

/// Applies a control update to a stream. Injected tokens come after the end of reasoning, where both are requested; a
/// stop is last.
///
/// # Errors
/// The stream does not run, or cannot be updated so.
pub fn apply_control(mut update: ControlRequest, record: &StreamRecord) -> Result<(), ApiError> {
    let started = record.started().filter(|_| !record.is_over());
    let started = started.ok_or_else(not_running)?;
    if let Some(text) = &update.text {
        update.changes.inject = encoded_text(&started.tokenizer, text)?;
    }
    if update.end_thinking {
        let marks = started.choices.iter().find_map(|log| log.reading.marks());
        let marks = marks.ok_or_else(|| {
            let words = "end_thinking: this model has no token that ends its thinking";
            ApiError::field("end_thinking", "invalid_value", words)
        })?;
        update.changes.inject.insert(0, marks.close);
    }
    let made = started.choices.iter().map(|log| log.tokens.len());
    let order = ControlUpdate {
        after_tokens: made.sum(),
        pause: update.pause,
        stop: update.stop,
        end_thinking: update.end_thinking,
        ..ControlUpdate::new(&update.changes)
    };
    let mut steering = record.steering().lock();
    if update.changes != RequestUpdate::default() {
        let accept = |_| {
            let next = steering.accept(&update.changes, record.updates_applied());
            next.ok_or_else(too_many_updates)
        };
        let next = record.durable().map(accept).transpose()?;
        update_request(&update.changes, record)?;
        if let Some(next) = next {
            *steering = next;
        }
    }
    record.control_history().add_update(order);
    record.record_control(&steering);
    drop(steering);
    if let Some(paused) = update.pause {
        record.pause(paused);
    }
    if update.stop {
        record.cancel();
    }
    Ok(())
}

fn update_request(steer: &RequestUpdate, record: &StreamRecord) -> Result<(), ApiError> {
    let Some(told) = record.update_request(steer) else {
        let words =
            "a workflow run is controlled by its channels; it can only be paused and cancelled";
        return Err(ApiError::caller(
            ErrorKind::Conflict,
            "not_steerable",
            words,
        ));
    };
    told.map_err(|why| match why {
        UpdateRejected::Invalid(why) => ApiError::bad_request("invalid_value", why),
        UpdateRejected::Full => too_many_updates(),
    })
}

fn too_many_updates() -> ApiError {
    let words = "too many control updates are pending";
    ApiError::capacity("overloaded", words, Duration::from_secs(1))
}

/// Token ids of ordinary text: control tokens in the text are encoded as text.
fn encoded_text(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, ApiError> {
    let ids = tokenizer.encode(text, false);
    ids.map_err(|why| ApiError::field("text", "invalid_value", format!("text: {}", why.0)))
}

/// The stream is not running, so that there is nothing to pause, resume or update.
pub fn not_running() -> ApiError {
    ApiError::caller(
        ErrorKind::Conflict,
        "stream_not_running",
        "only a stream that was started and has not ended can be paused or resumed",
    )
}
