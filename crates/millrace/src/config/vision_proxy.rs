//! Settings of the model that describes images for models that read text only (`vision.proxy`).

use super::ranges::{HOUR_MS, PAUSE_MS_MIN};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The name of no model.
pub(super) const OFF: &str = "off";

const PROMPT: &str = "Describe this image for someone who cannot see it and will answer questions about it. Say what kind of image it is and how it is laid out. \
    Copy all text in it word for word. Give numbers, colors, positions and relations. Say what you are not sure of. Answer with the description alone.";

/// A model that describes images for models that read text only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VisionProxySettings {
    /// Name of the model, which has a tower; `models.named.NAME.vision_proxy` is for single models. A model with a tower of its own has no use for it.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "an image is never described without the operator's knowledge: that costs time, and details are lost"))]
    pub(crate) model: Option<String>,
    /// Server with OpenAI's chat completions that has the model, such as `http://10.0.0.2:8000`. Default: this server has it.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the model is one of this server's"))]
    pub(crate) address: Option<String>,
    /// File with the API key of that server.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a secret is no setting"))]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Text that goes with an image. `{question}` stands for the user's text next to the image; descriptions are then made for each question.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "one description for all questions of a conversation"))]
    pub(crate) prompt: String,
    /// Maximum number of tokens of a description.
    #[schemars(
        range(min = 1, max = 8192),
        extend("x-reload" = "restart", "x-reason" = "a page of text, or a picture in detail")
    )]
    pub(crate) max_tokens: usize,
    /// Temperature of descriptions, 0 to 2; 0 = greedy.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the likeliest reading, the same each time"))]
    pub(crate) temperature: f64,
    /// Time for one description, with loading the model and waiting for a slot.
    #[schemars(
        range(min = PAUSE_MS_MIN, max = HOUR_MS),
        extend("x-reload" = "restart", "x-reason" = "512 tokens at ten a second, and the image before them")
    )]
    pub(crate) timeout_ms: u64,
    /// Maximum number of images in a request that have to be described; those whose description is kept do not count.
    #[schemars(
        range(min = 1, max = 256),
        extend("x-reload" = "restart", "x-reason" = "each takes as long as an answer")
    )]
    pub(crate) images_max: usize,
    /// Images of one request that are described at one time.
    #[schemars(
        range(min = 1, max = 16),
        extend("x-reload" = "restart", "x-reason" = "two at one time are no faster on few processors")
    )]
    pub(crate) concurrency: usize,
    /// Maximum number of descriptions that are kept in memory, of at most 32 KiB each; 0 = none.
    #[schemars(
        range(min = 0, max = 65_536),
        extend("x-reload" = "restart", "x-reason" = "clients send the images of a conversation again with each turn; some KiB each")
    )]
    pub(crate) cache_entries: usize,
    /// Outcome of a request whose image could not be described.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "an answer must not look as if the image had been seen"))]
    pub(crate) on_failure: OnFailure,
}

/// Outcome of a request whose image could not be described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFailure {
    /// The request ends with an error.
    #[default]
    Error,
    /// The prompt has a note in place of the description.
    Note,
}

impl Default for VisionProxySettings {
    fn default() -> Self {
        Self {
            model: None,
            address: None,
            api_key_file: None,
            prompt: PROMPT.to_owned(),
            max_tokens: 512,
            temperature: 0.0,
            timeout_ms: 60_000,
            images_max: 4,
            concurrency: 1,
            cache_entries: 1024,
            on_failure: OnFailure::Error,
        }
    }
}

impl VisionProxySettings {
    /// Name of the model; `None`: there is none.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref().filter(|name| *name != OFF)
    }
}
