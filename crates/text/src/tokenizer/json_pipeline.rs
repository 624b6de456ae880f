//! The pipeline of a `tokenizer.json`, run by the `tokenizers` crate.

use super::error::TokenizerError;
use crate::vocab::{TOKEN_BYTES_MAX, TOKENS_MAX};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A text that shows what the post-processor adds.
const PROBE: &str = "a";

/// The file's pipeline from text to ids.
pub(super) struct JsonPipeline {
    /// Recognizes special tokens in text.
    pub(super) special: tokenizers::Tokenizer,
    /// Treats special tokens as text. A second copy, since the library stores this choice in the tokenizer.
    plain: tokenizers::Tokenizer,
}

impl JsonPipeline {
    pub(super) fn new(json: &[u8]) -> Result<Self, TokenizerError> {
        let mut special = without_panic(|| tokenizers::Tokenizer::from_bytes(json))
            .map_err(|error| not_usable("tokenizer.json", error))?;
        // Prompts are neither truncated nor padded silently.
        special
            .with_truncation(None)
            .map_err(|error| not_usable("tokenizer.json", error))?;
        special.with_padding(None);
        let mut plain = special.clone();
        plain.set_encode_special_tokens(true);
        Ok(Self { special, plain })
    }

    /// Encodes `text`; all ids are below `tokens`.
    pub(super) fn encode(
        &self,
        text: &str,
        special: bool,
        tokens: usize,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let pipeline = if special { &self.special } else { &self.plain };
        let encoding = without_panic(|| pipeline.encode_fast(text, false))
            .map_err(|error| TokenizerError(format!("the text could not be encoded: {error}")))?;
        if let Some(id) = encoding.get_ids().iter().find(|id| **id as usize >= tokens) {
            return Err(TokenizerError(format!(
                "the text has token {id}, and the model only {tokens} embeddings"
            )));
        }
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// Token texts by id; empty for unassigned ids.
    pub(super) fn tokens(&self) -> Result<Vec<String>, TokenizerError> {
        let vocab = self.special.get_vocab(true);
        let len = vocab.values().max().map_or(0, |id| *id as usize + 1);
        if len == 0 || len > TOKENS_MAX {
            return Err(TokenizerError(format!(
                "ids up to {len}; a vocabulary has 1 to {TOKENS_MAX}"
            )));
        }
        let mut tokens = vec![String::new(); len];
        for (token, id) in vocab {
            if token.len() > TOKEN_BYTES_MAX {
                return Err(TokenizerError(format!(
                    "token {id} has {} bytes; at most {TOKEN_BYTES_MAX} are accepted",
                    token.len()
                )));
            }
            tokens[id as usize] = token;
        }
        Ok(tokens)
    }

    /// How often the last token of a text stands between two texts that are encoded together; `None`: something else
    /// stands there, or nothing. Once with BERT's vocabularies, twice with XLM-R's.
    pub(super) fn ends_in_pair(&self) -> Option<usize> {
        let text = without_panic(|| self.special.encode_fast(PROBE, false)).ok()?;
        let text = text.get_ids();
        let pair = without_panic(|| self.special.encode_fast((PROBE, PROBE), true)).ok()?;
        let (&end, pair) = pair.get_ids().split_last()?;
        let between = pair.get(1..)?.strip_prefix(text)?.strip_suffix(text)?;
        let is_end = between.iter().all(|id| *id == end);
        (is_end && !between.is_empty()).then_some(between.len())
    }

    /// Whether an unknown token may stand for a text of any length.
    pub(super) fn unknown_is_any_text(&self) -> bool {
        use tokenizers::models::ModelWrapper::{Unigram, WordPiece};
        matches!(self.special.get_model(), WordPiece(_) | Unigram(_))
    }

    /// Tokens that the file's post-processor puts before and after a text.
    pub(super) fn added(&self) -> Result<(Option<u32>, Option<u32>), TokenizerError> {
        let ids = |add| {
            let encoding = without_panic(|| self.special.encode_fast(PROBE, add))
                .map_err(|error| not_usable("tokenizer.json", error))?;
            Ok(encoding.get_ids().to_vec())
        };
        let (plain, processed) = (ids(false)?, ids(true)?);
        let at = processed
            .windows(plain.len().max(1))
            .position(|window| window == plain)
            .unwrap_or(0);
        let before = processed[..at].last().copied();
        Ok((before, processed.get(at + plain.len()).copied()))
    }
}

thread_local! {
    /// Whether a panic of this thread is an answer of the library, which is not printed.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function of the library, which panics on some files: where a merge is shorter than the prefix of subwords, or
/// where the post-processor has a token that the file does not define. Such a panic is not printed.
fn without_panic<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                print(panic);
            }
        }));
    });
    IS_GUARDED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    IS_GUARDED.set(false);
    match outcome {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err(
            "its parts contradict each other, and the library tokenizers fails on them".to_owned(),
        ),
    }
}

pub(super) fn not_usable(what: &str, error: impl std::fmt::Display) -> TokenizerError {
    TokenizerError(format!("{what} is not usable: {error}"))
}

#[cfg(test)]
mod tests {
    use crate::Tokenizer;
    use serde_json::{Value, json};

    fn file(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
        });
        change(&mut file);
        file.to_string().into_bytes()
    }

    #[test]
    fn files_on_which_the_library_panics_are_errors() {
        let good = Tokenizer::from_json(&file(|_| {})).expect("a small vocabulary");
        assert_eq!(good.encode("ab", false).expect("known letters"), [2]);
        let prefix = Tokenizer::from_json(&file(|file| {
            file["model"]["continuing_subword_prefix"] = json!("<s>");
        }));
        let error = prefix.err().expect("a merge shorter than the prefix");
        let error = error.to_string();
        assert!(error.starts_with("tokenizer.json is not usable"), "{error}");
        let sequence = json!({"Sequence": {"id": "A", "type_id": 0}});
        let unknown = json!({"SpecialToken": {"id": "[X]", "type_id": 0}});
        let ids = [
            json!({}),
            json!({"[X]": {"id": "[X]", "ids": [999], "tokens": ["[X]"]}}),
        ];
        for special_tokens in ids {
            let tokenizer = Tokenizer::from_json(&file(|file| {
                file["post_processor"] = json!({
                    "type": "TemplateProcessing", "single": [unknown, sequence], "pair": [sequence, sequence],
                    "special_tokens": special_tokens,
                });
            }));
            let error = tokenizer
                .err()
                .expect("a token that the file lacks")
                .to_string();
            assert!(error.starts_with("tokenizer.json is not usable"), "{error}");
        }
    }
}
