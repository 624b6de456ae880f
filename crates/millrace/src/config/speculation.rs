//! Source of draft tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where guesses come from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Speculation {
    /// No speculation.
    Off,
    /// Prompt lookup: n-grams of the same conversation.
    PromptLookup,
    /// The model of `draft_model`.
    Draft,
    /// The MTP head in the model's file (Qwen 3.5).
    Mtp,
}
