//! `/v1/models`.

use crate::gateway::served::Listed;
use serde::Serialize;

/// One model, as the list tells it.
#[derive(Serialize)]
pub(crate) struct ModelCard<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    /// Tokens that prompt and answer may have together, under vLLM's name for it; of a model that is
    /// ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
    /// How it is told of tools: `template`, `generic` (in the conversation's text) or `none`; of a model that is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'static str>,
    /// Whether it can be asked to think; likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<bool>,
    /// Where it is, as long as it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// All models.
#[derive(Serialize)]
pub(crate) struct ModelList<'a> {
    object: &'static str,
    data: Vec<ModelCard<'a>>,
}

/// A model's card.
pub(crate) fn card(listed: &Listed) -> ModelCard<'_> {
    let capabilities = listed.capabilities();
    ModelCard {
        id: &listed.name,
        object: "model",
        created: listed.created_unix_s,
        owned_by: "millrace",
        max_model_len: listed.context_max,
        tools: capabilities.map(|capabilities| capabilities.tools.name()),
        thinking: capabilities.map(|capabilities| capabilities.thinking),
        state: listed.state_told(),
    }
}

/// The list of them.
pub(crate) fn list(all: &[Listed]) -> ModelList<'_> {
    ModelList {
        object: "list",
        data: all.iter().map(card).collect(),
    }
}
