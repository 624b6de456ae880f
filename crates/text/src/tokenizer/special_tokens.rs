//! Search for control and user-defined tokens in text before pre-tokenization.

use super::error::TokenizerError;
use super::string_arena::StringArena;
use crate::TokenKind;
use aho_corasick::{AhoCorasick, MatchKind};

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

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> SpecialTokens {
        let mut pieces = StringArena::with_capacity(0, 0);
        let tokens = ["<s>", "<s>x", "  ", "<r>", "<l>", "plain"];
        tokens
            .iter()
            .for_each(|token| pieces.push(token.as_bytes()));
        use TokenKind::{Control, Normal, UserDefined};
        let kinds = [Control, Control, UserDefined, Control, Control, Normal];
        SpecialTokens::new(&pieces, &kinds, |id| match id {
            3 => AbsorbedSpace::Right,
            4 => AbsorbedSpace::Left,
            _ => AbsorbedSpace::Nothing,
        })
        .unwrap()
    }

    #[test]
    fn fragments() {
        for (label, text, special, expected) in [
            ("nothing", "", true, ""),
            ("plain text", "a plain b", true, "[a plain b]"),
            ("control", "a<s>b", true, "[a]0[b]"),
            ("control as text", "a<s>b", false, "[a<s>b]"),
            ("longest", "<s>x<s>y", true, "10[y]"),
            ("user-defined always", "a  b", false, "[a]2[b]"),
            ("takes what follows", "a<r> \n\tb", true, "[a]3[b]"),
            ("takes what stands before", "a \n<l>b", true, "[a]4[b]"),
            ("takes all before", "  <r>   <l>", true, "234"),
            ("overlap goes to the left one", "   ", true, "2[ ]"),
        ] {
            let mut given = String::new();
            let result: Result<(), ()> = specials().split(text, special, |fragment| {
                given += &match fragment {
                    Fragment::Text(text) => format!("[{text}]"),
                    Fragment::Token(id) => id.to_string(),
                };
                Ok(())
            });
            result.unwrap();
            assert_eq!(given, expected, "{label}");
        }
    }
}
