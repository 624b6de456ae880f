//! A regular expression for all texts but a few.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Characters of all excluded texts together, and of one text: the expression grows with their product.
pub const EXCLUDED_CHARS_MAX: usize = 1_000;

/// The expression for all texts but these; `None` where they are too long.
///
/// A text differs from all of them at the first character with which it leaves their common beginnings, so there is an
/// alternative for each beginning: it ends there though none of them does, or goes on as none of them does.
pub(super) fn complement(texts: &[&str]) -> Option<String> {
    let chars: usize = texts.iter().map(|text| text.chars().count()).sum();
    let longest = texts.iter().map(|text| text.chars().count()).max();
    if chars.saturating_mul(longest.unwrap_or(0)) > EXCLUDED_CHARS_MAX * 16
        || chars > EXCLUDED_CHARS_MAX
    {
        return None;
    }
    let mut beginnings = BTreeSet::from([""]);
    for text in texts {
        beginnings.extend(text.char_indices().map(|(at, _)| &text[..at]));
        beginnings.insert(*text);
    }
    let mut alternatives = Vec::new();
    for beginning in &beginnings {
        let next = texts
            .iter()
            .filter_map(|text| text.strip_prefix(beginning)?.chars().next());
        let next: BTreeSet<char> = next.collect();
        let written = written(beginning.chars());
        if !texts.contains(beginning) {
            alternatives.push(written.clone());
        }
        let other = if next.is_empty() {
            r"[\s\S]".to_owned()
        } else {
            format!("[^{}]", self::written(next.into_iter()))
        };
        alternatives.push(format!(r"{written}{other}[\s\S]*"));
    }
    Some(format!("^(?:{})$", alternatives.join("|")))
}

/// Characters in an expression: letters and digits, and escapes of all others.
fn written(chars: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    for c in chars {
        if c.is_ascii_alphanumeric() {
            out.push(c);
        } else {
            _ = write!(out, r"\x{{{:X}}}", c as u32);
        }
    }
    out
}
