//! Construction of a tokenizer from a Hugging Face `tokenizer.json`, which the `tokenizers` crate encodes with.
//!
//! Adaptation of a `tokenizer.json` to a model: the file contains neither the number of embeddings nor all
//! tokens that end a generation.
//!
//! Normalizers of a `tokenizer.json` that would take memory without a bound. An allocation that fails ends the process, and nothing
//! can catch that, so they are refused before the library reads them.

use super::error::TokenizerError;
use super::json_pipeline::{JsonPipeline, not_usable};
use super::string_arena::StringArena;
use super::{Encoder, Tokenizer, bpe, special_tokens, spm};
use crate::vocab::TOKENS_MAX;
use crate::{InfillIds, TokenKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// Largest file in bytes. The largest in use have 35 MB.
const JSON_BYTES_MAX: usize = 1 << 28;

/// Beginning of a token of WordPiece that continues a word.
const CONTINUED: &str = "##";

/// How the file's decoder turns token texts into bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TokenSpelling {
    /// Tokens are written in the byte-level alphabet.
    byte_level: bool,
    /// `▁` represents a space.
    meta_space: bool,
    /// A token is preceded by a space unless the token begins with `##`.
    word_piece: bool,
    /// `<0xNN>` tokens are bytes.
    byte_fallback: bool,
    /// The first space of a text was added by encoding.
    adds_first_space: bool,
}

/// Relevant fields of `tokenizer_config.json`.
#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct TokenizerConfig {
    bos_token: Option<ConfigToken>,
    eos_token: Option<ConfigToken>,
    unk_token: Option<ConfigToken>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a token (bos_token, eos_token, unk_token) must be a text, or an object with content"
)]
enum ConfigToken {
    Text(String),
    Token { content: String },
}

impl Tokenizer {
    /// A tokenizer from the bytes of a Hugging Face `tokenizer.json`.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        from_files(json, None)
    }

    /// A tokenizer from the bytes of a `tokenizer.json` and of the `tokenizer_config.json` beside the file,
    /// which names `bos` and `eos` and may say whether prompts get them.
    pub fn from_json_with_config(json: &[u8], config: &[u8]) -> Result<Self, TokenizerError> {
        from_files(json, Some(config))
    }
}

fn from_files(json: &[u8], config: Option<&[u8]>) -> Result<Tokenizer, TokenizerError> {
    if json.len() > JSON_BYTES_MAX {
        return Err(TokenizerError(format!(
            "a tokenizer.json of {} bytes; at most {JSON_BYTES_MAX} are accepted",
            json.len()
        )));
    }
    let file: Value =
        serde_json::from_slice(json).map_err(|error| not_usable("tokenizer.json", error))?;
    let config: TokenizerConfig = match config {
        Some(config) => serde_json::from_slice(config)
            .map_err(|error| not_usable("tokenizer_config.json", error))?,
        None => TokenizerConfig::default(),
    };
    let spelling = TokenSpelling::of(&file["decoder"])?;
    check_normalizer(&file["normalizer"])?;
    let pipeline = JsonPipeline::new(json)?;
    let tokens = pipeline.tokens()?;
    let unknown = config
        .unk_token
        .as_ref()
        .map(ConfigToken::text)
        .or(file["model"]["unk_token"].as_str());
    let kinds = kinds_of(&pipeline, &tokens, unknown, spelling);
    let mut pieces = StringArena::with_capacity(tokens.len(), 0);
    let mut bytes = StringArena::with_capacity(tokens.len(), 0);
    for (token, kind) in tokens.iter().zip(&kinds) {
        pieces.push(token.as_bytes());
        bytes.push(&spelling.running_bytes(token, *kind));
    }
    pieces.index(|id| !tokens[id as usize].is_empty());
    let id_of = |named: &Option<ConfigToken>| {
        named
            .as_ref()
            .and_then(|named| pieces.find(named.text().as_bytes()))
    };
    let (added_before, added_after) = added_tokens(&pipeline, tokens.len())?;
    let (bos, eos) = (
        id_of(&config.bos_token).or(added_before),
        id_of(&config.eos_token).or(added_after),
    );
    Ok(Tokenizer {
        ends: special_tokens::find(&pieces, &kinds, &[eos]),
        infill: special_tokens::or_known(InfillIds::default(), &pieces),
        warnings: warnings(&config, &pieces, eos),
        controls: super::UserControls::default(),
        longest: std::sync::OnceLock::new(),
        bos,
        eos,
        add_bos: config.add_bos_token.unwrap_or(added_before.is_some()),
        // A post-processor may end prompts with another token than generations.
        prompt_end: match config.add_eos_token {
            Some(false) => None,
            Some(true) => added_after.or(eos),
            None => added_after,
        },
        adds_first_space: spelling.adds_first_space,
        encoder: Encoder::Json(Box::new(pipeline)),
        pieces,
        bytes,
        kinds,
    })
}

