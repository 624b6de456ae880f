//! Images that another model describes: progress of a waiting request, and the other model's part of the usage.

use generate::images::DescriptionState;
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;

/// Token counts of the model that described the images of a request.
#[derive(Clone, Copy, JsonSchema, Serialize)]
pub(crate) struct VisionProxyUsage<'a> {
    /// Name of the model.
    pub(crate) model: &'a str,
    /// Tokens of its prompts, rows of images among them.
    pub(crate) prompt_tokens: u64,
    /// Tokens of its descriptions.
    pub(crate) completion_tokens: u64,
    /// Images whose description was known.
    pub(crate) cached: u64,
}

impl<'a> VisionProxyUsage<'a> {
    /// The counts of a stream; `None`: no image was described.
    pub(crate) fn of(source: &'a StreamSource) -> Option<Self> {
        source.described().map(|described| Self {
            model: &described.model,
            prompt_tokens: described.prompt_tokens,
            completion_tokens: described.completion_tokens,
            cached: described.cached,
        })
    }
}

/// How far an image is on the way to its description.
#[derive(Clone, Copy, JsonSchema, Serialize)]
pub(crate) struct ImageProgress {
    /// Number of the image, from 0.
    index: usize,
    /// `waiting`, `describing`, `described` or `failed`.
    state: &'static str,
    /// Whether the description was known; only of an image that is described.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<bool>,
}

impl ImageProgress {
    /// The progress of the image with this number.
    pub(crate) fn new(index: usize, state: DescriptionState) -> Self {
        Self {
            index,
            state: state.name(),
            cached: state.cached(),
        }
    }
}
