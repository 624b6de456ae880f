//! Token ids to the parts of one choice. Pure; allocates only until the buffers have the size that the stream needs.

pub mod parts;

pub use parts::PlacedPart;

use crate::output::event::{Entry, Logprobs};
use crate::output::parser_config::{CallIds, ParserConfig};
use crate::output::position::Position;
use crate::stop::ONE_CALL;
use engine::{Token, TopLogprob};
use parts::PlacedParts;
use std::collections::VecDeque;
use std::sync::Arc;
use stream::{End, Stop};
use text::{AnswerParser, Decoder, StopMatcher, Tokenizer};

/// Initial capacity for log-probability entries that wait for their text.
const HELD_ENTRIES: usize = 64;

/// Options of one choice.
#[derive(Clone, Copy, Debug)]
pub struct PipelineOptions {
    /// Whether the first token begins a text.
    pub at_text_start: bool,
    /// Whether log-probabilities are emitted.
    pub logprobs: bool,
    /// Alternatives per token.
    pub top_n: usize,
    /// Ids of tool calls.
    pub call_ids: CallIds,
    /// The reader's position.
    pub known: Position,
    /// Steps before the first token.
    pub steps: u64,
    /// Prompt tokens at the beginning: stop strings do not match within them.
    pub echoed: u64,
}

/// The output pipeline of one choice. Emitted text is final. Stop strings never leak, and neither do log-probabilities of
/// their tokens: an entry is emitted once text beyond the beginning of the token is.
pub struct OutputPipeline {
    tokenizer: Arc<Tokenizer>,
    options: PipelineOptions,
    decoder: Decoder,
    matcher: Option<StopMatcher>,
    hit: Option<u16>,
    /// Tokens pushed.
    pushed: u64,
    parser: AnswerParser,
    /// The decoder's last output, and the part that the matcher let through; kept for reuse.
    piece: String,
    text: String,
    /// Bytes and characters decoded, and bytes let through by the matcher, since the beginning.
    decoded: u64,
    decoded_chars: u64,
    through: u64,
    held: VecDeque<Entry>,
    held_top: VecDeque<TopLogprob>,
    parts: PlacedParts,
    entries: Vec<Entry>,
    top: Vec<TopLogprob>,
}

impl OutputPipeline {
    /// A pipeline at the start of an answer.
    pub fn new(
        tokenizer: &Arc<Tokenizer>,
        stops: &[String],
        reading: &ParserConfig,
        options: PipelineOptions,
    ) -> Self {
        let held = if options.logprobs { HELD_ENTRIES } else { 0 };
        let decoder = Decoder::new(Arc::clone(tokenizer), options.at_text_start);
        Self {
            tokenizer: Arc::clone(tokenizer),
            options,
            decoder: decoder.showing(Arc::clone(reading.shown())),
            matcher: (!stops.is_empty()).then(|| StopMatcher::new(stops)),
            hit: None,
            pushed: 0,
            parser: reading.parser(),
            piece: String::new(),
            text: String::new(),
            decoded: 0,
            decoded_chars: 0,
            through: 0,
            held: VecDeque::with_capacity(held),
            held_top: VecDeque::with_capacity(held * options.top_n),
            parts: PlacedParts::new(options.call_ids, options.known, options.steps),
            entries: Vec::with_capacity(held),
            top: Vec::with_capacity(held * options.top_n),
        }
    }

    /// Pushes the next token with `top_n` alternatives, where requested: one step.
    pub fn push(&mut self, token: Token, top: &[TopLogprob]) {
        self.parts.begin_token();
        self.pushed += 1;
        if self.hit.is_none() {
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
            self.release_entries(self.through);
            self.parse_text();
        }
        self.parts.end_step();
    }

