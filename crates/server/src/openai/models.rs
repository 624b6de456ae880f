//! `/v1/models`.

use crate::served::ServedModel;
use serde::Serialize;

/// One model, as the list tells it.
#[derive(Serialize)]
pub(crate) struct ModelCard<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    /// Tokens that prompt and answer may have together, under vLLM's name for it.
    max_model_len: usize,
}

/// All models.
#[derive(Serialize)]
pub(crate) struct ModelList<'a> {
    object: &'static str,
    data: [ModelCard<'a>; 1],
}

/// The served model's card.
pub(crate) fn card(served: &ServedModel) -> ModelCard<'_> {
    ModelCard {
        id: &served.id,
        object: "model",
        created: served.created_unix_s,
        owned_by: "millrace",
        max_model_len: served.context_max,
    }
}

/// The list it is alone in.
pub(crate) fn list(served: &ServedModel) -> ModelList<'_> {
    ModelList {
        object: "list",
        data: [card(served)],
    }
}
