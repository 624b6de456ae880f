//! The draft model of speculative decoding: found, compared with the target model's vocabulary, and loaded with separate
//! KV memory.

use super::weights::{PackedModel, kernel_isa, load_weights};
use crate::config::{Settings, Speculation};
use crate::failure::Failure;
use crate::model_files::{ModelPurpose, ModelSource, ModelText};
use crate::model_lookup::find_model;
use text::Tokenizer;
use weights::ModelFiles;

/// An open draft model with the target model's vocabulary.
pub(super) struct DraftModel {
    source: ModelSource,
    files: ModelFiles,
    settings: Settings,
}

impl DraftModel {
    /// Finds the draft model of the settings, if speculation uses one.
    pub(super) fn find(settings: &Settings, large: &Tokenizer) -> Result<Option<Self>, Failure> {
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
        settings.model.kv_mib = None;
        settings.model.context = None;
        settings.model.adapters.clear();
        let source = find_model(&settings)?;
        let files = source.open(settings.model.quantize)?;
        if !ModelPurpose::of(&files).is_causal {
            return Err(Failure::user(format!(
                "engine.draft_model {}: is an encoder, which drafts no tokens",
                path.display()
            )));
        }
        let draft_text = ModelText::read(&source, &files)?;
        expect_same_vocabulary(large, &draft_text.tokenizer).map_err(|why| {
            Failure::user(format!("engine.draft_model {}: {why}", path.display()))
        })?;
        Ok(Some(Self {
            source,
            files,
            settings,
        }))
    }

    /// Packs the draft model's weights.
    pub(super) fn load(self) -> Result<PackedModel, Failure> {
        let isa = kernel_isa(self.settings.model.deterministic)?;
        load_weights(
            &self.source,
            (self.files, &[]),
            isa,
            &self.settings,
            &mut |_| {},
        )
    }
}

/// A draft token is an id, which must stand for the same text in both vocabularies.
fn expect_same_vocabulary(large: &Tokenizer, draft: &Tokenizer) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::vocabulary;
    use synth::SynthSpec;
    use testing::folder::Folder;
    use weights::gguf::Gguf;

    #[test]
    fn encoder_is_refused() {
        let folder = Folder::new("draft-encoder");
        let path = folder.0.join("draft.gguf");
        let spec = SynthSpec::preset("tiny-gemma-embedding").unwrap();
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        spec.create(None, &path).unwrap();
        let mut settings = Settings::default();
        settings.engine.speculation = Speculation::Draft;
        settings.engine.draft_model = Some(path);
        let large = vocabulary(&gguf.tokenizer().unwrap()).unwrap();
        let large = Tokenizer::from_vocab(large).unwrap();
        let found = DraftModel::find(&settings, &large).err().unwrap();
        assert!(
            found
                .to_string()
                .contains("is an encoder, which drafts no tokens"),
            "{found}"
        );
    }
}
