//! What a running stream is told: `POST /v1/streams/{id}/control`, and `control` over a WebSocket.

use super::control_history::ControlUpdate;
use super::stream_record::StreamRecord;
use crate::wire::fields::{self, Fields};
use engine::{INJECT_TOKENS_MAX, RequestUpdate, UpdateRejected};
use generate::error::{ApiError, ErrorKind};
use std::time::Duration;
use text::Tokenizer;

/// Bytes of a text to be put in: it is encoded where others wait.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// What is to be done, all at once.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pause: Option<bool>,
    stop: bool,
    end_thinking: bool,
    text: Option<String>,
    steer: RequestUpdate,
}

impl Control {
    /// Reads it.
    ///
    /// # Errors
    /// All its bad fields at once.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let control = Self::read(&mut fields);
        fields.finish()?;
        Ok(control)
    }

    /// Reads it from fields that may have others too, and says there what is wrong.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let steer = RequestUpdate {
            temperature: fields.number("temperature", 0.0..=100.0),
            top_k: fields
                .integer("top_k", 0..=i128::from(u32::MAX))
                .and_then(|k| u32::try_from(k).ok()),
            top_p: fields.number("top_p", 0.0..=1.0),
            min_p: fields.number("min_p", 0.0..=1.0),
            repetition_penalty: fields.number("repetition_penalty", 0.01..=100.0),
            presence_penalty: fields.number("presence_penalty", -100.0..=100.0),
            frequency_penalty: fields.number("frequency_penalty", -100.0..=100.0),
            inject: tokens(fields),
        };
        let control = Self {
            pause: fields.boolean("pause"),
            stop: fields.boolean("stop") == Some(true),
            end_thinking: fields.boolean("end_thinking") == Some(true),
            text: fields.string("text").map(std::borrow::Cow::into_owned),
            steer,
        };
        if control.text.is_some() && !control.steer.inject.is_empty() {
            fields.wrong("text", "must not be given together with tokens");
        }
        if control
            .text
            .as_ref()
            .is_some_and(|text| text.len() > TEXT_BYTES_MAX)
        {
            fields.wrong("text", format!("must be at most {TEXT_BYTES_MAX} bytes"));
        }
        control
    }

    /// Tells it. What is put in comes after the end of thinking, if that is wished too; a stop is last.
    ///
    /// # Errors
    /// It does not run, or cannot be told so.
    pub(crate) fn tell(mut self, record: &StreamRecord) -> Result<(), ApiError> {
        let started = record.started().filter(|_| !record.is_over());
        let started = started.ok_or_else(not_running)?;
        if let Some(text) = &self.text {
            self.steer.inject = encoded(&started.tokenizer, text)?;
        }
        if self.end_thinking {
            let marks = started.choices.iter().find_map(|log| log.reading.marks());
            let marks = marks.ok_or_else(|| {
                let words = "end_thinking: this model has no token that ends its thinking";
                ApiError::field("end_thinking", "invalid_value", words)
            })?;
            self.steer.inject.insert(0, marks.close);
        }
        let made = started.choices.iter().map(|log| log.tokens.len());
        let order = ControlUpdate {
            after_tokens: made.sum(),
            pause: self.pause,
            stop: self.stop,
            end_thinking: self.end_thinking,
            ..ControlUpdate::new(&self.steer)
        };
        if self.steer != RequestUpdate::default() {
            self.steer(record)?;
        }
        record.control_history().add(order);
        if let Some(paused) = self.pause {
            record.pause(paused);
        }
        if self.stop {
            record.cancel();
        }
        Ok(())
    }

    fn steer(&self, record: &StreamRecord) -> Result<(), ApiError> {
        let Some(told) = record.steer(&self.steer) else {
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
            UpdateRejected::Full => {
                let words = "too many control updates are pending";
                ApiError::capacity("overloaded", words, Duration::from_secs(1))
            }
        })
    }
}

fn tokens(fields: &mut Fields<'_>) -> Vec<u32> {
    let items = fields
        .array("tokens", INJECT_TOKENS_MAX)
        .unwrap_or_default();
    let mut ids = Vec::with_capacity(items.len());
    for (at, raw) in items.into_iter().enumerate() {
        match fields::read::<u32>(raw) {
            Some(id) => ids.push(id),
            None => fields.wrong(format!("tokens[{at}]"), "must be a token id"),
        }
    }
    ids
}

/// As ordinary text: what was typed becomes no control token.
fn encoded(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, ApiError> {
    let ids = tokenizer.encode(text, false);
    ids.map_err(|why| ApiError::field("text", "invalid_value", format!("text: {}", why.0)))
}

/// The stream is not running, so that there is nothing to pause, resume or update.
pub(crate) fn not_running() -> ApiError {
    ApiError::caller(
        ErrorKind::Conflict,
        "stream_not_running",
        "only a stream that was started and has not ended can be paused or resumed",
    )
}
