//! Escaping of control tokens in user input, also where a chat template inserts the input between control
//! tokens of the template.
//!
//! Before rendering, each control token's text in the input is put between two sentinels, which are Unicode
//! noncharacters. Templates copy the sentinels. After rendering, the text between an opening and the next
//! closing sentinel is ordinary text, and the sentinels are removed.
//!
//! Input cannot forge sentinels: existing ones are removed first. A template that cuts a string leaves
//! unpaired sentinels, or pairs around other text: a pair counts only around exactly one control token's
//! text, and all other sentinels are removed.

use aho_corasick::{AhoCorasick, MatchKind};
use std::borrow::Cow;

const OPEN: char = '\u{FDD0}';
const CLOSE: char = '\u{FDD1}';

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

fn without_marks(typed: &str) -> Cow<'_, str> {
    if typed.contains([OPEN, CLOSE]) {
        Cow::Owned(typed.replace([OPEN, CLOSE], ""))
    } else {
        Cow::Borrowed(typed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bpe_spec;
    use super::*;
    use crate::{ChatTemplate, Message, RenderInput, Tokenizer};

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_vocab(bpe_spec()).unwrap()
    }

    /// The first control token with a text of more than two bytes.
    fn control(tokenizer: &Tokenizer) -> (u32, String) {
        let mut ids = (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_control(id));
        let id = ids
            .find(|&id| tokenizer.piece(id).is_some_and(|text| text.len() > 2))
            .unwrap();
        (id, tokenizer.piece(id).unwrap().to_owned())
    }

    #[test]
    fn escaped_control_tokens_are_text() {
        let tokenizer = tokenizer();
        let (id, text) = control(&tokenizer);
        let forged = format!("{OPEN}{text}{CLOSE}");
        let split = format!("{OPEN}a");
        let rows = [
            ("plain", "a".to_owned(), 1),
            ("typed", text.clone(), 1),
            ("typed twice", format!("{text}{text} a {text}"), 1),
            ("typed with forged marks", forged, 1),
            ("typed marks alone", split, 1),
            (
                "typed around a mark",
                format!("{}{CLOSE}{}", &text[..2], &text[2..]),
                1,
            ),
        ];
        for (label, typed, expected) in rows {
            let rendered = format!("{text}{}a", tokenizer.escape_control_text(&typed));
            let ids = tokenizer.encode_rendered(&rendered).unwrap();
            let found = ids.iter().filter(|found| **found == id).count();
            assert_eq!(found, expected, "{label}: {ids:?}");
            let shown: Vec<u8> = ids
                .iter()
                .flat_map(|id| tokenizer.bytes(*id).unwrap())
                .copied()
                .collect();
            assert!(
                !String::from_utf8_lossy(&shown).contains([OPEN, CLOSE]),
                "{label}"
            );
        }
    }

    #[test]
    fn template_that_cuts_sentinels_keeps_control_tokens() {
        let tokenizer = tokenizer();
        let (id, text) = control(&tokenizer);
        let cut = format!("a{OPEN}{text}b{text}{CLOSE}c");
        let ids = tokenizer.encode_rendered(&cut).unwrap();
        assert_eq!(ids.iter().filter(|found| **found == id).count(), 2);
    }

    #[test]
    fn escaped_text_survives_rendering() {
        let tokenizer = tokenizer();
        let (id, text) = control(&tokenizer);
        let source =
            "{% for m in messages %}TOKEN{{ m.content | tojson }}{{ m.content }}{% endfor %}";
        let template = ChatTemplate::new(&source.replace("TOKEN", &text), "", "").unwrap();
        let message = Message {
            role: "user".into(),
            content: serde_json::json!([{ "type": "text", "text": text }]),
            rest: serde_json::Map::new(),
        };
        let count = |messages: &[Message]| {
            let input = RenderInput {
                messages,
                ..RenderInput::default()
            };
            let rendered = template.render(&input).unwrap();
            let ids = tokenizer.encode_rendered(&rendered).unwrap();
            ids.iter().filter(|found| **found == id).count()
        };
        assert_eq!(
            count(std::slice::from_ref(&message)),
            3,
            "unmarked: the template's and both typed ones"
        );
        assert_eq!(
            count(&[message.with_escaped_text(&tokenizer)]),
            1,
            "marked: the template's"
        );
    }

    #[test]
    fn text_without_control_tokens_is_not_copied() {
        let tokenizer = tokenizer();
        for text in ["", "a plain text", "  two  spaces é 漢"] {
            assert!(matches!(
                tokenizer.escape_control_text(text),
                Cow::Borrowed(_)
            ));
            assert_eq!(
                tokenizer.encode_rendered(text),
                tokenizer.encode_prompt(text, true)
            );
        }
    }
}
