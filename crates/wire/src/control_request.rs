//! Requests about a running stream: control updates (`POST /v1/streams/{id}/control`, and `control` over a WebSocket), and
//! acknowledgements (`POST /v1/streams/{id}/ack`).

use crate::field_table::FieldTable;
use crate::fields::bounds::token_id_list;
use crate::fields::{self, Fields};
use engine::{INJECT_TOKENS_MAX, RequestUpdate};
use generate::error::ApiError;
use generate::request::IgnoredFields;
use serde_json::{Map, Value, json};

/// Bytes of an injected text: the text is tokenized on an I/O thread.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Changes to a running stream, applied together.
#[derive(Debug, Default)]
pub struct ControlRequest {
    /// Pauses (`true`) or resumes (`false`) the stream.
    pub pause: Option<bool>,
    /// Whether the stream is canceled.
    pub stop: bool,
    /// Whether reasoning ends now.
    pub end_thinking: bool,
    /// Text to inject.
    pub text: Option<String>,
    /// Changed sampling parameters and injected tokens.
    pub changes: RequestUpdate,
}

impl ControlRequest {
    /// Parses the body of a control request.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let control = Self::from_fields(&mut fields);
        fields.finish()?;
        Ok(control)
    }

    /// Parses an update from an object that may have other fields too; errors are recorded in `fields`.
    pub fn from_fields(fields: &mut Fields<'_>) -> Self {
        let changes = RequestUpdate {
            temperature: fields.number("temperature", 0.0..=100.0),
            top_k: fields.integer_as("top_k", 0..=i128::from(u32::MAX)),
            top_p: fields.number("top_p", 0.0..=1.0),
            min_p: fields.number("min_p", 0.0..=1.0),
            repetition_penalty: fields.number("repetition_penalty", 0.01..=100.0),
            presence_penalty: fields.number("presence_penalty", -100.0..=100.0),
            frequency_penalty: fields.number("frequency_penalty", -100.0..=100.0),
            inject: token_id_list(fields, "tokens", INJECT_TOKENS_MAX),
        };
        let control = Self {
            pause: fields.boolean("pause"),
            stop: fields.boolean("stop") == Some(true),
            end_thinking: fields.boolean("end_thinking") == Some(true),
            text: fields.string("text").map(std::borrow::Cow::into_owned),
            changes,
        };
        if control.text.is_some() && !control.changes.inject.is_empty() {
            fields.reject("text", "must not be given together with tokens");
        }
        if control
            .text
            .as_ref()
            .is_some_and(|text| text.len() > TEXT_BYTES_MAX)
        {
            fields.reject("text", format!("must be at most {TEXT_BYTES_MAX} bytes"));
        }
        control
    }
}

/// Error message for a missing `index`.
pub(crate) const INDEX_MESSAGE: &str = "must be the number of tokens the client has";

/// An acknowledgement of received tokens, or of the end.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement {
    /// Number of tokens that the client has; a body without it has `end`.
    pub index: Option<u64>,
    /// The choice of the tokens; every choice if absent.
    pub choice: Option<usize>,
    /// Whether the client has the end, or does not need it.
    pub end: bool,
}

impl Acknowledgement {
    /// Parses an acknowledgement of a stream with choices up to `choice_max`.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn parse(mut fields: Fields<'_>, choice_max: usize) -> Result<Self, ApiError> {
        let index = fields.integer_as("index", 0..=i128::from(u64::MAX));
        let end = fields.boolean("end").unwrap_or(false);
        if fields.raw("index").is_none() && fields.raw("end").is_none() {
            fields.reject("index", INDEX_MESSAGE);
        }
        let choice = fields.integer_as("choice", 0..=choice_max as i128);
        fields.finish()?;
        Ok(Self { index, choice, end })
    }
}

/// Limit of token ids in one write to a channel.
const CHANNEL_IDS_MAX: usize = 4096;

/// A request to run a workflow.
#[derive(Debug)]
pub struct RunRequest {
    /// Limit of tokens of the output, if the request has one.
    pub max_tokens: Option<usize>,
    /// Whether the response is streamed.
    pub stream: bool,
    /// Inputs of the run, by name.
    pub kwargs: Map<String, Value>,
    /// Fields without effect.
    pub ignored_fields: IgnoredFields,
}

/// Fields with images and files in other requests.
const MEDIA_FIELDS: [&str; 5] = ["image", "images", "image_data", "audio", "files"];

impl RunRequest {
    /// Parses a request for a model with this context.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn parse(mut fields: Fields<'_>, context_max: usize) -> Result<Self, ApiError> {
        fields.string("model"); // the model was found before
        let max_tokens = fields.integer_as("max_tokens", 1..=context_max as i128);
        let stream = fields.boolean("stream").unwrap_or(true);
        let kwargs = fields.described(
            "kwargs",
            || json!({"type": "object", "description": "inputs of the run"}),
        );
        let kwargs = match kwargs {
            None => Map::new(),
            Some(raw) => fields::parse_value(raw).unwrap_or_else(|| {
                fields.reject("kwargs", "must be an object");
                Map::new()
            }),
        };
        for name in MEDIA_FIELDS {
            // Only a field that is there is asked for: the schema has what is asked for.
            let is_there = fields.unread_fields().any(|unread| unread == name);
            if is_there && !fields.raw(name).is_none_or(fields::is_empty_list) {
                fields.reject(name, "is not read here: workflows read text, in kwargs");
            }
        }
        Ok(Self {
            max_tokens,
            stream,
            kwargs,
            ignored_fields: fields.finish_request(&FieldTable { rows: &[] })?,
        })
    }
}

/// A request to write to a channel of a run.
#[derive(Debug)]
pub struct ChannelWriteRequest {
    /// Token ids to write.
    pub ids: Vec<u32>,
    /// Whether the channel is closed after the write.
    pub close: bool,
}

impl ChannelWriteRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// All invalid fields at once.
    pub fn parse(mut fields: Fields<'_>) -> Result<Self, ApiError> {
        let request = Self {
            ids: token_id_list(&mut fields, "ids", CHANNEL_IDS_MAX),
            close: fields.boolean("close") == Some(true),
        };
        fields.finish()?;
        Ok(request)
    }
}
