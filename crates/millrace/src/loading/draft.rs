//! The model that guesses, where there is one: found, compared with the model it guesses for, and
//! loaded with the memory that is meant for it.

use super::words::Words;
use super::{place, weights};
use crate::config::{Settings, Speculation};
use crate::failure::Failure;
use model::{Model, ModelFiles};
use text::Tokenizer;

/// Opened, and known to have the words of the large model.
pub(super) struct Draft {
    files: ModelFiles,
    settings: Settings,
}

/// Finds the draft model that the settings name.
pub(super) fn find(settings: &Settings, large: &Tokenizer) -> Result<Option<Draft>, Failure> {
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
    let place = place::find(&settings)?;
    let files = place.open(settings.model.quantize)?;
    let words = Words::read(&place, &files)?;
    agree(large, &words.tokenizer)
        .map_err(|why| Failure::user(format!("engine.draft_model {}: {why}", path.display())))?;
    Ok(Some(Draft { files, settings }))
}

impl Draft {
    /// Packs its weights.
    pub(super) fn load(self) -> Result<Box<Model>, Failure> {
        weights(self.files, &self.settings, &mut |_| {}).map(Box::new)
    }
}

/// A guess is an id: it must mean the same to both.
fn agree(large: &Tokenizer, draft: &Tokenizer) -> Result<(), String> {
    let (ours, theirs) = (large.vocab_size(), draft.vocab_size());
    if ours != theirs {
        return Err(format!(
            "it has {theirs} tokens, the model has {ours}; they must have the same vocabulary"
        ));
    }
    let pair = |id| (large.piece(id), draft.piece(id));
    match (0..ours as u32)
        .find(|&id| large.piece(id) != draft.piece(id))
        .map(|id| (id, pair(id)))
    {
        None => Ok(()),
        Some((id, (a, b))) => Err(format!(
            "token {id} is {:?}, the model's is {:?}; they must have the same vocabulary",
            b.unwrap_or_default(),
            a.unwrap_or_default()
        )),
    }
}
