//! Adaptation of a `tokenizer.json` to a model: the file contains neither the number of embeddings nor all
//! tokens that end a generation.

use super::Tokenizer;
use super::error::TokenizerError;
use crate::TokenKind;
use crate::vocab::TOKENS_MAX;

impl Tokenizer {
    /// This tokenizer for a model with `embeddings` embeddings whose generations also end with `ends`.
    /// Embeddings without a token become unused tokens; tokens without an embedding are removed, with a
    /// [warning](Self::warnings). The first of `ends` becomes `eos` if there is none.
    ///
    /// # Errors
    /// The model has more embeddings than a vocabulary may have tokens.
    pub fn fit_embeddings(
        mut self,
        embeddings: usize,
        ends: &[u32],
    ) -> Result<Self, TokenizerError> {
        if !(1..=TOKENS_MAX).contains(&embeddings) {
            return Err(TokenizerError(format!(
                "{embeddings} embeddings; a vocabulary has 1 to {TOKENS_MAX}"
            )));
        }
        let tokens = self.pieces.len();
        if tokens > embeddings {
            self.warnings.push(format!(
                "the tokenizer has {tokens} tokens, the model {embeddings} embeddings: the last tokens are left out"
            ));
            for strings in [&mut self.pieces, &mut self.bytes] {
                strings.truncate(embeddings);
            }
            self.kinds.truncate(embeddings);
            let named: Vec<bool> = (0..embeddings as u32)
                .map(|id| self.pieces.get(id).is_some_and(|piece| !piece.is_empty()))
                .collect();
            self.pieces.index(|id| named[id as usize]);
        }
        for _ in tokens..embeddings {
            self.pieces.push(b"");
            self.bytes.push(b"");
            self.kinds.push(TokenKind::Unused);
        }
        let is_token = |id: &u32| (*id as usize) < tokens.min(embeddings);
        let ends = ends.iter().copied().filter(is_token);
        self.eos = self.eos.filter(is_token).or(ends.clone().next());
        self.bos = self.bos.filter(is_token);
        self.prompt_end = self.prompt_end.filter(is_token);
        self.ends.retain(is_token);
        self.ends.extend(ends);
        self.ends.sort_unstable();
        self.ends.dedup();
        Ok(self)
    }
}