    /// After the last token: releases held-back output, which is one step, and returns the end of the answer.
    pub fn finish(&mut self, end: End) -> End {
        if self.hit.is_none() {
            self.piece.clear();
            self.decoder.finish(&mut self.piece);
            self.take_piece();
        }
        if self.hit.is_none() {
            if let Some(matcher) = &mut self.matcher {
                matcher.finish(&mut self.text);
            }
            self.release_entries(u64::MAX);
        } else {
            self.release_entries(self.through);
        }
        self.parse_text();
        let entries = self.entries.len();
        self.parser.finish(self.parts.buffer());
        self.parts.place_new(entries);
        self.parts.add_entries(entries);
        self.parts.end_step();
        self.log_malformed(end);
        self.final_end(end)
    }

    /// Logs the number of malformed tool calls, without their text. A call that was cut short is not malformed.
    fn log_malformed(&self, end: End) {
        let ended_itself = self.hit.is_none() && end == End::Stop(Stop::Eos);
        let unfinished = ended_itself && self.parser.ends_in_call();
        let malformed = self.parser.broken_calls() + u32::from(unfinished);
        if malformed > 0 {
            tracing::info!(
                malformed,
                "an answer contained malformed tool calls: they were sent as text"
            );
        }
    }

    fn final_end(&self, end: End) -> End {
        match (end, self.hit) {
            (End::Stop(_) | End::Length, Some(index)) => End::Stop(Stop::StopString(index)),
            (End::Stop(Stop::StopString(ONE_CALL)), None) => End::Stop(Stop::ToolCalls),
            (End::Stop(Stop::Eos), None) if self.parts.calls() > 0 => End::Stop(Stop::ToolCalls),
            (end, _) => end,
        }
    }

    /// Parts that became final since the last [`clear`](Self::clear), each with its log-probabilities.
    pub fn final_parts(&self) -> impl Iterator<Item = (PlacedPart<'_>, Logprobs<'_>)> {
        let (n, mut from) = (self.options.top_n, 0);
        self.parts.iter().map(move |placed| {
            let entries = std::mem::replace(&mut from, placed.entries)..placed.entries;
            let list = Logprobs {
                tokenizer: &self.tokenizer,
                top: &self.top[entries.start * n..entries.end * n],
                entries: &self.entries[entries],
                top_n: n,
            };
            (placed, list)
        })
    }

    /// Empty log-probabilities, for text that came from no token.
    pub fn no_logprobs(&self) -> Logprobs<'_> {
        Logprobs {
            tokenizer: &self.tokenizer,
            entries: &[],
            top: &[],
            top_n: self.options.top_n,
        }
    }

    /// Reasoning tokens so far, independent of how the tokens were grouped.
    pub fn reasoning_tokens(&self) -> u64 {
        self.parts.reasoning_tokens()
    }

    /// Whether there is output beyond the reader's position.
    pub fn has_news(&self) -> bool {
        self.parts.has_news()
    }

    /// Forgets emitted output.
    pub fn clear(&mut self) {
        let entries = self.parts.clear();
        self.entries.drain(..entries);
        self.top.drain(..entries * self.options.top_n);
    }

    /// Parses text that the matcher let through.
    fn parse_text(&mut self) {
        self.parser.push(&self.text, self.parts.buffer());
        self.parts.place_new(self.entries.len());
        self.text.clear();
    }

    fn take_piece(&mut self) {
        self.decoded += self.piece.len() as u64;
        if self.options.logprobs {
            self.decoded_chars += self.piece.chars().count() as u64;
        }
        let before = self.text.len();
        let watched = self.pushed > self.options.echoed;
        match self.matcher.as_mut().filter(|_| watched) {
            Some(matcher) => {
                self.hit = matcher
                    .push(&self.piece, &mut self.text)
                    .map(|hit| hit.index);
            }
            None => self.text.push_str(&self.piece),
        }
        self.through += (self.text.len() - before) as u64;
    }

    /// Releases the entries of tokens that begin before `through`.
    fn release_entries(&mut self, through: u64) {
        while self.held.front().is_some_and(|entry| entry.start < through) {
            self.entries.extend(self.held.pop_front());
            self.top.extend(self.held_top.drain(..self.options.top_n));
        }
    }
}

#[cfg(test)]
mod tests;
