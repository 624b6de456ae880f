//! Stop strings, and the end of the only tool call, as stop conditions of the engine.

use crate::output::parser_config::ParserConfig;
use std::sync::Arc;
use text::{AnswerParser, AnswerParts, Decoder, Part, StopMatcher, Tokenizer};

/// Stops the engine when a stop string is complete in the content. Decoder and parser are those of the output pipeline, so
/// both find the same end.
pub struct StopStrings {
    decoder: Decoder,
    parser: AnswerParser,
    /// Whether the answer also ends after a tool call.
    single_call: bool,
    /// Indices of the stop strings that end the turn.
    turn_ends: Vec<u16>,
    piece: String,
    /// Parts of the answer that end with the current token.
    parts: AnswerParts,
}

/// Stands for the index of a stop string where the answer ends with the only tool call.
pub const ONE_CALL: u16 = u16::MAX;
/// Stands for the index of a stop string of the chat template, which ends the turn.
pub const TURN_END: u16 = u16::MAX - 1;

impl StopStrings {
    /// A stop condition at the start of an answer that is parsed in this way.
    pub fn new(
        tokenizer: &Arc<Tokenizer>,
        at_text_start: bool,
        reading: &ParserConfig,
        stops: &[String],
    ) -> Self {
        let decoder = Decoder::new(Arc::clone(tokenizer), at_text_start);
        let mut parser = reading.parser();
        if !stops.is_empty() {
            parser.stop_at(StopMatcher::new(stops));
        }
        Self {
            decoder: decoder.showing(Arc::clone(reading.shown())),
            parser,
            single_call: false,
            turn_ends: reading.turn_ends(stops),
            piece: String::new(),
            parts: AnswerParts::default(),
        }
    }

    /// This condition, which also ends the answer after a tool call.
    pub fn after_one_call(self, single_call: bool) -> Self {
        Self {
            single_call,
            ..self
        }
    }
}

impl engine::StopCondition for StopStrings {
    fn push(&mut self, token: u32) -> Option<u16> {
        self.piece.clear();
        self.decoder.push(token, &mut self.piece);
        self.parser.push(&self.piece, &mut self.parts);
        let mut called = false;
        self.parts
            .drain_into(|part| called |= matches!(part, Part::CallEnd { .. }));
        let ends_turn = |index: &u16| self.turn_ends.contains(index);
        let hit = self.parser.stop_hit().map(|hit| hit.index);
        let hit = hit.map(|index| if ends_turn(&index) { TURN_END } else { index });
        hit.or((called && self.single_call).then_some(ONE_CALL))
    }
}
