//! Stop strings as the engine sees them.

use std::sync::Arc;
use text::{Decoder, StopMatcher, Tokenizer};

/// Tells the engine that a stop string is complete: the same decoder and the same matcher as the
/// fold's, so both find the same end.
pub(crate) struct StopTerminator {
    decoder: Decoder,
    matcher: StopMatcher,
    piece: String,
    /// What the matcher lets through; nobody reads it here.
    through: String,
}

impl StopTerminator {
    /// At the start of an answer.
    pub(crate) fn new(
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
        }
    }
}

impl engine::Terminator for StopTerminator {
    fn push(&mut self, token: u32) -> Option<u16> {
        self.piece.clear();
        self.through.clear();
        self.decoder.push(token, &mut self.piece);
        self.matcher
            .push(&self.piece, &mut self.through)
            .map(|hit| hit.index)
    }
}