/// The tokens that the post-processor puts before and after a prompt.
fn added_tokens(
    pipeline: &JsonPipeline,
    vocab_size: usize,
) -> Result<(Option<u32>, Option<u32>), TokenizerError> {
    let (before, after) = pipeline.added()?;
    let mut added = [before, after].into_iter().flatten();
    match added.find(|id| *id as usize >= vocab_size) {
        None => Ok((before, after)),
        Some(id) => Err(TokenizerError(format!(
            "tokenizer.json is not usable: its post-processor adds token {id} to prompts, and the vocabulary has ids below {vocab_size}"
        ))),
    }
}

impl TokenSpelling {
    fn of(decoder: &Value) -> Result<Self, TokenizerError> {
        let mut spelling = Self::default();
        let steps = match decoder["type"].as_str() {
            Some("Sequence") => decoder["decoders"]
                .as_array()
                .map_or(&[][..], Vec::as_slice),
            _ => std::slice::from_ref(decoder),
        };
        for step in steps {
            match step["type"].as_str() {
                Some("ByteLevel") => spelling.byte_level = true,
                Some("ByteFallback") => spelling.byte_fallback = true,
                Some("Fuse") => {}
                Some("WordPiece") if step["prefix"] == CONTINUED => {
                    spelling.word_piece = true;
                    spelling.adds_first_space = true;
                }
                Some("Replace") if step["pattern"]["String"] == "▁" && step["content"] == " " => {
                    spelling.meta_space = true;
                }
                Some("Strip")
                    if step["content"] == " " && step["start"] == 1 && step["stop"] == 0 =>
                {
                    spelling.adds_first_space = true;
                }
                Some("Metaspace") if step["replacement"] == "▁" => {
                    spelling.meta_space = true;
                    spelling.adds_first_space =
                        step["prepend_scheme"] != "never" && step["add_prefix_space"] != false;
                }
                _ => {
                    return Err(TokenizerError(format!(
                        "tokenizer.json: this decoder is not supported: {step}"
                    )));
                }
            }
        }
        Ok(spelling)
    }

    fn running_bytes(self, token: &str, kind: TokenKind) -> Vec<u8> {
        match kind {
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => Vec::new(),
            TokenKind::Byte => spm::byte_of(token).into_iter().collect(),
            TokenKind::UserDefined => token.as_bytes().to_vec(),
            TokenKind::Normal if self.byte_level => {
                bpe::decode(token).unwrap_or_else(|| token.as_bytes().to_vec())
            }
            TokenKind::Normal if self.word_piece => match token.strip_prefix(CONTINUED) {
                Some(rest) => rest.as_bytes().to_vec(),
                None => format!(" {token}").into_bytes(),
            },
            TokenKind::Normal if self.meta_space => token.replace(spm::SPACE, " ").into_bytes(),
            TokenKind::Normal => token.as_bytes().to_vec(),
        }
    }
}

