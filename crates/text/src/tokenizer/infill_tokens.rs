//! Tokens of fill-in-the-middle prompts (FIM): a model reads the text before and after a gap, and writes the text of
//! the gap.
//!
//! A GGUF file names the tokens (`tokenizer.ggml.fim_pre_token_id` and others); of files that do not, they are found by
//! the texts that llama.cpp knows.

use super::string_arena::StringArena;
use crate::InfillIds;

/// Tokens with which a fill-in-the-middle prompt can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfillTokens {
    /// Begins the text before the gap.
    pub prefix: u32,
    /// Begins the text after the gap.
    pub suffix: u32,
    /// Begins the text of the gap.
    pub middle: u32,
    /// Begins the name of a repository.
    pub repository: Option<u32>,
    /// Begins a file.
    pub file: Option<u32>,
}

const PREFIX: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];
const SUFFIX: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];
const MIDDLE: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];
const REPOSITORY: &[&str] = &[
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
];
const FILE: &[&str] = &["<|file_sep|>"];

/// The ids that a file names; where they are missing, those of tokens with well-known texts.
pub(super) fn or_known(named: InfillIds, pieces: &StringArena) -> InfillIds {
    let known = |texts: &[&str]| texts.iter().find_map(|text| pieces.find(text.as_bytes()));
    InfillIds {
        prefix: named.prefix.or_else(|| known(PREFIX)),
        suffix: named.suffix.or_else(|| known(SUFFIX)),
        middle: named.middle.or_else(|| known(MIDDLE)),
        padding: named.padding,
        repository: named.repository.or_else(|| known(REPOSITORY)),
        file: named.file.or_else(|| known(FILE)),
    }
}

impl InfillTokens {
    /// The tokens of a vocabulary that has these ids.
    ///
    /// # Errors
    /// The names of the tokens that it lacks.
    pub(super) fn new(ids: InfillIds) -> Result<Self, Vec<&'static str>> {
        match (ids.prefix, ids.suffix, ids.middle) {
            (Some(prefix), Some(suffix), Some(middle)) => Ok(Self {
                prefix,
                suffix,
                middle,
                repository: ids.repository,
                file: ids.file,
            }),
            (prefix, suffix, middle) => {
                let parts = [("prefix", prefix), ("suffix", suffix), ("middle", middle)];
                let missing = parts.into_iter().filter(|(_, id)| id.is_none());
                Err(missing.map(|(name, _)| name).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bpe_spec;
    use super::*;
    use crate::{TokenKind, Tokenizer};

    /// The vocabulary of tests with these control tokens behind its own.
    fn tokenizer(texts: &[&str], named: InfillIds) -> (u32, Tokenizer) {
        let mut spec = bpe_spec();
        let first = u32::try_from(spec.tokens.len()).unwrap();
        spec.kinds.resize(spec.tokens.len(), TokenKind::Normal);
        spec.tokens
            .extend(texts.iter().map(|&text| text.to_owned()));
        spec.kinds.resize(spec.tokens.len(), TokenKind::Control);
        spec.infill = named;
        (first, Tokenizer::from_vocab(spec).unwrap())
    }

    #[test]
    fn infill_tokens_are_named_or_well_known() {
        let none = InfillIds::default();
        for texts in [
            [
                "<|fim_prefix|>",
                "<|fim_suffix|>",
                "<|fim_middle|>",
                "<|repo_name|>",
                "<|file_sep|>",
            ],
            ["▁<PRE>", "▁<SUF>", "▁<MID>", "<REPO>", "<|file_sep|>"],
            [
                "<fim_prefix>",
                "<fim_suffix>",
                "<fim_middle>",
                "<reponame>",
                "<|file_sep|>",
            ],
            [
                "<｜fim▁begin｜>",
                "<｜fim▁hole｜>",
                "<｜fim▁end｜>",
                "<fim-repo>",
                "<|file_sep|>",
            ],
        ] {
            let (first, tokenizer) = tokenizer(&texts, none);
            let want = InfillTokens {
                prefix: first,
                suffix: first + 1,
                middle: first + 2,
                repository: Some(first + 3),
                file: Some(first + 4),
            };
            assert_eq!(tokenizer.infill_tokens(), Ok(want), "{texts:?}");
        }
        let (first, known) = tokenizer(&["<a>", "<b>", "<c>", "<PRE>"], none);
        assert_eq!(known.infill_tokens(), Err(vec!["suffix", "middle"]));
        let named = InfillIds {
            prefix: Some(first),
            suffix: Some(first + 1),
            middle: Some(first + 2),
            padding: Some(first + 3),
            ..none
        };
        let (_, named) = tokenizer(&["<a>", "<b>", "<c>", "<PRE>"], named);
        let tokens = named.infill_tokens().unwrap();
        assert_eq!(
            (tokens.prefix, tokens.repository),
            (first, None),
            "a name goes before a text"
        );
        assert!(
            named.eos_ids().contains(&(first + 3)),
            "padding ends an answer"
        );
    }

    #[test]
    fn named_infill_token_outside_the_vocabulary_is_an_error() {
        let mut spec = bpe_spec();
        spec.infill.middle = Some(1 << 20);
        let error = Tokenizer::from_vocab(spec).err().unwrap();
        assert!(error.to_string().contains("fim_mid"), "{error}");
    }
}
