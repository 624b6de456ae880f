//! Token ids to the parts of one choice. Pure; allocates only until the buffers have the size that the stream needs.

mod content_entries;
pub mod parts;

pub use parts::PlacedPart;

use crate::output::event::Logprobs;
use crate::output::parser_config::{CallIds, ParserConfig};
use crate::output::position::Position;
use crate::stop::{ONE_CALL, TURN_END};
use content_entries::ContentEntries;
use engine::{Token, TopLogprob};
use parts::PlacedParts;
use std::sync::Arc;
use stream::{End, Stop};
use text::{AnswerParser, Decoder, StopMatcher, Tokenizer};

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
/// their tokens: the entry of a token is emitted with the content that the token's text is a part of.
pub struct OutputPipeline {
    tokenizer: Arc<Tokenizer>,
    options: PipelineOptions,
    decoder: Decoder,
    parser: AnswerParser,
    /// The stop strings while the tokens are those of the prompt.
    matcher: Option<StopMatcher>,
    /// Indices of the stop strings that end the turn.
    turn_ends: Vec<u16>,
    /// Tokens pushed.
    pushed: u64,
    /// The decoder's last output, kept for reuse.
    piece: String,
    parts: PlacedParts,
    /// Entries of content; unused without log-probabilities.
    entries: ContentEntries,
}

impl OutputPipeline {
    /// A pipeline at the start of an answer.
    pub fn new(
        tokenizer: &Arc<Tokenizer>,
        stops: &[String],
        reading: &ParserConfig,
        options: PipelineOptions,
    ) -> Self {
        let decoder = Decoder::new(Arc::clone(tokenizer), options.at_text_start);
        let mut pipeline = Self {
            tokenizer: Arc::clone(tokenizer),
            options,
            decoder: decoder.showing(Arc::clone(reading.shown())),
            parser: reading.parser(),
            turn_ends: reading.turn_ends(stops),
            matcher: (!stops.is_empty()).then(|| StopMatcher::new(stops)),
            pushed: 0,
            piece: String::new(),
            parts: PlacedParts::new(options.call_ids, options.known, options.steps),
            entries: ContentEntries::new(options.logprobs, options.top_n),
        };
        pipeline.watch_stops();
        pipeline
    }

    /// Pushes the next token with `top_n` alternatives, where requested: one step.
    pub fn push(&mut self, token: Token, top: &[TopLogprob]) {
        self.parts.begin_token();
        if self.parser.stop_hit().is_none() {
            if self.options.logprobs {
                self.entries.push_token(token, top);
            }
            self.piece.clear();
            self.decoder.push(token.id, &mut self.piece);
            self.parse_piece();
        }
        self.pushed += 1;
        self.watch_stops();
        self.parts.end_step();
    }

    /// After the last token: releases held-back output, which is one step, and returns the end of the answer.
    pub fn finish(&mut self, end: End) -> End {
        if self.parser.stop_hit().is_none() {
            self.piece.clear();
            self.decoder.finish(&mut self.piece);
            self.parse_piece();
        }
        self.parser.finish(self.parts.buffer());
        self.place_parts();
        if self.options.logprobs {
            self.entries.finish(self.parser.stop_hit().is_some());
            self.parts.add_entries(self.entries.entries.len());
        }
        self.parts.end_step();
        self.log_malformed(end);
        self.final_end(end)
    }

    /// Logs the number of malformed tool calls, without their text. A call that was cut short is not malformed.
    fn log_malformed(&self, end: End) {
        let ended_itself = self.parser.stop_hit().is_none() && end == End::Stop(Stop::Eos);
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
        let end = match (end, self.parser.stop_hit()) {
            (End::Stop(_) | End::Length, Some(hit)) => End::Stop(Stop::StopString(hit.index)),
            (end, _) => end,
        };
        let ends_turn = |index| index == TURN_END || self.turn_ends.contains(&index);
        match end {
            End::Stop(Stop::StopString(ONE_CALL)) => End::Stop(Stop::ToolCalls),
            End::Stop(Stop::StopString(index)) if !ends_turn(index) => end,
            End::Stop(_) if self.parts.calls() > 0 => End::Stop(Stop::ToolCalls),
            End::Stop(Stop::StopString(_)) => End::Stop(Stop::Eos),
            end => end,
        }
    }

    /// Parts that became final since the last [`clear`](Self::clear), each with its log-probabilities.
    pub fn final_parts(&self) -> impl Iterator<Item = (PlacedPart<'_>, Logprobs<'_>)> {
        let (n, mut from) = (self.options.top_n, 0);
        self.parts.iter().map(move |placed| {
            let entries = std::mem::replace(&mut from, placed.entries)..placed.entries;
            let list = Logprobs {
                tokenizer: &self.tokenizer,
                top: &self.entries.top[entries.start * n..entries.end * n],
                entries: &self.entries.entries[entries],
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
        self.entries.clear(entries);
    }

    /// Looks for stop strings from the first token on that is not the prompt's.
    fn watch_stops(&mut self) {
        if self.pushed >= self.options.echoed
            && let Some(matcher) = self.matcher.take()
        {
            self.parser.stop_at(matcher);
        }
    }

    /// Parses the decoder's last output.
    fn parse_piece(&mut self) {
        if self.options.logprobs {
            self.entries.push_text(&self.piece);
        }
        self.parser.push(&self.piece, self.parts.buffer());
        self.place_parts();
    }

    /// Places the parts that the parser appended, each with the entries of its tokens.
    fn place_parts(&mut self) {
        if !self.options.logprobs {
            return self.parts.place_new(0);
        }
        let held = self.parser.held_bytes();
        self.entries.locate(self.parts.unplaced(), held);
        let count = self.parts.unplaced().len();
        for part in 0..count {
            self.entries.assign(part);
            self.parts.place_next(self.entries.entries.len());
        }
        self.entries.drop_consumed();
    }
}

#[cfg(test)]
mod tests;
