//! The rows of a batch, checked once and stored as flat lists for the layers.

use kernels::{KvSlot, QueryRow};
use model::{AdapterSet, Batch, Dims, ForwardError, RowAdditions, Span, Want};
use std::ops::Range;
use weights::Config;

/// One entry per row, in batch order, except `wanted`. Allocated once.
pub(crate) struct Rows {
    /// Whether a row sees earlier positions only; else the whole text, which is one span.
    is_causal: bool,
    /// Width of a vector in place of a token: that of the stream, or more with rows for further layers.
    width: usize,
    /// Kinds of rows other than tokens.
    additions: RowAdditions,
    /// Position in the sequence, and page table.
    pub(crate) queries: Vec<QueryRow>,
    /// Adapters of the row's sequence.
    pub(crate) adapters: Vec<AdapterSet>,
    /// Rotary positions of each row: time, height and width. Empty: all rows turn by their position in the sequence.
    pub(crate) axes: Vec<[u32; 3]>,
    /// Slot for the row's key and value.
    pub(crate) slots: Vec<KvSlot>,
    /// Indices of rows with outputs, ascending.
    pub(crate) wanted: Vec<usize>,
    /// Rows with logits, and rows with hidden states: indices into `wanted`, ascending.
    pub(crate) logits: Vec<usize>,
    pub(crate) hidden: Vec<usize>,
}

impl Rows {
    pub(crate) fn new(
        dims: &Dims,
        is_causal: bool,
        (width, additions): (usize, RowAdditions),
    ) -> Self {
        let turned = if additions.axes { dims.rows_max } else { 0 };
        Self {
            is_causal,
            width,
            additions,
            axes: Vec::with_capacity(turned),
            queries: Vec::with_capacity(dims.rows_max),
            adapters: Vec::with_capacity(dims.rows_max),
            slots: Vec::with_capacity(dims.rows_max),
            wanted: Vec::with_capacity(dims.rows_max),
            logits: Vec::with_capacity(dims.logit_rows_max),
            hidden: Vec::with_capacity(dims.rows_max),
        }
    }

    /// The rows of a decoder.
    pub(crate) fn of(config: &Config, dims: &Dims) -> Self {
        let additions = RowAdditions {
            // The whole text of an encoder is tokens.
            vectors: config.is_causal(),
            axes: config.has_axes(),
        };
        let width = config.dim * (1 + config.deepstack);
        Self::new(dims, config.is_causal(), (width, additions))
    }

    /// Reads a batch; rejects a batch that violates the bounds before changing anything.
    pub(crate) fn read(&mut self, batch: &Batch, dims: &Dims) -> Result<(), ForwardError> {
        batch.check_row_inputs(self.width)?;
        batch.check_additions(self.additions)?;
        batch.check(dims)?;
        if !self.is_causal {
            check_whole_texts(batch)?;
        }
        self.clear();
        for span in batch.ranges() {
            self.push(span, &batch.pages()[span.pages.clone()], dims.page_tokens);
        }
        self.read_axes(batch);
        Ok(())
    }

    /// Checks a block against the bounds; returns its span.
    pub(crate) fn check_block<'a>(
        &self,
        batch: &'a Batch,
        dims: &Dims,
    ) -> Result<&'a Span, ForwardError> {
        batch.check_additions(self.additions)?;
        batch.check_block(dims, self.width)
    }

    pub(super) fn clear(&mut self) {
        self.queries.clear();
        self.adapters.clear();
        self.axes.clear();
        self.slots.clear();
        self.wanted.clear();
        self.logits.clear();
        self.hidden.clear();
    }

    /// Rotary positions, if any span has them.
    fn read_axes(&mut self, batch: &Batch) {
        if batch.axes().is_empty() {
            return;
        }
        for span in batch.ranges() {
            if span.axes.is_empty() {
                let positions = span.position..span.position + span.tokens.len();
                self.axes.extend(positions.map(|at| [at as u32; 3]));
            } else {
                self.axes
                    .extend_from_slice(&batch.axes()[span.axes.clone()]);
            }
        }
    }

    /// Drops the rows without outputs.
    pub(crate) fn keep_wanted(&mut self) {
        for (to, &from) in self.wanted.iter().enumerate() {
            self.queries.swap(to, from);
            self.adapters.swap(to, from);
        }
        self.queries.truncate(self.wanted.len());
        self.adapters.truncate(self.wanted.len());
    }

    /// Drops the remaining rows without logits.
    pub(crate) fn keep_logits(&mut self) {
        self.queries.truncate(self.logits.len());
    }

    fn push(&mut self, span: &Span, table: &[u32], page_tokens: usize) {
        let first = self.queries.len();
        let end = span.position + span.tokens.len();
        for position in span.position..end {
            let end = if self.is_causal { position + 1 } else { end };
            self.push_row(position, end, (table, span.pages.clone()), page_tokens);
            self.adapters.push(span.adapters);
        }
        let end = self.queries.len();
        let before = self.wanted.len();
        match span.want {
            Want::None => {}
            Want::FirstHidden => self.wanted.extend((first..end).next()),
            Want::Last | Want::LastHidden => self.wanted.extend((first..end).last()),
            Want::All | Want::AllHidden => self.wanted.extend(first..end),
        }
        let kind = match span.want {
            Want::FirstHidden | Want::LastHidden | Want::AllHidden => &mut self.hidden,
            Want::None | Want::Last | Want::All => &mut self.logits,
        };
        kind.extend(before..self.wanted.len());
    }
}

impl Rows {
    /// Adds a row that sees the positions before `end`. `table` is the sequence's page table, and `pages` its range in that of the
    /// batch.
    pub(super) fn push_row(
        &mut self,
        position: usize,
        end: usize,
        (table, pages): (&[u32], Range<usize>),
        page_tokens: usize,
    ) {
        let (page, slot) = (table[position / page_tokens], position % page_tokens);
        self.slots.push(KvSlot { page, slot });
        self.queries.push(QueryRow {
            position,
            end,
            pages,
        });
    }
}

fn check_whole_texts(batch: &Batch) -> Result<(), ForwardError> {
    let is_whole = |span: &Span| span.position == 0 && span.want.logit_rows(1) == 0;
    if batch.ranges().iter().all(is_whole) {
        Ok(())
    } else {
        Err(ForwardError::BadBatch(
            "a text of an encoder is one span without logits",
        ))
    }
}
