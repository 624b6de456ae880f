//! OpenAI's model list: `/v1/models`.

use crate::derived_model::ModelCard;
use schemars::JsonSchema;
use serde::Serialize;

/// One model.
#[derive(JsonSchema, Serialize)]
pub struct ModelObject<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    /// Context length in tokens; absent while the model is not loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
    /// What the model is for: `text`, `embedding` or `rerank`; absent until its file was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// What the model can do: `completion`, `tools`, `vision`, `thinking`, `embedding`, `rerank`; absent of a model for text that is
    /// not loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<&'a [&'static str]>,
    /// How tools are rendered: `template`, `generic` (in the text of the conversation) or `none`; only of a loaded
    /// model.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'static str>,
    /// Whether the model supports reasoning; only of a loaded model.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<bool>,
    /// Engines of the cluster that take requests for the model now; only of a gateway's models.
    #[serde(skip_serializing_if = "Option::is_none")]
    engines: Option<usize>,
    /// Base model of an adapter, as in vLLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    /// File or folder of an adapter; only of a loaded one.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'a str>,
    /// State of a model that is not loaded; absent for a loaded model.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// All models.
#[derive(JsonSchema, Serialize)]
pub struct ModelList<'a> {
    object: &'static str,
    data: Vec<ModelObject<'a>>,
}

/// Describes one model.
pub fn model_object(card: &ModelCard) -> ModelObject<'_> {
    let (capabilities, adapter) = (card.capabilities, card.adapter.as_ref());
    ModelObject {
        id: &card.name,
        object: "model",
        created: card.created_unix_s,
        owned_by: "millrace",
        max_model_len: card.context_max,
        kind: card.kind,
        capabilities: card.abilities.as_deref(),
        tools: capabilities.map(|capabilities| capabilities.tools.name()),
        thinking: capabilities.map(|capabilities| capabilities.thinking),
        engines: card.engines,
        parent: adapter.map(|adapter| adapter.parent.as_str()),
        root: adapter.and_then(|adapter| adapter.root.as_deref()),
        state: card.state,
    }
}

/// Describes all models.
pub fn model_list(all: &[ModelCard]) -> ModelList<'_> {
    ModelList {
        object: "list",
        data: all.iter().map(model_object).collect(),
    }
}