impl ConfigToken {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Token { content: text } => text,
        }
    }
}

fn kinds_of(
    pipeline: &JsonPipeline,
    tokens: &[String],
    unknown: Option<&str>,
    spelling: TokenSpelling,
) -> Vec<TokenKind> {
    let added: HashMap<u32, bool> = pipeline
        .special
        .get_added_tokens_decoder()
        .iter()
        .map(|(id, token)| (*id, token.special))
        .collect();
    let kind = |(id, token): (usize, &String)| match added.get(&(id as u32)) {
        _ if token.is_empty() => TokenKind::Unused,
        _ if unknown == Some(token.as_str()) => TokenKind::Unknown,
        Some(true) => TokenKind::Control,
        Some(false) => TokenKind::UserDefined,
        None if spelling.byte_fallback && spm::byte_of(token).is_some() => TokenKind::Byte,
        None => TokenKind::Normal,
    };
    tokens.iter().enumerate().map(kind).collect()
}

fn warnings(config: &TokenizerConfig, pieces: &StringArena, eos: Option<u32>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, named) in [("bos", &config.bos_token), ("eos", &config.eos_token)] {
        let missing = named
            .as_ref()
            .filter(|named| pieces.find(named.text().as_bytes()).is_none());
        if let Some(named) = missing {
            warnings.push(format!(
                "the {name} token {:?} is not in the vocabulary",
                named.text()
            ));
        }
    }
    if eos.is_none() && config.eos_token.is_none() {
        warnings.push("no eos token is named; only well-known names end a generation".into());
    }
    warnings
}

impl Tokenizer {
    /// This tokenizer for a model with `embeddings` embeddings whose generations also end with `ends`.
    /// Embeddings without a token become unused tokens; tokens without an embedding are removed, with a
    /// [warning](Self::warnings). The first of `ends` becomes `eos` if there is none.
    ///
    /// # Errors
    /// The model has more embeddings than a vocabulary may have tokens.
    pub fn fit_embeddings(
        mut self,
        embeddings: usize,
        ends: &[u32],
    ) -> Result<Self, TokenizerError> {
        if !(1..=TOKENS_MAX).contains(&embeddings) {
            return Err(TokenizerError(format!(
                "{embeddings} embeddings; a vocabulary has 1 to {TOKENS_MAX}"
            )));
        }
        let tokens = self.pieces.len();
        if tokens > embeddings {
            self.warnings.push(format!(
                "the tokenizer has {tokens} tokens, the model {embeddings} embeddings: the last tokens are left out"
            ));
            for strings in [&mut self.pieces, &mut self.bytes] {
                strings.truncate(embeddings);
            }
            self.kinds.truncate(embeddings);
            let named: Vec<bool> = (0..embeddings as u32)
                .map(|id| self.pieces.get(id).is_some_and(|piece| !piece.is_empty()))
                .collect();
            self.pieces.index(|id| named[id as usize]);
        }
        for _ in tokens..embeddings {
            self.pieces.push(b"");
            self.bytes.push(b"");
            self.kinds.push(TokenKind::Unused);
        }
        let is_token = |id: &u32| (*id as usize) < tokens.min(embeddings);
        let ends = ends.iter().copied().filter(is_token);
        self.eos = self.eos.filter(is_token).or(ends.clone().next());
        self.bos = self.bos.filter(is_token);
        self.prompt_end = self.prompt_end.filter(is_token);
        self.ends.retain(is_token);
        self.ends.extend(ends);
        self.ends.sort_unstable();
        self.ends.dedup();
        Ok(self)
    }
}

/// Bytes that the normalizer may make of one byte of text, all steps together. Public files have 4.
const GROWTH_MAX: usize = 64;
/// Bytes that a step may put before a text.
const PREPENDED_BYTES_MAX: usize = 1 << 10;
/// Nesting of sequences.
const DEPTH_MAX: usize = 8;
/// Base64 of the size at the beginning of a `precompiled_charsmap`.
const SIZE_CHARACTERS: usize = 8;

