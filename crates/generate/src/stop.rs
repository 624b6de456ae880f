//! Stop strings, and the end of the only tool call, as stop conditions of the engine.

use std::sync::Arc;
use text::{AnswerParser, AnswerParts, Decoder, Part, StopMatcher, Tokenizer};

/// Stops the engine when a stop string is complete. Decoder and matcher are those of the output pipeline, so both find
/// the same end.
pub struct StopStrings {
    decoder: Decoder,
    matcher: StopMatcher,
    piece: String,
    /// Text that the matcher lets through.
    through: String,
    /// Finds the end of a tool call, which then ends the answer.
    calls: Option<AnswerParser>,
    /// Parts of the answer that end with the current token.
    parts: AnswerParts,
}

/// Stands for the index of a stop string where the answer ends with the only tool call.
pub const ONE_CALL: u16 = u16::MAX;

impl StopStrings {
    /// A stop condition at the start of an answer.
    pub fn new(
        tokenizer: &Arc<Tokenizer>,
        at_text_start: bool,
        shown: &Arc<[u32]>,
        stops: &[String],
    ) -> Self {
        let decoder = Decoder::new(Arc::clone(tokenizer), at_text_start);
        Self {
            decoder: decoder.showing(Arc::clone(shown)),
            matcher: StopMatcher::new(stops),
            piece: String::new(),
            through: String::new(),
            calls: None,
            parts: AnswerParts::default(),
        }
    }

    /// Adds a parser of the answer, which then also ends after a tool call.
    pub fn after_one_call(self, calls: Option<AnswerParser>) -> Self {
        Self { calls, ..self }
    }
}

impl engine::StopCondition for StopStrings {
    fn push(&mut self, token: u32) -> Option<u16> {
        self.piece.clear();
        self.through.clear();
        self.decoder.push(token, &mut self.piece);
        let hit = self.matcher.push(&self.piece, &mut self.through);
        let mut called = false;
        if let Some(calls) = &mut self.calls {
            calls.push(&self.through, &mut self.parts);
            self.parts
                .drain_into(|part| called |= matches!(part, Part::CallEnd { .. }));
        }
        hit.map(|hit| hit.index).or(called.then_some(ONE_CALL))
    }
}
