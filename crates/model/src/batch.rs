//! Input of one forward pass: query tokens of many sequences, prefill and decode mixed.

use crate::{AdapterSet, SpanStates};
use std::ops::Range;

/// A unit of KV memory: `page_tokens` positions of every layer.
pub type PageId = u32;

/// Outputs of a span: for which rows, and whether logits or hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// No output: a prefill chunk that is not the last.
    None,
    /// The last row only.
    Last,
    /// Every row (scoring, verification of drafts).
    All,
    /// The hidden state of the last row, and no logits (embedding by the last token).
    LastHidden,
    /// The hidden state of every row, and no logits (embedding by the mean).
    AllHidden,
    /// The hidden state of the first row, and no logits (embedding by the first token).
    FirstHidden,
}

impl Want {
    /// Number of logits rows for a span of `rows` rows.
    pub fn logit_rows(self, rows: usize) -> usize {
        match self {
            Self::Last => rows.min(1),
            Self::All => rows,
            Self::None | Self::LastHidden | Self::AllHidden | Self::FirstHidden => 0,
        }
    }

    /// Number of hidden states for a span of `rows` rows.
    pub fn hidden_rows(self, rows: usize) -> usize {
        match self {
            Self::LastHidden | Self::FirstHidden => rows.min(1),
            Self::AllHidden => rows,
            Self::None | Self::Last | Self::All => 0,
        }
    }
}

/// Consecutive tokens of one sequence; indices into the batch's flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Range of this span's tokens in the batch.
    pub tokens: Range<usize>,
    /// Position of the first token in the sequence.
    pub position: usize,
    /// Range of this span's page table in the batch.
    pub pages: Range<usize>,
    /// States before and after the span, in a model with recurrent layers.
    pub states: Option<SpanStates>,
    /// Outputs of the span.
    pub want: Want,
    /// Adapters of the sequence.
    pub adapters: AdapterSet,
}

/// Input of one step. Reused between steps, so that a warm step allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<u32>,
    pages: Vec<PageId>,
    spans: Vec<Span>,
}

/// A span with its tokens and its page table.
#[derive(Clone, Copy, Debug)]
pub struct SpanView<'a> {
    /// Token ids, one per row.
    pub tokens: &'a [u32],
    /// Position of `tokens[0]` in the sequence. Key and value of position `p` are in `pages[p /
    /// page_tokens]`, slot `p % page_tokens`.
    pub position: usize,
    /// Page table of the sequence; covers at least `position + tokens.len()` positions.
    pub pages: &'a [PageId],
    /// States before and after the span, in a model with recurrent layers.
    pub states: Option<SpanStates>,
    /// Outputs of the span.
    pub want: Want,
    /// Adapters of the sequence.
    pub adapters: AdapterSet,
}

impl Batch {
    /// Clears the batch and keeps the buffers.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.pages.clear();
        self.spans.clear();
    }

    /// Makes this batch a copy of another one with tokens replaced.
    pub fn copy_with(&mut self, other: &Self, token: impl Fn(u32) -> u32) {
        self.tokens.clear();
        self.tokens.extend(other.tokens.iter().map(|&id| token(id)));
        self.pages.clone_from(&other.pages);
        self.spans.clone_from(&other.spans);
    }

    /// Adds a span of a sequence without adapters.
    pub fn push(&mut self, tokens: &[u32], position: usize, pages: &[PageId], want: Want) {
        self.push_adapted(tokens, position, pages, want, AdapterSet::NONE);
    }

    /// Adds a span of a sequence with these adapters.
    pub fn push_adapted(
        &mut self,
        tokens: &[u32],
        position: usize,
        pages: &[PageId],
        want: Want,
        adapters: AdapterSet,
    ) {
        let (t, p) = (self.tokens.len(), self.pages.len());
        self.tokens.extend_from_slice(tokens);
        self.pages.extend_from_slice(pages);
        self.spans.push(Span {
            tokens: t..self.tokens.len(),
            position,
            pages: p..self.pages.len(),
            states: None,
            want,
            adapters,
        });
    }

    /// Sets the states of the span that was added last; without effect on an empty batch.
    pub fn set_states(&mut self, states: Option<SpanStates>) {
        if let Some(span) = self.spans.last_mut() {
            span.states = states;
        }
    }

    /// All tokens, span after span.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// All page tables, span after span.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// The spans as ranges of [`Self::tokens`] and [`Self::pages`].
    pub fn ranges(&self) -> &[Span] {
        &self.spans
    }

    /// The spans in the order of insertion; logits rows have the same order.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = SpanView<'_>> {
        self.spans.iter().map(|span| SpanView {
            tokens: &self.tokens[span.tokens.clone()],
            position: span.position,
            pages: &self.pages[span.pages.clone()],
            states: span.states,
            want: span.want,
            adapters: span.adapters,
        })
    }

    /// Number of logits rows.
    pub fn logit_rows(&self) -> usize {
        let rows = |span: &Span| span.want.logit_rows(span.tokens.len());
        self.spans.iter().map(rows).sum()
    }

    /// Number of rows with a hidden state as output.
    pub fn hidden_rows(&self) -> usize {
        let rows = |span: &Span| span.want.hidden_rows(span.tokens.len());
        self.spans.iter().map(rows).sum()
    }

    /// Whether the batch has no spans.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}
