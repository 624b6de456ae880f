//! The interface between the engine and an encoder: inputs in, rows of vectors out.
//!
//! An encoder turns an input (an image; later sound) into rows that stand in a prompt in place of tokens
//! ([`crate::Batch::set_vectors`]). It works in short units, because it shares its processor with the sequences that run.

use crate::DeviceFault;
use std::any::Any;
use std::sync::Arc;

/// An input that an encoder turns into rows of vectors. Only its maker and the encoder know what is inside.
pub type EncoderInput = Arc<dyn Any + Send + Sync>;

/// Sizes of an encoder. Constant for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderDims {
    /// Elements of a row: as many as a vector of a batch has.
    pub row_width: usize,
    /// Rows of one input, at most.
    pub rows_max: usize,
}

/// Why an encoding failed. An encoder without a failed device can begin the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The input is none of this encoder, or breaks a bound; or there is nothing to advance.
    BadInput(&'static str),
    /// A row is not finite.
    NotFinite,
    /// The device failed, as in [`crate::ForwardError::Device`].
    Device(DeviceFault),
}

impl std::fmt::Display for EncodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadInput(why) => write!(f, "bad input of an encoder: {why}"),
            Self::NotFinite => f.write_str("a row of an encoding is not finite"),
            Self::Device(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for EncodeError {}

/// Computes rows of vectors from inputs, in units of some 15 ms. The bits of the rows do not depend on what
/// is computed between two units.
pub trait Encode {
    /// Sizes of the encoder; constant.
    fn dims(&self) -> EncoderDims;

    /// Begins an encoding; one that is under way is dropped. Returns the number of units, at least 1.
    ///
    /// # Errors
    /// See [`EncodeError`]; nothing is under way then.
    fn begin(&mut self, input: &EncoderInput) -> Result<usize, EncodeError>;

    /// The cost of the next unit, at least 1: of two units, the one of twice the cost takes about twice as long.
    fn next_cost(&self) -> u64;

    /// Computes the next unit. After the last one: the rows, shape `(rows, row_width)`, valid until the next call.
    ///
    /// # Errors
    /// See [`EncodeError`]; nothing is under way then.
    fn advance(&mut self) -> Result<Option<&[f32]>, EncodeError>;
}
