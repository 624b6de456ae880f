//! The tokenizer's vocabulary as a trie for llguidance.

use crate::Tokenizer;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use std::sync::Arc;

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
