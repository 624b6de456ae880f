//! The weights of a gated convolution.

use super::linear::{Linear, Names, linear};
use super::taps::load_taps;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::LoadError;

/// A convolution over time between two gates (LFM2).
pub struct ShortConv<P: Packing = KernelPacking> {
    /// First gate, second gate, and what is convolved: `(3 * dim, dim)`.
    pub input: Linear<P>,
    /// `(taps, dim)`; the last row for the present.
    pub taps: Vec<f32>,
    /// `(dim, dim)`.
    pub out: Linear<P>,
}

impl<P: Packing> ShortConv<P> {
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
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

    pub(super) fn matrices(&self) -> Vec<&P::Matrix> {
        vec![&self.input.weight, &self.out.weight]
    }
}
