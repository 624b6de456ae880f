//! Prepared prompts as records: the parts from which another process restores them.

use crate::request_serde::verbatim;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A prepared prompt without the parts that follow from the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptRecord {
    /// Ids of the prompt.
    pub ids: Vec<u32>,
    /// Whether the answer's first token begins a text.
    #[serde(default)]
    pub at_text_start: bool,
    /// The prompt's text, emitted before the answer (`echo`).
    #[serde(default)]
    pub echo_text: Option<String>,
    /// The rendered conversation, from which the parsing of the answer follows; `None`: all text is content.
    #[serde(default)]
    pub text: Option<String>,
    /// Tool definitions in OpenAI's shape.
    #[serde(default, with = "verbatim::list")]
    pub tools: Vec<Value>,
}
