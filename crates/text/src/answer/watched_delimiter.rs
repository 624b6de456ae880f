//! One delimiter, and the tokens that straddle or complete the delimiter.

use super::call_syntax::CallSyntax;

/// One delimiter of a family.
pub(super) struct WatchedDelimiter {
    pub(super) text: &'static str,
    pub(super) counts: WatchPlace,
    pub(super) form: Option<CallSyntax>,
    /// By the number of bytes already present: tokens that extend past the end of the delimiter.
    pub(super) beyond: Vec<Vec<u32>>,
    /// By the number of bytes already present (at least one): tokens that complete the delimiter.
    pub(super) whole: Vec<Vec<u32>>,
}

/// Where a delimiter is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchPlace {
    Anywhere,
    /// Only before any content since the last delimiter.
    Start,
    /// A separator, which is not content.
    Between,
}

impl WatchedDelimiter {
    pub(super) fn new(text: &'static str, counts: WatchPlace, form: Option<CallSyntax>) -> Self {
        Self {
            text,
            counts,
            form,
            beyond: vec![Vec::new(); text.len()],
            whole: vec![Vec::new(); text.len()],
        }
    }

    /// Registers a token that completes or straddles the delimiter from any position in the delimiter.
    pub(super) fn note(&mut self, id: u32, text: &[u8]) {
        let mark = self.text.as_bytes();
        for (there, whole) in self.whole.iter_mut().enumerate().skip(1) {
            if text == &mark[there..] {
                whole.push(id);
            }
        }
        for (there, beyond) in self.beyond.iter_mut().enumerate() {
            let rest = &mark[there..];
            let goes = match there {
                0 => self.counts == WatchPlace::Anywhere && goes_beyond(text, mark),
                _ => text.len() > rest.len() && text.starts_with(rest),
            };
            if goes {
                beyond.push(id);
            }
        }
    }
}

/// Whether a text contains the delimiter anywhere except at the end.
pub(super) fn goes_beyond(text: &[u8], mark: &[u8]) -> bool {
    let inside = &text[..text.len().saturating_sub(1)];
    inside.windows(mark.len()).any(|part| part == mark)
}
