//! Control and user-defined tokens: their search in text before pre-tokenization, those that end a generation, those of
//! fill-in-the-middle prompts, and their escaping in user input.
//!
//! # Escaping
//! Control tokens in user input are escaped also where a chat template inserts the input between control
//! tokens of the template.
//!
//! Before rendering, each control token's text in the input is put between two sentinels, which are Unicode
//! noncharacters. Templates copy the sentinels. After rendering, the text between an opening and the next
//! closing sentinel is ordinary text, and the sentinels are removed.
//!
//! Input cannot forge sentinels: existing ones are removed first. A template that cuts a string leaves
//! unpaired sentinels, or pairs around other text: a pair counts only around exactly one control token's
//! text, and all other sentinels are removed.

#[cfg(test)]
mod control_escape_tests;
#[cfg(test)]
mod tests;

use super::error::TokenizerError;
use super::string_arena::StringArena;
use crate::{InfillIds, TokenKind};
use aho_corasick::{AhoCorasick, MatchKind};
use std::borrow::Cow;

/// A fragment of a text.
pub(crate) enum Fragment<'t> {
    /// Text to encode.
    Text(&'t str),
    /// A token found in the text.
    Token(u32),
}

/// White space that a token absorbs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbsorbedSpace {
    /// No white space.
    Nothing,
    /// Preceding white space.
    Left,
    /// Following white space.
    Right,
}

/// Finds tokens in text: the leftmost match, and of matches at one position the longest.
pub(crate) struct SpecialTokens {
    /// User-defined tokens, which are always recognized.
    ordinary: TokenFinder,
    /// User-defined, control and unknown tokens, recognized on request.
    all: TokenFinder,
}

#[derive(Default)]
struct TokenFinder {
    /// `None` without patterns.
    automaton: Option<AhoCorasick>,
    /// Tokens by pattern number.
    tokens: Vec<(u32, AbsorbedSpace)>,
}

impl SpecialTokens {
    /// `kinds` has one entry for each token; `strip` returns the white space that a token absorbs.
    pub(crate) fn new(
        pieces: &StringArena,
        kinds: &[TokenKind],
        strip: impl Fn(u32) -> AbsorbedSpace,
    ) -> Result<Self, TokenizerError> {
        let finder = |wanted: &dyn Fn(TokenKind) -> bool| {
            let ids = (0..pieces.len() as u32).filter(|id| wanted(kinds[*id as usize]));
            TokenFinder::new(
                ids.filter(|id| !pieces.get(*id).unwrap_or_default().is_empty()),
                pieces,
                &strip,
            )
        };
        let is_ordinary = |kind| kind == TokenKind::UserDefined;
        let is_special =
            |kind| is_ordinary(kind) || matches!(kind, TokenKind::Control | TokenKind::Unknown);
        Ok(Self {
            ordinary: finder(&is_ordinary)?,
            all: finder(&is_special)?,
        })
    }

    /// Passes the fragments of `text` to `each` in order. Without `special`, control tokens are ordinary
    /// text.
    pub(crate) fn split<'t, E>(
        &self,
        text: &'t str,
        special: bool,
        mut each: impl FnMut(Fragment<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let finder = if special { &self.all } else { &self.ordinary };
        let mut done = 0;
        for found in finder
            .automaton
            .iter()
            .flat_map(|automaton| automaton.find_iter(text))
        {
            // A match may begin in white space that the previous match absorbed.
            if found.start() < done {
                continue;
            }
            let (id, strip) = finder.tokens[found.pattern().as_usize()];
            let mut before = &text[done..found.start()];
            done = found.end();
            match strip {
                AbsorbedSpace::Nothing => {}
                AbsorbedSpace::Left => before = before.trim_end_matches(is_blank),
                AbsorbedSpace::Right => {
                    done = text.len() - text[done..].trim_start_matches(is_blank).len();
                }
            }
            if !before.is_empty() {
                each(Fragment::Text(before))?;
            }
            each(Fragment::Token(id))?;
        }
        if done < text.len() {
            each(Fragment::Text(&text[done..]))?;
        }
        Ok(())
    }
}

impl TokenFinder {
    fn new(
        ids: impl Iterator<Item = u32>,
        pieces: &StringArena,
        strip: impl Fn(u32) -> AbsorbedSpace,
    ) -> Result<Self, TokenizerError> {
        let tokens: Vec<_> = ids.map(|id| (id, strip(id))).collect();
        if tokens.is_empty() {
            return Ok(Self::default());
        }
        let patterns = tokens
            .iter()
            .map(|(id, _)| pieces.get(*id).unwrap_or_default());
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns)
            .map_err(|error| TokenizerError(format!("too many special tokens: {error}")))?;
        Ok(Self {
            automaton: Some(automaton),
            tokens,
        })
    }
}

/// White space as in C's `isspace`.
fn is_blank(written: char) -> bool {
    matches!(written, ' ' | '\t'..='\r')
}

/// Well-known names of end-of-turn and end-of-text tokens, which count whatever the file says.
const KNOWN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Fill-in-the-middle models begin the next file with these tokens.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<|file_sep|>",
];

