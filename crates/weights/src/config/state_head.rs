//! Heads on hidden states: what a model gives of a token in place of the hidden state.

use super::keys::Keys;
use super::traits::StateHeadRule;
use super::{ConfigError, limits};
use crate::gguf::{Gguf, Value};

/// llama.cpp's number for scores of documents, in `pooling_type`.
pub(crate) const POOLING_RANK: u32 = 4;
/// The tensor with the weights of scores.
pub(crate) const SCORES: &str = "cls.output.weight";
/// The answers that a reranker scores, in the order of their rows.
const ANSWERS: [&str; 2] = ["yes", "no"];
const LABELS: &str = "classifier.output_labels";

/// A head on hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateHead {
    /// Logits of the answers yes and no; the head gives the first less the second.
    YesNo,
    /// Two projections without an activation between them: EmbeddingGemma. They are linear, so that it does not matter
    /// whether the mean is taken before or after.
    Dense {
        /// Entries between the two.
        inner: usize,
        /// Entries that the head gives.
        outer: usize,
    },
}

impl StateHead {
    /// Entries that the head gives.
    pub fn entries(self) -> usize {
        match self {
            Self::YesNo => 1,
            Self::Dense { outer, .. } => outer,
        }
    }

    pub(super) fn read(
        gguf: &Gguf,
        keys: &Keys<'_>,
        rule: StateHeadRule,
        dim: usize,
    ) -> Result<Option<Self>, ConfigError> {
        match rule {
            StateHeadRule::Never => Ok(None),
            StateHeadRule::YesNo => read_answers(gguf, keys),
            StateHeadRule::Dense => read_dense(gguf, keys, dim),
        }
    }
}

/// A file with scores, or whose pooling says so, is a reranker.
fn read_answers(gguf: &Gguf, keys: &Keys<'_>) -> Result<Option<StateHead>, ConfigError> {
    let pooling = keys.size("pooling_type", 0, limits::POOLING)?;
    if pooling != Some(POOLING_RANK as usize) && gguf.tensor(SCORES).is_none() {
        return Ok(None);
    }
    let wanted = || format!("the answers {}", ANSWERS.join(", "));
    match keys.get(LABELS) {
        None => Ok(Some(StateHead::YesNo)),
        Some(Value::Array(labels)) if labels.len() != ANSWERS.len() => {
            let found = format!("{} labels", labels.len());
            Err(keys.range(LABELS, found, wanted()))
        }
        Some(Value::Array(labels)) => {
            let mut labels = labels.values().zip(ANSWERS);
            if labels.all(|(label, answer)| matches!(label, Value::String(text) if text.as_str() == Some(answer))) {
Ok(Some(StateHead::YesNo))
} else {
Err(keys.range(LABELS, "other labels", wanted()))
}
        }
        Some(_) => Err(keys.wrong_type(LABELS, "a list of texts")),
    }
}

/// The dense projections of a file that has them.
fn read_dense(gguf: &Gguf, keys: &Keys<'_>, dim: usize) -> Result<Option<StateHead>, ConfigError> {
    // The keys that safetensors lead to have no tensors beside them.
    let is_described = gguf.tensors_len() == 0 && keys.get("dense_2_feat_in").is_some();
    let has = |part: &str| gguf.tensor(&format!("{part}.weight")).is_some();
    if !is_described && !has("dense_2") && !has("dense_3") {
        return Ok(None);
    }
    let width = |name: &str, wanted: Option<usize>| {
        let size = super::grouped(keys, name, limits::HIDDEN)?;
        match wanted {
            Some(wanted) if size != wanted => Err(keys.range(name, size, wanted.to_string())),
            _ => Ok(size),
        }
    };
    width("dense_2_feat_in", Some(dim))?;
    let inner = width("dense_2_feat_out", None)?;
    width("dense_3_feat_in", Some(inner))?;
    let outer = width("dense_3_feat_out", None)?;
    Ok(Some(StateHead::Dense { inner, outer }))
}
