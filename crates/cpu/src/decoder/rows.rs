//! The rows of a batch, checked once and stored as flat lists for the layers.

use kernels::{KvSlot, QueryRow};
use model::{AdapterSet, Batch, Dims, ForwardError, RowAdditions, Span, Want};

/// One entry per row, in batch order, except `wanted`. Allocated once.
pub(crate) struct Rows {
    /// Whether a row sees earlier positions only; else the whole text, which is one span.
    is_causal: bool,
    /// Width of a vector in place of a token: that of the stream.
    width: usize,
    /// Position in the sequence, and page table.
    pub(crate) queries: Vec<QueryRow>,
    /// Adapters of the row's sequence.
    pub(crate) adapters: Vec<AdapterSet>,
    /// Slot for the row's key and value.
    pub(crate) slots: Vec<KvSlot>,
    /// Indices of rows with outputs, ascending.
    pub(crate) wanted: Vec<usize>,
    /// Rows with logits, and rows with hidden states: indices into `wanted`, ascending.
    pub(crate) logits: Vec<usize>,
    pub(crate) hidden: Vec<usize>,
}

impl Rows {
    pub(crate) fn new(dims: &Dims, is_causal: bool, width: usize) -> Self {
        Self {
            is_causal,
            width,
            queries: Vec::with_capacity(dims.rows_max),
            adapters: Vec::with_capacity(dims.rows_max),
            slots: Vec::with_capacity(dims.rows_max),
            wanted: Vec::with_capacity(dims.rows_max),
            logits: Vec::with_capacity(dims.logit_rows_max),
            hidden: Vec::with_capacity(dims.rows_max),
        }
    }

    /// Reads a batch; rejects a batch that violates the bounds before changing anything.
    pub(crate) fn read(&mut self, batch: &Batch, dims: &Dims) -> Result<(), ForwardError> {
        batch.check_row_inputs(self.width)?;
        // The whole text of an encoder is tokens.
        batch.check_additions(RowAdditions {
            vectors: self.is_causal,
            ..RowAdditions::NONE
        })?;
        batch.check(dims)?;
        if !self.is_causal {
            check_whole_texts(batch)?;
        }
        self.queries.clear();
        self.adapters.clear();
        self.slots.clear();
        self.wanted.clear();
        self.logits.clear();
        self.hidden.clear();
        for span in batch.ranges() {
            self.push(span, &batch.pages()[span.pages.clone()], dims.page_tokens);
        }
        Ok(())
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
            let (page, slot) = (table[position / page_tokens], position % page_tokens);
            self.slots.push(KvSlot { page, slot });
            self.queries.push(QueryRow {
                position,
                end: if self.is_causal { position + 1 } else { end },
                pages: span.pages.clone(),
            });
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
