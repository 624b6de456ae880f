//! `/v1/models`.

use crate::served::{Slot, State};
use serde::Serialize;
use std::sync::Arc;

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
pub(crate) fn card(slot: &Slot) -> ModelCard<'_> {
    let (created, max_model_len, state) = match slot.state() {
        State::Ready(serving) => {
            let model = &serving.model;
            (model.created_unix_s, Some(model.context_max), None)
        }
        state => (slot.created_unix_s, None, Some(state.name())),
    };
    ModelCard {
        id: &slot.id,
        object: "model",
        created,
        owned_by: "millrace",
        max_model_len,
        state,
    }
}

/// The list of them.
pub(crate) fn list(slots: &[Arc<Slot>]) -> ModelList<'_> {
    ModelList {
        object: "list",
        data: slots.iter().map(|slot| card(slot)).collect(),
    }
}