/// Tokens that end a generation, sorted: the ids in `named`, and control or user-defined tokens with
/// well-known names.
pub(crate) fn find(pieces: &StringArena, kinds: &[TokenKind], named: &[Option<u32>]) -> Vec<u32> {
    let id_of = |name: &str| {
        let id = pieces.find(name.as_bytes())?;
        matches!(
            kinds[id as usize],
            TokenKind::Control | TokenKind::UserDefined
        )
        .then_some(id)
    };
    let mut ends: Vec<u32> = KNOWN.iter().filter_map(|name| id_of(name)).collect();
    // Harmony vocabularies end a message with <|end|>, and a turn with <|return|> or <|call|>; generation
    // continues after a message.
    let has = |name| id_of(name).is_some();
    let is_harmony = has("<|return|>") && has("<|call|>")
        || has("<|flush|>") && (has("<|call|>") || has("<|calls|>"));
    if is_harmony && let Some(end) = id_of("<|end|>") {
        ends.retain(|id| *id != end);
    }
    // In Gemma 4 this is a tag of HTML.
    if let (Some(_), Some(tag)) = (id_of("<|tool_response>"), id_of("</s>")) {
        ends.retain(|id| *id != tag);
    }
    ends.extend(named.iter().flatten());
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Tokens with which a fill-in-the-middle prompt can be written: a model reads the text before and after a gap, and writes
/// the text of the gap. A GGUF file names the tokens (`tokenizer.ggml.fim_pre_token_id` and others); of files that do not,
/// they are found by the texts that llama.cpp knows.
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

/// Begins what only this program writes into a rendered text.
pub(crate) const OPEN: char = '\u{FDD0}';
/// Ends it.
pub(crate) const CLOSE: char = '\u{FDD1}';

/// Whether a character marks the beginning or the end of a control token's text in user input.
pub(crate) fn is_mark(c: char) -> bool {
    matches!(c, OPEN | CLOSE)
}

/// Finds the texts of control tokens.
pub(super) struct ControlTexts {
    /// `None` for a vocabulary without control tokens.
    automaton: Option<AhoCorasick>,
}

impl ControlTexts {
    /// From the texts of a vocabulary's control tokens.
    pub(super) fn new<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
        // The vocabulary's bounds keep the automaton within its limits.
        let build = || {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&texts)
        };
        Self {
            automaton: (!texts.is_empty()).then(build).and_then(Result::ok),
        }
    }

    /// `typed` with each control token's text between sentinels.
    pub(super) fn mark<'t>(&self, typed: &'t str) -> Cow<'t, str> {
        let typed = without_marks(typed);
        let Some(automaton) = &self.automaton else {
            return typed;
        };
        let (mut marked, mut done) = (String::new(), 0);
        for found in automaton.find_iter(typed.as_ref()) {
            marked.push_str(&typed[done..found.start()]);
            marked.push(OPEN);
            marked.push_str(&typed[found.range()]);
            marked.push(CLOSE);
            done = found.end();
        }
        if done == 0 {
            return typed;
        }
        marked.push_str(&typed[done..]);
        Cow::Owned(marked)
    }

    /// Whether the text is exactly one control token's text.
    fn is_one(&self, text: &str) -> bool {
        let found = self
            .automaton
            .as_ref()
            .and_then(|automaton| automaton.find(text));
        found.is_some_and(|found| found.range() == (0..text.len()))
    }

    /// Passes the pieces of a rendered text to `each` in order, with `true` where control tokens are
    /// recognized.
    pub(super) fn pieces<E>(
        &self,
        rendered: &str,
        mut each: impl FnMut(&str, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut meant = String::new();
        let mut rest = rendered;
        while let Some(at) = rest.find([OPEN, CLOSE]) {
            meant.push_str(&rest[..at]);
            let after = &rest[at + OPEN.len_utf8()..];
            let typed = rest[at..]
                .starts_with(OPEN)
                .then(|| after.split_once(CLOSE))
                .flatten();
            match typed {
                Some((text, further)) if self.is_one(text) => {
                    each(&std::mem::take(&mut meant), true)?;
                    each(text, false)?;
                    rest = further;
                }
                _ => rest = after,
            }
        }
        meant.push_str(rest);
        each(&meant, true)
    }
}

/// Where a template wrote this text: occurrences in a rendered text that no user typed, provided that user input with the text is
/// escaped ([`crate::Tokenizer::reserving`]).
pub fn template_texts<'t>(rendered: &'t str, text: &'t str) -> impl Iterator<Item = usize> + 't {
    let starts = rendered.match_indices(text).map(|(start, _)| start);
    starts.filter(|&start| !rendered[..start].ends_with(OPEN))
}

fn without_marks(typed: &str) -> Cow<'_, str> {
    if typed.contains([OPEN, CLOSE]) {
        Cow::Owned(typed.replace([OPEN, CLOSE], ""))
    } else {
        Cow::Borrowed(typed)
    }
}
