//! The one trait between the engine and whatever computes logits.

use crate::{Batch, PageId};

/// Sizes the engine must know. Fixed for the life of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Entries of one logits row.
    pub vocab: usize,
    /// Positions a sequence may have.
    pub context_max: usize,
    /// Positions in one page.
    pub page_tokens: usize,
    /// Pages in all; ids are `0..pages`.
    pub pages: usize,
    /// Rows one batch may have.
    pub rows_max: usize,
    /// Rows of logits one batch may ask for.
    pub logit_rows_max: usize,
}

/// Why a forward pass gave nothing. The batch may be tried again; the KV of its rows is undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardError {
    /// The batch breaks one of the bounds in [`Dims`], or names a page or token that does not exist.
    BadBatch(&'static str),
    /// Logits of this row (in batch order) are not finite.
    NotFinite {
        /// Index among the logits rows.
        row: usize,
    },
}

impl std::fmt::Display for ForwardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadBatch(why) => write!(f, "bad batch: {why}"),
            Self::NotFinite { row } => write!(f, "logits row {row} is not finite"),
        }
    }
}

impl std::error::Error for ForwardError {}

/// Computes logits for a batch and keeps the keys and values of its rows in pages.
pub trait Forward: Send {
    /// Sizes; never change.
    fn dims(&self) -> Dims;

    /// Runs the batch. Returns logits, shape `(batch.logit_rows(), vocab)`, valid until the next
    /// call and free to be overwritten by the caller.
    ///
    /// # Errors
    /// See [`ForwardError`]; nothing of the batch counts as done.
    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError>;

    /// The hidden states that the last batch asked for, after the last norm: what logits are made of.
    /// Shape `(batch.hidden_rows(), hidden_dim)`, in batch order. Empty where the model gives none.
    fn hidden(&self) -> &[f32] {
        &[]
    }

    /// Entries of a hidden state; 0: this model gives none.
    fn hidden_dim(&self) -> usize {
        0
    }

    /// Copies the keys and values of page `from` to page `to` (a shared page about to be written).
    fn copy_page(&mut self, from: PageId, to: PageId);
}