/// Refuses normalizers whose memory has no bound.
///
/// # Errors
/// A step makes a text too long, or its table is damaged; the message names the step and the bound.
fn check_normalizer(normalizer: &Value) -> Result<(), TokenizerError> {
    let growth = growth(normalizer, DEPTH_MAX).map_err(|why| not_usable("tokenizer.json", why))?;
    if growth > GROWTH_MAX {
        let why = format!("its normalizer makes up to {growth} bytes of one; at most {GROWTH_MAX}");
        return Err(not_usable("tokenizer.json", why));
    }
    Ok(())
}

/// Bytes that a step makes of one byte at most.
fn growth(step: &Value, depth: usize) -> Result<usize, String> {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    match text("type") {
        "Sequence" => {
            if depth == 0 {
                return Err(format!(
                    "normalizer: sequences are nested more than {DEPTH_MAX} deep"
                ));
            }
            let steps = step["normalizers"].as_array().into_iter().flatten();
            steps.into_iter().try_fold(1_usize, |all, step| {
                Ok(all.saturating_mul(growth(step, depth - 1)?))
            })
        }
        "Replace" => {
            let content = text("content").len();
            match step["pattern"]["String"].as_str() {
                Some("") => Err("normalizer: Replace has an empty pattern".to_owned()),
                Some(pattern) => Ok(content.div_ceil(pattern.len()).max(1)),
                None => Ok(content.saturating_add(1)),
            }
        }
        "Prepend" if text("prepend").len() > PREPENDED_BYTES_MAX => Err(format!(
            "normalizer: Prepend has {} bytes; at most {PREPENDED_BYTES_MAX}",
            text("prepend").len()
        )),
        "Precompiled" => check_charsmap(text("precompiled_charsmap")).map(|()| 1),
        _ => Ok(1),
    }
}

/// Compares the size of the table, a number of 32 bits at the beginning, with the data.
fn check_charsmap(charsmap: &str) -> Result<(), String> {
    let begin = charsmap.get(..SIZE_CHARACTERS);
    let begin = begin.and_then(|begin| STANDARD.decode(begin).ok());
    let size = begin.and_then(|begin| begin.first_chunk().copied().map(u32::from_le_bytes));
    let size = size.map_or(usize::MAX, |size| size as usize);
    let data = charsmap.len() / 4 * 3;
    if size > data {
        return Err("normalizer: precompiled_charsmap is shorter than its table".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(normalizer: &Value) -> Option<String> {
        check_normalizer(normalizer)
            .err()
            .map(|why| why.to_string())
    }

    #[test]
    fn normalizers_of_public_files_are_accepted() {
        let metaspace = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            {"type": "NFKC"},
        ]});
        let mut table = 8_u32.to_le_bytes().to_vec();
        table.extend([0; 12]);
        let charsmap =
            json!({"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(table)});
        for normalizer in [Value::Null, metaspace, charsmap] {
            assert_eq!(problem(&normalizer), None, "{normalizer}");
        }
    }

    #[test]
    fn memory_without_a_bound_is_refused() {
        let step = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "a".repeat(9)});
        let rows = [
            (
                json!({"type": "Sequence", "normalizers": [step, step]}),
                "100 bytes of one",
            ),
            (
                json!({"type": "Prepend", "prepend": "a".repeat(2000)}),
                "2000 bytes",
            ),
            (
                json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
                "shorter",
            ),
            (
                json!({"type": "Precompiled", "precompiled_charsmap": null}),
                "shorter",
            ),
            (
                json!({"type": "Replace", "pattern": {"String": ""}, "content": "a"}),
                "empty",
            ),
        ];
        for (normalizer, words) in rows {
            let why = problem(&normalizer).expect("refused");
            assert!(why.contains(words), "{normalizer}: {why}");
        }
    }
}
