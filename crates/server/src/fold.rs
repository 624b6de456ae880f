//! Token ids to text, one choice at a time: pure, and without allocation once its buffers have
//! grown to what the stream needs.

use crate::event::{Entry, Logprobs};
use engine::{Token, TopLogprob};
use std::collections::VecDeque;
use std::sync::Arc;
use stream::{End, Stop};
use text::{Decoder, StopMatcher, Tokenizer};

/// Room for log-probability entries that wait for their text, before it has to grow.
const HELD_ENTRIES: usize = 64;

/// What the fold needs to know of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FoldOptions {
    pub(crate) at_text_start: bool,
    pub(crate) logprobs: bool,
    pub(crate) top_n: usize,
}

/// The fold of one choice. Text given out is final; stop strings never leak, and neither do the
/// log-probabilities of their tokens: an entry is given once some text beyond the token's
/// beginning is out.
pub(crate) struct Fold {
    tokenizer: Arc<Tokenizer>,
    options: FoldOptions,
    decoder: Decoder,
    matcher: Option<StopMatcher>,
    hit: Option<u16>,
    /// What the decoder just gave; lives here to be reused.
    piece: String,
    /// Bytes and characters decoded, and bytes let through by the matcher, since the beginning.
    decoded: u64,
    decoded_chars: u64,
    through: u64,
    held: VecDeque<Entry>,
    held_top: VecDeque<TopLogprob>,
    text: String,
    entries: Vec<Entry>,
    top: Vec<TopLogprob>,
}

impl Fold {
    /// At the start of an answer.
    pub(crate) fn new(tokenizer: &Arc<Tokenizer>, stops: &[String], options: FoldOptions) -> Self {
        let held = if options.logprobs { HELD_ENTRIES } else { 0 };
        Self {
            tokenizer: Arc::clone(tokenizer),
            options,
            decoder: Decoder::new(Arc::clone(tokenizer), options.at_text_start),
            matcher: (!stops.is_empty()).then(|| StopMatcher::new(stops)),
            hit: None,
            piece: String::new(),
            decoded: 0,
            decoded_chars: 0,
            through: 0,
            held: VecDeque::with_capacity(held),
            held_top: VecDeque::with_capacity(held * options.top_n),
            text: String::new(),
            entries: Vec::with_capacity(held),
            top: Vec::with_capacity(held * options.top_n),
        }
    }

    /// Takes the next token and, where asked for, its `top_n` alternatives.
    pub(crate) fn push(&mut self, token: Token, top: &[TopLogprob]) {
        if self.hit.is_some() {
            return;
        }
        if self.options.logprobs {
            debug_assert_eq!(top.len(), self.options.top_n);
            self.held.push_back(Entry {
                token,
                start: self.decoded,
                start_chars: self.decoded_chars,
            });
            self.held_top.extend(top);
        }
        self.piece.clear();
        self.decoder.push(token.id, &mut self.piece);
        self.take_piece();
        self.release(self.through);
    }

    /// The tokens are over: gives what was held back, and says how the answer ended.
    pub(crate) fn finish(&mut self, end: End) -> End {
        if self.hit.is_none() {
            self.piece.clear();
            self.decoder.finish(&mut self.piece);
            self.take_piece();
        }
        if let Some(index) = self.hit {
            self.release(self.through);
            return if matches!(end, End::Stop(_) | End::Length) {
                End::Stop(Stop::StopString(index))
            } else {
                end
            };
        }
        if let Some(matcher) = &mut self.matcher {
            matcher.finish(&mut self.text);
        }
        self.release(u64::MAX);
        end
    }

    /// Text that became certain since the last [`clear`](Self::clear).
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The log-probabilities that go with it.
    pub(crate) fn logprobs(&self) -> Logprobs<'_> {
        Logprobs {
            tokenizer: &self.tokenizer,
            entries: &self.entries,
            top: &self.top,
            top_n: self.options.top_n,
        }
    }

    /// None, for text that came from no token.
    pub(crate) fn no_logprobs(&self) -> Logprobs<'_> {
        Logprobs {
            entries: &[],
            top: &[],
            ..self.logprobs()
        }
    }

    /// Whether there is anything to tell.
    pub(crate) fn has_news(&self) -> bool {
        !self.text.is_empty() || !self.entries.is_empty()
    }

    /// Forgets what was told.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.entries.clear();
        self.top.clear();
    }

    fn take_piece(&mut self) {
        self.decoded += self.piece.len() as u64;
        if self.options.logprobs {
            self.decoded_chars += self.piece.chars().count() as u64;
        }
        let before = self.text.len();
        match &mut self.matcher {
            Some(matcher) => {
                self.hit = matcher
                    .push(&self.piece, &mut self.text)
                    .map(|hit| hit.index);
            }
            None => self.text.push_str(&self.piece),
        }
        self.through += (self.text.len() - before) as u64;
    }

    /// Gives the entries of tokens that begin before `through`.
    fn release(&mut self, through: u64) {
        while self.held.front().is_some_and(|entry| entry.start < through) {
            self.entries.extend(self.held.pop_front());
            self.top.extend(self.held_top.drain(..self.options.top_n));
        }
    }
}

#[cfg(test)]
mod tests;
