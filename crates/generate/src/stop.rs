//! Stop strings, and the end of the one call there may be, as the engine sees them.

use std::sync::Arc;
use text::{AnswerParser, AnswerParts, Decoder, Part, StopMatcher, Tokenizer};

/// Tells the engine that a stop string is complete: the same decoder and the same matcher as the
/// fold's, so both find the same end.
pub struct StopStrings {
    decoder: Decoder,
    matcher: StopMatcher,
    piece: String,
    /// What the matcher lets through.
    through: String,
    /// Looks for the end of a call, which then is the answer's.
    calls: Option<AnswerParser>,
    /// Parts of the answer that end with the current token.
    parts: AnswerParts,
}

/// Stands for the index of a stop string where an answer ends because it may call but once.
pub const ONE_CALL: u16 = u16::MAX;

impl StopStrings {
    /// At the start of an answer.
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

    /// The same; with a parser of its answer it also ends that after a call.
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
