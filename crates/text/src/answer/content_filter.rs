//! Stop strings of an answer. They act on content only: reasoning and arguments of tool calls may contain them.

use super::answer_parts::{AnswerParts, Part};
use crate::stop::{StopHit, StopMatcher};

/// Passes parts on until a stop string is complete in the content. Content that may be the beginning of a stop string is held
/// back, and passed on when another part follows: stop strings do not span parts.
#[derive(Debug)]
pub(super) struct ContentFilter {
    matcher: StopMatcher,
    /// Parts of one piece of text, before the filter.
    parsed: AnswerParts,
    hit: Option<StopHit>,
    /// Bytes of content from the stop string on.
    stopped_bytes: usize,
}

impl ContentFilter {
    pub(super) fn new(matcher: StopMatcher) -> Self {
        Self {
            matcher,
            parsed: AnswerParts::default(),
            hit: None,
            stopped_bytes: 0,
        }
    }

    /// The stop string that was found, which ends the answer.
    pub(super) fn hit(&self) -> Option<StopHit> {
        self.hit
    }

    /// The buffer for the parts of the next piece of text; then [`pass`](Self::pass).
    pub(super) fn buffer(&mut self) -> &mut AnswerParts {
        &mut self.parsed
    }

    /// Bytes of content that were parsed and not passed on.
    pub(super) fn held_bytes(&self) -> usize {
        self.matcher.held_bytes() + self.stopped_bytes
    }

    /// Passes the parts of the buffer on.
    pub(super) fn pass(&mut self, out: &mut AnswerParts) {
        out.close();
        for part in self.parsed.iter() {
            match part {
                Part::Content(text) => {
                    let (held, before) = (self.matcher.held_bytes(), out.text_len());
                    self.hit = self.matcher.push(text, out.extend(Part::Content));
                    if self.hit.is_some() {
                        let passed = out.text_len() - before;
                        self.stopped_bytes = held + text.len() - passed;
                        break;
                    }
                }
                part => {
                    if self.matcher.held_bytes() > 0 {
                        self.matcher.finish(out.extend(Part::Content));
                    }
                    out.append(part);
                }
            }
        }
        out.close();
        self.parsed.clear();
    }

    /// Passes on the parts of the buffer, which are the answer's last, and the held content.
    pub(super) fn finish(&mut self, out: &mut AnswerParts) {
        self.pass(out);
        if self.hit.is_none() {
            self.matcher.finish(out.extend(Part::Content));
            out.close();
        }
    }
}
