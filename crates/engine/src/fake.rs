//! A model for tests: no weights, but real KV.
//!
//! The next token is a function of the tokens that stand in the sequence's pages, so that a page
//! handed to the wrong sequence, freed too early or not copied gives wrong tokens.

use model::{Batch, Dims, Forward, ForwardError, PageId};
use std::ops::Range;
use std::sync::Arc;

/// What the fake model is like.
#[derive(Clone, Debug)]
pub struct FakeConfig {
    /// Sizes.
    pub dims: Dims,
    /// The end-of-sequence token.
    pub eos: u32,
    /// How often it is the most likely token, 0 to 1.
    pub eos_probability: f32,
    /// Tokens it generates, beside `eos`; within the vocabulary.
    pub tokens: Range<u32>,
    /// Things that go wrong.
    pub faults: Vec<Fault>,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub at: FaultAt,
    /// What.
    pub kind: FaultKind,
}

/// When a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAt {
    /// In the forward call with this number, from 0.
    Call(u64),
    /// Whenever a batch has a row with this token.
    Token(u32),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// `forward` returns an error.
    Error,
    /// `forward` panics.
    Panic,
    /// The logits have a NaN (with `FaultAt::Call`, those of the first row).
    NotANumber,
}

/// Lets a test decide when forward passes may happen: each takes one permit and waits for it.
#[derive(Debug, Default)]
pub struct Gate {
    _permits: (),
}

impl Gate {
    /// Allows this many more forward passes.
    pub fn allow(&self, _passes: u64) {
        todo!()
    }
    /// Allows all forward passes from now on.
    pub fn open(&self) {
        todo!()
    }
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
            faults: Vec::new(),
        }
    }
}

/// The model.
pub struct FakeModel {
    config: FakeConfig,
}

impl FakeModel {
    /// A fake model.
    pub fn new(config: FakeConfig) -> Self {
        Self { config }
    }

    /// The same, whose forward passes wait at a gate.
    pub fn gated(config: FakeConfig, _gate: Arc<Gate>) -> Self {
        Self { config }
    }
}

impl Forward for FakeModel {
    fn dims(&self) -> Dims {
        self.config.dims
    }
    fn forward(&mut self, _batch: &Batch) -> Result<&mut [f32], ForwardError> {
        todo!()
    }
    fn copy_page(&mut self, _from: PageId, _to: PageId) {
        todo!()
    }
}
