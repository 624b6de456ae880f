//! What a model was made for, from the header of its files: text, embeddings, or scores of documents.

use crate::failure::Failure;
use engine::Pooling;
use generate::infill_prompt::RerankTemplate;
use server::ModelTask;
use weights::ModelFiles;
use weights::config::StateHead;
use weights::encoder::EncoderKind;
use weights::gguf::Gguf;

/// The key with the prompt of a reranker that is a decoder.
const RERANK_TEMPLATE: &str = "tokenizer.chat_template.rerank";

/// What a model was made for.
#[derive(Debug)]
pub(crate) struct ModelPurpose {
    is_encoder: bool,
    /// Whether a token sees earlier tokens only, so that the model can write text.
    pub(crate) is_causal: bool,
    /// Whether the file has a classification head, or its pooling says so.
    ranks: bool,
    /// llama.cpp's number of the pooling that the file names.
    pooling: Option<u32>,
}

impl ModelPurpose {
    /// From the header; a file that no decoder and no encoder can read counts as one of a decoder for text.
    pub(crate) fn of(files: &ModelFiles) -> Self {
        let gguf = files.metadata();
        let family = gguf.str("general.architecture").unwrap_or_default();
        let pooling = gguf.u32(&format!("{family}.pooling_type")).ok();
        if let Some(kind) = EncoderKind::of(gguf) {
            return Self {
                is_encoder: true,
                is_causal: false,
                ranks: kind.ranks(gguf),
                pooling,
            };
        }
        let config = files.config(None).ok();
        let head = config.as_ref().and_then(|config| config.state_head);
        Self {
            is_encoder: false,
            is_causal: config.is_none_or(|config| config.is_causal()),
            ranks: head == Some(StateHead::YesNo),
            pooling,
        }
    }

    pub(crate) fn task(&self) -> ModelTask {
        match self.pooling {
            _ if self.ranks => ModelTask::Ranking,
            None | Some(0) if self.is_causal => ModelTask::Generation,
            _ => ModelTask::Embedding,
        }
    }

    /// The pooling that the file names. A file without the key is of a generative model, whose last token has attended to
    /// all others, or of an encoder that was trained for the mean.
    pub(crate) fn pooling(&self) -> Option<Pooling> {
        match self.pooling {
            _ if self.ranks && self.is_causal => Some(Pooling::Last),
            _ if self.ranks => Some(Pooling::First),
            None | Some(0) if self.is_causal => Some(Pooling::Last),
            None | Some(0 | 1) => Some(Pooling::Mean),
            Some(2) if !self.is_causal => Some(Pooling::First),
            Some(3) => Some(Pooling::Last),
            Some(_) => None,
        }
    }

    /// The prompt of a reranker that is a decoder.
    ///
    /// # Errors
    /// The file has none, or one without places for query and document.
    pub(crate) fn rerank_template(&self, gguf: &Gguf) -> Result<Option<RerankTemplate>, Failure> {
        if self.is_encoder || !self.ranks {
            return Ok(None);
        }
        let template = gguf.find::<&str>(RERANK_TEMPLATE).map_err(Failure::user)?;
        let template = match template {
            Some(template) => RerankTemplate::parse(template),
            None => {
                Err("is missing: it is a reranker's prompt for a query and a document".to_owned())
            }
        };
        let failure = |why| Failure::user(format!("`{RERANK_TEMPLATE}` {why}"));
        template.map(Some).map_err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use synth::{EncoderSpec, SynthSpec};
    use weights::gguf::GgufWriter;

    fn synthetic(preset: &str) -> Vec<u8> {
        match EncoderSpec::preset(preset) {
            Some(spec) => spec.to_bytes().unwrap(),
            None => SynthSpec::preset(preset).unwrap().to_bytes().unwrap(),
        }
    }

    /// The header of a file with this value of a key, or without the key.
    fn header(preset: &str, key: &str, value: Option<&str>) -> ModelFiles {
        let gguf = Gguf::from_bytes(synthetic(preset)).unwrap();
        let mut writer = GgufWriter::new();
        for (other, value) in gguf.metadata().filter(|(other, _)| *other != key) {
            writer.value(other, value);
        }
        match value.map(str::parse::<u32>) {
            Some(Ok(number)) => _ = writer.u32(key, number),
            Some(Err(_)) => _ = writer.str(key, value.unwrap_or_default()),
            None => {}
        }
        let mut bytes = Vec::new();
        writer.write(&mut bytes, |_, _| Ok(())).unwrap();
        Gguf::from_bytes(bytes).unwrap().into()
    }

    #[test]
    fn purpose_is_that_of_the_header() {
        use ModelTask::{Embedding, Generation, Ranking};
        for (preset, pooling, expected) in [
            ("tiny-llama", None, (Generation, Some(Pooling::Last))),
            ("tiny-llama", Some("0"), (Generation, Some(Pooling::Last))),
            ("tiny-llama", Some("1"), (Embedding, Some(Pooling::Mean))),
            ("tiny-llama", Some("2"), (Embedding, None)),
            ("tiny-llama", Some("3"), (Embedding, Some(Pooling::Last))),
            ("tiny-llama", Some("4"), (Embedding, None)),
            ("tiny-qwen3", Some("3"), (Embedding, Some(Pooling::Last))),
            ("tiny-qwen3", Some("4"), (Ranking, Some(Pooling::Last))),
            (
                "tiny-gemma-embedding",
                None,
                (Embedding, Some(Pooling::Mean)),
            ),
            (
                "tiny-gemma-embedding",
                Some("2"),
                (Embedding, Some(Pooling::First)),
            ),
            ("tiny-bert", None, (Embedding, Some(Pooling::Mean))),
            ("tiny-bert", Some("2"), (Embedding, Some(Pooling::First))),
            ("tiny-bert", Some("4"), (Ranking, Some(Pooling::First))),
            ("tiny-bert", Some("9"), (Embedding, None)),
        ] {
            let family = preset.trim_start_matches("tiny-");
            let files = header(preset, &format!("{family}.pooling_type"), pooling);
            let purpose = ModelPurpose::of(&files);
            assert_eq!(
                (purpose.task(), purpose.pooling()),
                expected,
                "{preset} {pooling:?}"
            );
        }
    }

    #[test]
    fn rerankers_without_a_prompt_are_refused() {
        let found = |value| {
            let files = header("tiny-qwen3-reranker", RERANK_TEMPLATE, value);
            ModelPurpose::of(&files).rerank_template(files.metadata())
        };
        assert!(found(Some("{query} {document}")).unwrap().is_some());
        for (template, expected) in [
            (None, "`tokenizer.chat_template.rerank` is missing"),
            (
                Some("{document}"),
                "`tokenizer.chat_template.rerank` must have one {query}",
            ),
        ] {
            let why = found(template).unwrap_err().to_string();
            assert!(why.contains(expected) && !why.contains('\n'), "{why}");
        }
    }
}
