//! One text that a watch looks for.

use super::call_form::CallForm;

/// A text with a meaning.
pub(super) struct Mark {
    pub(super) text: &'static str,
    pub(super) counts: Counts,
    pub(super) form: Option<CallForm>,
    /// When so many bytes of it are there, these tokens go beyond its end.
    pub(super) beyond: Vec<Vec<u32>>,
    /// The same of the tokens that make it whole, where some of it is there.
    pub(super) whole: Vec<Vec<u32>>,
}

/// Where a mark counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    Anywhere,
    /// Where nothing was said yet, since the last mark.
    Start,
    /// It is nothing said.
    Between,
}

impl Mark {
    pub(super) fn new(text: &'static str, counts: Counts, form: Option<CallForm>) -> Self {
        Self {
            text,
            counts,
            form,
            beyond: vec![Vec::new(); text.len()],
            whole: vec![Vec::new(); text.len()],
        }
    }

    /// Notes a token of this text if it ends the mark or goes beyond it, from anywhere in it.
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
                0 => self.counts == Counts::Anywhere && goes_beyond(text, mark),
                _ => text.len() > rest.len() && text.starts_with(rest),
            };
            if goes {
                beyond.push(id);
            }
        }
    }
}

/// Whether a mark stands in a text and does not end it.
pub(super) fn goes_beyond(text: &[u8], mark: &[u8]) -> bool {
    let inside = &text[..text.len().saturating_sub(1)];
    inside.windows(mark.len()).any(|part| part == mark)
}
