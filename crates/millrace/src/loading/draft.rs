//! The model that guesses, where there is one: found, compared with the model it guesses for, and
//! loaded with the memory that is meant for it.

use super::{place, weights};
use crate::config::{Settings, Speculation};
use crate::failure::Failure;
use model::Model;
use model::gguf::{Gguf, TokenizerMeta};

/// Opened, and known to have the words of the large model.
pub(super) struct Draft {
    gguf: Gguf,
    settings: Settings,
}

/// Finds the draft model that the settings name.
pub(super) fn find(
    settings: &Settings,
    large: &TokenizerMeta<'_>,
) -> Result<Option<Draft>, Failure> {
    let engine = &settings.engine;
    let Some(path) = engine
        .draft_model
        .as_ref()
        .filter(|_| engine.speculation == Speculation::Draft)
    else {
        return Ok(None);
    };
    let mut settings = settings.clone();
    settings.model.path = Some(path.clone());
    settings.model.kv_mib = engine.draft_kv_mib;
    settings.model.context = None;
    let gguf = place::find(&settings)?.open()?;
    let meta = gguf.tokenizer().map_err(Failure::user)?;
    agree(large, &meta)
        .map_err(|why| Failure::user(format!("engine.draft_model {}: {why}", path.display())))?;
    Ok(Some(Draft { gguf, settings }))
}

impl Draft {
    /// Packs its weights.
    pub(super) fn load(self) -> Result<Box<Model>, Failure> {
        weights(self.gguf, &self.settings, &mut |_| {}).map(Box::new)
    }
}

/// A guess is an id: it must mean the same to both.
fn agree(large: &TokenizerMeta<'_>, draft: &TokenizerMeta<'_>) -> Result<(), String> {
    let (ours, theirs) = (large.tokens.clone(), draft.tokens.clone());
    if ours.len() != theirs.len() {
        return Err(format!(
            "it has {} tokens, the model has {}; they must have the same vocabulary",
            theirs.len(),
            ours.len()
        ));
    }
    let differs = |(a, b): &(model::gguf::Text<'_>, model::gguf::Text<'_>)| a != b;
    match ours.zip(theirs).enumerate().find(|(_, pair)| differs(pair)) {
        None => Ok(()),
        Some((id, (a, b))) => Err(format!(
            "token {id} is {:?}, the model's is {:?}; they must have the same vocabulary",
            b.to_lossy(),
            a.to_lossy()
        )),
    }
}
