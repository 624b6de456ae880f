//! State of one answer in a grammar, over the tokenizer's vocabulary as a trie for llguidance.

use super::error::GrammarRejection;
use super::lexer_work;
use crate::Tokenizer;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, TokenParser};
use std::sync::Arc;

/// The matcher failed: a mask exceeded a bound, or an accepted token was not allowed. The answer is
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatcherError(pub String);

/// The state of one answer in a grammar.
pub struct GrammarMatcher {
    matcher: Matcher,
    /// Forced next tokens in reverse order.
    forced: Vec<u32>,
}

impl GrammarMatcher {
    /// A matcher at the beginning of an answer. Computes the first mask under the bounds of every mask, so
    /// that a grammar over a bound is rejected before the answer begins.
    pub(super) fn start(mut start: TokenParser) -> Result<Self, GrammarRejection> {
        // llguidance enforces bounds from the first mask on, and computes forced tokens before that.
        let computer = Arc::clone(&start.bias_computer);
        let _ = start.parser.compute_bias(&*computer, &[]);
        let forces = !start.parser.grammar().lexer_spec().no_forcing;
        if forces && start.token_env.tokenize_is_canonical() {
            let _ = start.parser.force_bytes();
        }
        if let Some(error) = start.parser.get_error() {
            return Err(GrammarRejection::of(&error.message()));
        }
        let mut matcher = Self {
            matcher: Matcher::new(Ok(start)),
            forced: Vec::new(),
        };
        matcher.force();
        match matcher.matcher.compute_mask_or_eos() {
            Ok(_) => Ok(matcher),
            Err(error) if error.to_string().starts_with("NoExtension") => {
                Err(GrammarRejection::wrong(lexer_work::NOTHING))
            }
            Err(error) => Err(GrammarRejection::of(&error)),
        }
    }

    /// An independent copy of this state.
    pub(super) fn again(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            forced: self.forced.clone(),
        }
    }

    /// Writes the token bitmask: bit `id % 32` of word `id / 32`. Includes end-of-sequence tokens where the
    /// answer is complete. `allowed` must be zeroed.
    ///
    /// # Errors
    /// The mask exceeds [`MASK_FUEL`](super::MASK_FUEL) or [`MASK_ITEMS_MAX`](super::MASK_ITEMS_MAX), or the
    /// matcher failed before.
    pub fn mask(&mut self, allowed: &mut [u32]) -> Result<(), MatcherError> {
        if let Some(&token) = self.forced.last() {
            if let Some(word) = allowed.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
            return Ok(());
        }
        let mask = self.matcher.compute_mask_or_eos();
        let mask = mask.map_err(|error| MatcherError(GrammarRejection::of(&error).why))?;
        for (allowed, mask) in allowed.iter_mut().zip(mask.as_slice()) {
            *allowed = *mask;
        }
        Ok(())
    }

    /// Advances by a sampled token.
    ///
    /// # Errors
    /// The mask did not allow the token, a bound of the lexer or parser was reached, or the matcher failed before.
    pub fn accept(&mut self, token: u32) -> Result<(), MatcherError> {
        let taken = self.matcher.consume_token(token);
        taken.map_err(|error| MatcherError(GrammarRejection::of(&error).why))?;
        if self.forced.pop() != Some(token) {
            self.forced.clear();
        }
        if self.forced.is_empty() {
            self.force();
        }
        Ok(())
    }

    /// Whether the answer is complete and nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.stop_reason().is_ok() && self.matcher.is_stopped()
    }

    /// Whether the answer would be valid if the answer ended here.
    pub fn is_accepting(&mut self) -> bool {
        self.is_complete() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// The only tokens that may come next, in order. Their masks cost nothing.
    pub fn forced_tokens(&self) -> impl Iterator<Item = u32> {
        self.forced.iter().rev().copied()
    }

    fn force(&mut self) {
        if !self.matcher.is_stopped() {
            self.forced = self.matcher.compute_ff_tokens();
            self.forced.reverse();
        }
    }
}

/// A compiled grammar, from which matchers are cheap to create.
pub struct Grammar {
    /// Matcher at the beginning of an answer.
    pub(super) start: GrammarMatcher,
}

impl Grammar {
    /// A matcher for a new answer. Matchers share no state, so no answer can slow another or consume
    /// another's bounds.
    pub fn matcher(&self) -> GrammarMatcher {
        self.start.again()
    }
}

/// Longest token in the trie, in bytes. Longer tokens are never allowed.
const TRIE_DEPTH_MAX: usize = 1000;

/// End-of-sequence id of a vocabulary without such a token.
const NO_TOKEN: TokenId = u32::MAX;

struct TrieVocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

/// The vocabulary, with the tokens that end a generation.
pub(super) fn of(tokenizer: &Arc<Tokenizer>, eos: &[u32]) -> TokEnv {
    let words: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as u32)
        .map(|id| word(tokenizer, id))
        .collect();
    let known = |id: &u32| (*id as usize) < words.len();
    let eos: Vec<u32> = eos.iter().copied().filter(known).collect();
    let info = TokRxInfo::new(words.len() as u32, eos.first().copied().unwrap_or(NO_TOKEN));
    let trie = TokTrie::from(&info, &words);
    let trie = match eos.as_slice() {
        [] => trie,
        eos => trie.with_eos_tokens(eos),
    };
    Arc::new(TrieVocabulary {
        tokenizer: Arc::clone(tokenizer),
        trie,
    })
}

/// Bytes of a token in the trie. A control token is represented by its name after a byte that text never
/// contains, so that only a grammar that names the token allows the token.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = if tokenizer.is_control(id) {
        let name = tokenizer.piece(id).unwrap_or_default().as_bytes();
        [&[TokTrie::SPECIAL_TOKEN_MARKER], name].concat()
    } else {
        tokenizer.bytes(id).unwrap_or_default().to_vec()
    };
    match bytes.len() {
        0..=TRIE_DEPTH_MAX => bytes,
        _ => Vec::new(),
    }
}

impl TokenizerEnv for TrieVocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// Encodes text as the tokenizer does in running text; other bytes (parts of characters) by longest
    /// match.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let text = std::str::from_utf8(bytes).ok();
        let ids = text.and_then(|text| self.tokenizer.encode_fragment(text).ok());
        ids.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.tokenizer.encodes_fragments()
    }
}
