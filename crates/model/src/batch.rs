//! Input of one forward pass: query tokens of many sequences, prefill and decode mixed.

use crate::row_inputs::{self, RowAdditions, VectorRows};
use crate::{AdapterSet, DRAWN, Dims, ForwardError, SpanStates, VECTOR};
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
    /// Range of the rows that are vectors, in [`Batch::vector_rows`].
    pub vectors: Range<usize>,
    /// Range of the rows' positions on three axes, in [`Batch::axes`].
    pub axes: Range<usize>,
}

/// Input of one step. Reused between steps, so that a warm step allocates nothing.
///
/// A row is a token, which sees the positions up to its own. For images, rows may be vectors ([`Batch::set_vectors`]) and have
/// positions on three axes ([`Batch::set_axes`]); rows that see each other are a batch of their own ([`crate::AdvanceBlock`]).
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<u32>,
    pages: Vec<PageId>,
    spans: Vec<Span>,
    /// Vectors of all rows that are vectors.
    vectors: Vec<f32>,
    vector_rows: Vec<VectorRows>,
    axes: Vec<[u32; 3]>,
}

/// A span with its tokens and its page table.
#[derive(Clone, Copy, Debug)]
pub struct SpanView<'a> {
    /// Token ids, one per row; [`VECTOR`] for a row that is a vector.
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
        self.vectors.clear();
        self.vector_rows.clear();
        self.axes.clear();
    }

    /// Makes this batch a copy of another one with tokens replaced; rows that are vectors stay.
    pub fn copy_with(&mut self, other: &Self, token: impl Fn(u32) -> u32) {
        self.tokens.clear();
        let replaced = other.tokens.iter().map(|&id| match id {
            VECTOR => VECTOR,
            id => token(id),
        });
        self.tokens.extend(replaced);
        self.pages.clone_from(&other.pages);
        self.spans.clone_from(&other.spans);
        self.vectors.clone_from(&other.vectors);
        self.vector_rows.clone_from(&other.vector_rows);
        self.axes.clone_from(&other.axes);
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
            vectors: self.vector_rows.len()..self.vector_rows.len(),
            axes: self.axes.len()..self.axes.len(),
        });
    }

    /// Sets the states of the span that was added last; without effect on an empty batch.
    pub fn set_states(&mut self, states: Option<SpanStates>) {
        if let Some(span) = self.spans.last_mut() {
            span.states = states;
        }
    }

    /// Gives rows of the span that was added last, counted from its first row, vectors in place of tokens' embeddings: shape
    /// `(rows, width)`, what `width` is says the model. Their tokens become [`VECTOR`]. Rows are given in ascending order.
    /// Without effect on an empty batch.
    pub fn set_vectors(&mut self, rows: Range<usize>, vectors: &[f32]) {
        let Some(span) = self.spans.last_mut() else {
            return;
        };
        let rows = row_inputs::in_batch(&span.tokens, &rows);
        if let Some(tokens) = self.tokens.get_mut(rows.clone()) {
            tokens.fill(VECTOR);
        }
        let first = self.vectors.len();
        self.vectors.extend_from_slice(vectors);
        let floats = first..self.vectors.len();
        self.vector_rows.push(VectorRows { rows, floats });
        span.vectors.end = self.vector_rows.len();
    }

    /// Sets the rotary positions of all rows of the span that was added last, on three axes: time, height and width. Without
    /// them a row's position is its position in the sequence, on each axis. Pages and sight always follow the latter.
    /// Without effect on an empty batch.
    pub fn set_axes(&mut self, axes: &[[u32; 3]]) {
        if let Some(span) = self.spans.last_mut() {
            self.axes.extend_from_slice(axes);
            span.axes.end = self.axes.len();
        }
    }

    /// As [`Batch::set_axes`], by the position of each row in the sequence.
    pub fn set_axes_at(&mut self, axes: impl Fn(usize) -> [u32; 3]) {
        if let Some(span) = self.spans.last_mut() {
            let positions = span.position..span.position + span.tokens.len();
            self.axes.extend(positions.map(axes));
            span.axes.end = self.axes.len();
        }
    }

    /// All tokens, span after span; [`VECTOR`] for rows that are vectors.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// All page tables, span after span.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// The rows that are vectors, ascending.
    pub fn vector_rows(&self) -> &[VectorRows] {
        &self.vector_rows
    }

    /// The vectors of [`Self::vector_rows`].
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// The vector of a row of the batch; `None`: the row is a token.
    pub fn vector(&self, row: usize) -> Option<&[f32]> {
        if self.tokens.get(row) != Some(&VECTOR) {
            return None;
        }
        let at = self.vector_rows.partition_point(|run| run.rows.end <= row);
        let VectorRows { rows, floats } = self.vector_rows.get(at)?;
        let width = floats.len() / rows.len();
        let first = floats.start + row.checked_sub(rows.start)? * width;
        self.vectors.get(first..first + width)
    }

    /// Positions on three axes, one for each row of the spans that have them.
    pub fn axes(&self) -> &[[u32; 3]] {
        &self.axes
    }

    /// Whether all rows are tokens that see the positions up to their own.
    ///
    /// # Errors
    /// [`ForwardError::BadBatch`] that names the first addition: of a model that does not compute them.
    pub fn check_plain(&self) -> Result<(), ForwardError> {
        self.check_additions(RowAdditions::NONE)
    }

    /// Whether rows are no more than what a model takes.
    ///
    /// # Errors
    /// [`ForwardError::BadBatch`] that names the first addition that the model does not compute.
    pub fn check_additions(&self, taken: RowAdditions) -> Result<(), ForwardError> {
        let additions = [
            (
                taken.vectors || self.vector_rows.is_empty(),
                "the model takes no vectors in place of tokens",
            ),
            (
                taken.axes || self.axes.is_empty(),
                "the model has no positions on three axes",
            ),
        ];
        match additions.iter().find(|(is_taken, _)| !is_taken) {
            Some((_, why)) => Err(ForwardError::BadBatch(why)),
            None => Ok(()),
        }
    }

    /// Checks the batch against the bounds of a model. The rows that are more than tokens are those of
    /// [`Batch::check_row_inputs`] and [`Batch::check_additions`].
    ///
    /// # Errors
    /// [`ForwardError::BadBatch`]: there are too many rows, a token or a page does not exist, or a page table is too short.
    pub fn check(&self, dims: &Dims) -> Result<(), ForwardError> {
        self.check_drawn(dims, 0)
    }

    /// As [`Self::check`] for a batch whose tokens may be those of the `draws` draws of the batch before: [`crate::DRAWN`].
    ///
    /// # Errors
    /// As for [`Self::check`]; or there is no such draw.
    pub fn check_drawn(&self, dims: &Dims, draws: usize) -> Result<(), ForwardError> {
        let most = dims.logit_rows_max;
        refuse(self.tokens.len() > dims.rows_max, "more rows than rows_max")?;
        refuse(
            self.logit_rows() > most,
            "more logits rows than logit_rows_max",
        )?;
        self.check_spans(dims, draws)
    }

    /// Checks a block against the bounds of a model whose vectors are `width` wide; `rows_max` is no bound of blocks. Returns
    /// its span.
    ///
    /// # Errors
    /// [`ForwardError::BadBatch`]: the batch is not one span of vectors without outputs, a page does not exist, or the page
    /// table is too short.
    pub fn check_block(&self, dims: &Dims, width: usize) -> Result<&Span, ForwardError> {
        let [span] = &self.spans[..] else {
            return Err(ForwardError::BadBatch("a block is one span"));
        };
        refuse(self.tokens.is_empty(), "a block has no rows")?;
        refuse(span.want != Want::None, "a block has no outputs")?;
        let is_token = self.tokens.iter().any(|&token| token != VECTOR);
        refuse(is_token, "a row of a block is a token")?;
        self.check_row_inputs(width)?;
        self.check_spans(dims, 0)?;
        Ok(span)
    }

    fn check_spans(&self, dims: &Dims, draws: usize) -> Result<(), ForwardError> {
        let has_vectors = !self.vector_rows.is_empty();
        let is_drawn = |token: u32| token & DRAWN != 0 && ((token & !DRAWN) as usize) < draws;
        let unknown = |&token: &u32| {
            token as usize >= dims.vocab && !(has_vectors && token == VECTOR) && !is_drawn(token)
        };
        refuse(
            self.tokens.iter().any(unknown),
            "a token is not in the vocabulary",
        )?;
        let astray = |&page: &PageId| page as usize >= dims.pages;
        refuse(self.pages.iter().any(astray), "a page does not exist")?;
        for span in &self.spans {
            let end = span.position.saturating_add(span.tokens.len());
            refuse(end > dims.context_max, "a position is beyond context_max")?;
            let covered = span.pages.len().saturating_mul(dims.page_tokens);
            refuse(end > covered, "a block table is too short")?;
        }
        Ok(())
    }

    /// Checks vectors, which are `width` wide, and axes against their spans.
    ///
    /// # Errors
    /// [`ForwardError::BadBatch`]: rows are outside of their span, or not ascending; vectors have another width, or are not
    /// finite; there are more or fewer positions than rows; a row without a vector has none.
    pub fn check_row_inputs(&self, width: usize) -> Result<(), ForwardError> {
        row_inputs::check(self, width).map_err(ForwardError::BadBatch)
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

fn refuse(is_bad: bool, why: &'static str) -> Result<(), ForwardError> {
    if is_bad {
        Err(ForwardError::BadBatch(why))
    } else {
        Ok(())
    }
}
