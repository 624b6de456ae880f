//! What a client can be told: the one vocabulary between the fold and every dialect.

use engine::{Token, TopLogprob};
use stream::End;
use text::Tokenizer;

/// Something happened to one choice.
pub(crate) enum Event<'a> {
    /// Text became certain.
    Delta(Delta<'a>),
    /// The choice ended well. Told once per choice, after its last delta.
    End {
        /// Which answer.
        choice: usize,
        /// `Stop` or `Length`: whatever else ends the whole generation.
        end: End,
        /// Counts up to here.
        usage: Usage,
    },
}

/// Text that became certain, and the tokens it came from.
pub(crate) struct Delta<'a> {
    /// Which answer.
    pub(crate) choice: usize,
    /// May be empty when only log-probabilities are new.
    pub(crate) text: &'a str,
    /// One entry per token whose text is out, where log-probabilities were asked for.
    pub(crate) logprobs: Logprobs<'a>,
    /// Counts up to here.
    pub(crate) usage: Usage,
}

/// Log-probabilities of some tokens in a row.
#[derive(Clone, Copy)]
pub(crate) struct Logprobs<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) entries: &'a [Entry],
    /// `top_n` alternatives per entry, best first. (entries.len(), top_n)
    pub(crate) top: &'a [TopLogprob],
    pub(crate) top_n: usize,
}

impl<'a> Logprobs<'a> {
    /// Each token with its alternatives.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a Entry, &'a [TopLogprob])> + use<'a> {
        let (top, n) = (self.top, self.top_n);
        self.entries
            .iter()
            .enumerate()
            .map(move |(i, entry)| (entry, &top[i * n..(i + 1) * n]))
    }
}

/// One token's log-probability and where its text begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) token: Token,
    /// Bytes of decoded text before it.
    pub(crate) start: u64,
    /// Characters of decoded text before it.
    pub(crate) start_chars: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) completion_tokens: u64,
}
