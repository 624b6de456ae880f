//! Parsers of `/v1/workflows/{name}/runs` and `/v1/runs/{id}/channels/{channel}`.

use crate::fields::bounds::token_id_list;
use crate::fields::{self, Fields};
use generate::error::ApiError;
use serde_json::{Map, Value, json};

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
}

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
        fields.finish()?;
        Ok(Self {
            max_tokens,
            stream,
            kwargs,
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
