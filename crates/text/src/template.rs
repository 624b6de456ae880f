//! Chat templates. (Stub: signatures only.)

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message as templates see it: `role`, `content` and whatever else the caller sent
/// (`tool_calls`, `tool_call_id`, `name`, `reasoning_content`), passed through as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// system, developer, user, assistant, tool.
    pub role: String,
    /// A string, a list of parts, or null.
    #[serde(default)]
    pub content: Value,
    /// All other fields.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

/// What a rendering needs.
#[derive(Clone, Debug, Default)]
pub struct RenderInput<'a> {
    /// The conversation, oldest first.
    pub messages: &'a [Message],
    /// Tool definitions in OpenAI's shape; empty = none.
    pub tools: &'a [Value],
    /// Whether the opening of the assistant's turn is added.
    pub add_generation_prompt: bool,
    /// Extra variables (`chat_template_kwargs`).
    pub kwargs: Option<&'a serde_json::Map<String, Value>>,
    /// Seconds since the Unix epoch, for `strftime_now`.
    pub now_unix_s: i64,
}

/// Why a conversation could not be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// The template itself refused the conversation (`raise_exception`): the caller's to mend.
    Refused(String),
    /// The template is broken or too expensive: the operator's to mend.
    Broken(String),
}

/// A compiled chat template.
pub struct ChatTemplate {}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of those tokens.
    pub fn new(_source: &str, _bos: &str, _eos: &str) -> Result<Self, TemplateError> {
        todo!()
    }
    /// A plain template for models that bring none (the caller says so in the log).
    pub fn fallback(_bos: &str, _eos: &str) -> Self {
        todo!()
    }
    /// The prompt text.
    pub fn render(&self, _input: &RenderInput<'_>) -> Result<String, TemplateError> {
        todo!()
    }
}
