//! What the model is given in one step: rows of many sequences, prefill and decode mixed.

use std::ops::Range;

/// A unit of KV memory: `page_tokens` positions of every layer.
pub type PageId = u32;

/// Which rows of a span are wanted, and what of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: a prefill chunk that is not the last.
    None,
    /// The last row only.
    Last,
    /// Every row (scoring, verification of drafts).
    All,
    /// The hidden state of the last row, and no logits (embedding by the last token).
    LastHidden,
    /// The hidden state of every row, and no logits (embedding by the mean).
    AllHidden,
}

impl Want {
    /// For how many of `rows` rows logits are wanted.
    pub fn logit_rows(self, rows: usize) -> usize {
        match self {
            Self::Last => rows.min(1),
            Self::All => rows,
            Self::None | Self::LastHidden | Self::AllHidden => 0,
        }
    }

    /// For how many of `rows` rows the hidden state is wanted.
    pub fn hidden_rows(self, rows: usize) -> usize {
        match self {
            Self::LastHidden => rows.min(1),
            Self::AllHidden => rows,
            Self::None | Self::Last | Self::All => 0,
        }
    }
}

/// Consecutive tokens of one sequence; indices into the batch's flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where this span's tokens are in the batch.
    pub tokens: Range<usize>,
    /// Position in the sequence of the first of them.
    pub position: usize,
    /// Where this span's block table is in the batch.
    pub pages: Range<usize>,
    /// What is wanted of its rows.
    pub want: Want,
}

/// One step's input. Reused from step to step, so that a step allocates nothing once it is warm.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<u32>,
    pages: Vec<PageId>,
    spans: Vec<Span>,
}

/// A span with its tokens and its block table.
#[derive(Clone, Copy, Debug)]
pub struct SpanView<'a> {
    /// Ids, one per row.
    pub tokens: &'a [u32],
    /// Position in the sequence of `tokens[0]`. Key and value of position `p` live in
    /// `pages[p / page_tokens]`, slot `p % page_tokens`.
    pub position: usize,
    /// The sequence's block table; covers `position + tokens.len()` positions at least.
    pub pages: &'a [PageId],
    /// What is wanted of its rows.
    pub want: Want,
}

impl Batch {
    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.pages.clear();
        self.spans.clear();
    }

    /// Adds a span.
    pub fn push(&mut self, tokens: &[u32], position: usize, pages: &[PageId], want: Want) {
        let (t, p) = (self.tokens.len(), self.pages.len());
        self.tokens.extend_from_slice(tokens);
        self.pages.extend_from_slice(pages);
        self.spans.push(Span {
            tokens: t..self.tokens.len(),
            position,
            pages: p..self.pages.len(),
            want,
        });
    }

    /// All tokens, span after span.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// All block tables, span after span.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// The spans as ranges of [`Self::tokens`] and [`Self::pages`].
    pub fn ranges(&self) -> &[Span] {
        &self.spans
    }

    /// The spans, in the order they were pushed; logits rows come in the same order.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = SpanView<'_>> {
        self.spans.iter().map(|span| SpanView {
            tokens: &self.tokens[span.tokens.clone()],
            position: span.position,
            pages: &self.pages[span.pages.clone()],
            want: span.want,
        })
    }

    /// Rows for which logits are wanted.
    pub fn logit_rows(&self) -> usize {
        let rows = |span: &Span| span.want.logit_rows(span.tokens.len());
        self.spans.iter().map(rows).sum()
    }

    /// Rows whose hidden state is wanted.
    pub fn hidden_rows(&self) -> usize {
        let rows = |span: &Span| span.want.hidden_rows(span.tokens.len());
        self.spans.iter().map(rows).sum()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}
