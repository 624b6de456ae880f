//! Buffers in which tokens of one choice are collected for a record; used again for each record.

use engine::{Token, TopLogprob};
use journal::{Alternative, Alternatives, Tokens};

/// Tokens that are copied from a log at a time.
const TOKENS_MAX: usize = 1024;

/// Alternatives that are copied from a log at a time.
const ALTERNATIVES_MAX: usize = 256;

/// Fills a buffer.
pub(crate) const NO_TOKEN: Token = Token {
    id: 0,
    logprob: 0.0,
};

const NO_ALTERNATIVE: TopLogprob = TopLogprob {
    id: 0,
    logprob: 0.0,
};

/// Tokens of one choice in the journal's form.
pub(crate) struct TokenBuffers {
    tokens: Box<[Token]>,    // (TOKENS_MAX)
    top: Box<[TopLogprob]>,  // (ALTERNATIVES_MAX)
    ids: Vec<u32>,           // 0 ..= TOKENS_MAX
    logprobs: Vec<f32>,      // as many as `ids`, or none
    counts: Vec<u8>,         // as many as `ids`, or none
    items: Vec<Alternative>, // the sum of `counts`
}

impl TokenBuffers {
    /// Empty buffers.
    pub(crate) fn new() -> Self {
        Self {
            tokens: vec![NO_TOKEN; TOKENS_MAX].into(),
            top: vec![NO_ALTERNATIVE; ALTERNATIVES_MAX].into(),
            ids: Vec::with_capacity(TOKENS_MAX),
            logprobs: Vec::with_capacity(TOKENS_MAX),
            counts: Vec::new(),
            items: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.logprobs.clear();
        self.counts.clear();
        self.items.clear();
    }

    /// Takes the tokens in `from .. end` that `copy` gives, and returns their number.
    pub(crate) fn copy_tokens(
        &mut self,
        from: u64,
        end: u64,
        has_logprobs: bool,
        copy: impl FnOnce(&mut [Token]) -> usize,
    ) -> usize {
        let wanted = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        let buffer = &mut self.tokens[..wanted.min(TOKENS_MAX)];
        let copied = copy(buffer);
        let tokens = &buffer[..copied];
        self.ids.extend(tokens.iter().map(|token| token.id));
        if has_logprobs {
            self.logprobs
                .extend(tokens.iter().map(|token| token.logprob));
        }
        copied
    }

    /// Takes `top_n` alternatives for each of `tokens` tokens; `copy` gives those from an index on.
    pub(crate) fn copy_alternatives(
        &mut self,
        tokens: usize,
        top_n: usize,
        copy: impl Fn(usize, &mut [TopLogprob]) -> usize,
    ) {
        let all = tokens * top_n;
        while self.items.len() < all {
            let wanted = (all - self.items.len()).min(ALTERNATIVES_MAX);
            let copied = copy(self.items.len(), &mut self.top[..wanted]);
            if copied == 0 {
                break;
            }
            self.items
                .extend(self.top[..copied].iter().map(|top| Alternative {
                    id: top.id,
                    logprob: top.logprob,
                }));
        }
        // Prompt tokens that are part of an answer may have none.
        self.items.truncate(self.items.len() / top_n * top_n);
        let full = self.items.len() / top_n;
        self.counts
            .resize(full, u8::try_from(top_n).unwrap_or(u8::MAX));
        self.counts.resize(tokens, 0);
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The tokens as a record of `choice`, the first of them with index `first`.
    pub(crate) fn as_record(&self, choice: u32, first: u64) -> Tokens<'_> {
        Tokens {
            choice,
            // The format's bound on tokens of a choice is below 2^32.
            first: u32::try_from(first).unwrap_or(u32::MAX),
            ids: &self.ids,
            logprobs: &self.logprobs,
            alternatives: Alternatives {
                counts: &self.counts,
                items: &self.items,
            },
        }
    }
}
