//! The interface between the engine and a model that computes logits.

use crate::{AdvanceBlock, Ahead, Batch, Encode, PageId};

/// Sizes of a model that the engine needs. Constant for the life of a model.
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
    /// Rows of one batch.
    pub rows_max: usize,
    /// Rows of logits in one batch.
    pub logit_rows_max: usize,
}

/// Why a forward pass failed. The batch may be retried; the KV cache of its rows is undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardError {
    /// The batch violates a bound of [`Dims`], or names an unknown page or token.
    BadBatch(&'static str),
    /// Logits of this row (in batch order) are not finite.
    NotFinite {
        /// Index among the logits rows.
        row: usize,
    },
    /// The device failed, whatever the batch is: keys, values and states of all sequences are lost, and each call fails
    /// until [`Forward::recover`].
    Device(DeviceFault),
}

/// How a device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// There is no memory left on the device.
    OutOfMemory,
    /// The device is gone: removed, or reset by the driver.
    Lost,
    /// The device or the driver reported an error, or gave no answer.
    Failed,
}

impl std::fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "the device is out of memory",
            Self::Lost => "the device is lost",
            Self::Failed => "the device failed",
        })
    }
}

impl std::fmt::Display for ForwardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadBatch(why) => write!(f, "bad batch: {why}"),
            Self::NotFinite { row } => write!(f, "logits row {row} is not finite"),
            Self::Device(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for ForwardError {}

/// Properties and abilities of a model. Constant for its life, but for the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a token attends only to earlier tokens. If not, a text must be one span that begins at position 0, has
    /// no logits, and leaves nothing in the pages for a later batch.
    pub is_causal: bool,
    /// States of sequences that there are, in a model with recurrent layers; 0 in others. Each span of such a model has
    /// [`crate::SpanStates`].
    pub states: usize,
    /// Number of loaded adapters; a span of a batch names those below.
    pub adapters: usize,
    /// Elements of a hidden state; 0 for a model without hidden states.
    pub hidden_dim: usize,
    /// Whether the rows of an input have positions on three axes ([`Batch::set_axes`]).
    pub axes: bool,
}

impl Capabilities {
    /// Logits of a text, and nothing else.
    pub const LOGITS: Self = Self {
        is_causal: true,
        states: 0,
        adapters: 0,
        hidden_dim: 0,
        axes: false,
    };
}

/// Computes logits for a batch and keeps the keys and values of its rows in pages.
pub trait Forward: Send {
    /// Sizes of the model; constant.
    fn dims(&self) -> Dims;

    /// Properties and abilities of the model.
    fn capabilities(&self) -> Capabilities {
        Capabilities::LOGITS
    }

    /// Runs the batch. Returns logits, shape `(batch.logit_rows(), vocab)`, valid until the next call; the
    /// caller may overwrite the logits.
    ///
    /// # Errors
    /// See [`ForwardError`]; no part of the batch counts as computed.
    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError>;

    /// Hidden states of the last batch, after the final norm. Shape `(batch.hidden_rows(), hidden_dim)`, in
    /// batch order. Empty for a model without hidden states.
    fn hidden(&self) -> &[f32] {
        &[]
    }

    /// Copies the keys and values of page `from` to page `to` (a shared page about to be written).
    fn copy_page(&mut self, from: PageId, to: PageId);

    /// The model as one that starts batches before the tokens of the last one are known, if it is one. No other pass is run
    /// while a batch is in flight, but for those of [`Forward::mtp_head`].
    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        None
    }

    /// The MTP head, if the model has one.
    fn mtp_head(&mut self) -> Option<&mut dyn Predict> {
        None
    }

    /// The encoder whose rows the model takes in place of tokens, if it has one.
    fn encoder(&mut self) -> Option<&mut dyn Encode> {
        None
    }

    /// The pass over rows that see each other, if the rows of one input do in this model. A model with recurrent layers has
    /// none: a state follows from the rows one by one.
    fn blocks(&mut self) -> Option<&mut dyn AdvanceBlock> {
        None
    }

    /// Opens the device again after [`ForwardError::Device`]. Pages and states are then without content, and nothing is in
    /// flight. A model without a device has none to open.
    ///
    /// # Errors
    /// The device cannot be opened, or does not compute any more: every call fails until a later recovery succeeds.
    fn recover(&mut self) -> Result<(), ForwardError> {
        Err(ForwardError::Device(DeviceFault::Lost))
    }

    /// The way of pages out of the model and back, if there is one.
    fn page_export(&mut self) -> Option<&mut dyn ExportPages> {
        None
    }
}

/// Guesses of an MTP head.
pub trait Predict {
    /// Guesses about the token after each span: logits, shape `(spans, vocab)`, valid until the next call. A
    /// span is the token that follows the computed ones, with the states that [`Forward::forward`] would get for it; no state
    /// is written, and of keys and values only the head's at that position, which `forward` writes again.
    ///
    /// # Errors
    /// See [`ForwardError`].
    fn predict(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError>;
}

/// Copies of pages outside the model.
pub trait ExportPages {
    /// Bytes of one page's keys and values; constant. 0: pages cannot be exported.
    fn page_bytes(&self) -> usize;

    /// Copies the keys and values of a page into `bytes`, [`ExportPages::page_bytes`] long.
    ///
    /// # Errors
    /// The device failed: `bytes` is not the page.
    fn export_page(&self, page: PageId, bytes: &mut [u8]) -> Result<(), ForwardError>;

    /// Copies into a page what [`ExportPages::export_page`] of a model with the same weights, page size and type of keys and
    /// values wrote. The page then has the bits of the exported one.
    fn import_page(&mut self, page: PageId, bytes: &[u8]);
}
