//! The weights of a gated convolution.

use super::linear::{Linear, Names, linear};
use super::taps::load_taps;
use super::tensors::Tensors;
use crate::LoadError;
use kernels::Matrix;

/// A convolution over time between two gates (LFM2).
pub struct ShortConv {
    /// First gate, second gate, and what is convolved: `(3 * dim, dim)`.
    pub input: Linear,
    /// `(taps, dim)`; the last row for the present.
    pub taps: Vec<f32>,
    /// `(dim, dim)`.
    pub out: Linear,
}

impl ShortConv {
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        dim: usize,
        taps: usize,
        names: &Names,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            input: linear(tensors, names, "shortconv.in_proj", 3 * dim, dim)?,
            taps: load_taps(tensors, &names.weight("shortconv.conv"), dim, taps)?,
            out: linear(tensors, names, "shortconv.out_proj", dim, dim)?,
        })
    }

    pub(super) fn matrices(&self) -> Vec<&Matrix> {
        vec![&self.input.weight, &self.out.weight]
    }
}
