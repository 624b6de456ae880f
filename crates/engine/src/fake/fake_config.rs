//! Properties of the fake model, and the failures that it simulates.

use model::{DeviceFault, Dims};
use std::ops::Range;

/// Properties of the fake model.
#[derive(Clone, Debug)]
pub struct FakeConfig {
    /// Sizes.
    pub dims: Dims,
    /// The end-of-sequence token.
    pub eos: u32,
    /// Probability that `eos` is by far the most likely token; 0 to 1.
    pub eos_probability: f32,
    /// Tokens to generate, beside `eos`; within the vocabulary.
    pub tokens: Range<u32>,
    /// Probability that the successor of the last token in `tokens` (cyclic) is
    /// much likelier than the others; 0 to 1. Makes answers repeat themselves.
    pub habit: f32,
    /// Failures to simulate.
    pub faults: Vec<Fault>,
}

impl Default for FakeConfig {
    fn default() -> Self {
        Self {
            dims: Dims {
                vocab: 256,
                context_max: 1024,
                page_tokens: 16,
                pages: 256,
                rows_max: 512,
                logit_rows_max: 256,
            },
            eos: 0,
            eos_probability: 0.0,
            tokens: 1..256,
            habit: 0.0,
            faults: Vec::new(),
        }
    }
}

/// A simulated failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When the failure happens.
    pub at: FaultAt,
    /// Failing part.
    pub kind: FaultKind,
}

/// The occasion of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAt {
    /// In the forward call with this number, from 0.
    Call(u64),
    /// Whenever a batch has a row with this token.
    Token(u32),
    /// In the call of the MTP head with this number, from 0: an error or a panic.
    Guess(u64),
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// `forward` returns an error that names no row.
    Error,
    /// `forward` returns an error that names the row, if the span has one; otherwise as `Error`.
    NotFinite,
    /// `forward` panics.
    Panic,
    /// `forward` reports a failed device: the content of all pages and states is lost, and each call fails until the
    /// device is opened again.
    Device(DeviceFault),
    /// As `Device`, but a model that runs ahead reports it when the results of the batch are awaited. Elsewhere without effect.
    LateDevice(DeviceFault),
    /// `forward` ends the process, as a fault of the processor or the driver does.
    Abort,
    /// The logits of rows that attend to that token (with `FaultAt::Call`, of the first span) are NaN.
    NotANumber,
}
