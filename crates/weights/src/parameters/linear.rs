//! Projections, and the names of their tensors.

use super::low_rank::LinearAdapters;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::LoadError;

/// A projection.
pub struct Linear<P: Packing = KernelPacking> {
    /// `(outputs, inputs)`.
    pub weight: P::Matrix,
    /// `(outputs)`.
    pub bias: Option<Vec<f32>>,
    /// Changes that sequences may ask for.
    pub adapters: Option<LinearAdapters<P>>,
}

impl<P: Packing> Linear<P> {
    /// A projection without a bias and without adapters.
    pub(super) fn without_bias(weight: P::Matrix) -> Self {
        Self {
            weight,
            bias: None,
            adapters: None,
        }
    }
}

/// A projection that a source of tensors gives.
pub(super) type LinearOf<T> = Linear<<T as Tensors>::Packing>;

/// Names of one layer's tensors.
pub(super) struct Names {
    pub(super) layer: usize,
}

impl Names {
    pub(super) fn weight(&self, name: &str) -> String {
        format!("blk.{}.{name}.weight", self.layer)
    }

    pub(super) fn scale(&self, name: &str) -> String {
        format!("blk.{}.{name}.scale", self.layer)
    }

    pub(super) fn bias(&self, name: &str) -> String {
        format!("blk.{}.{name}.bias", self.layer)
    }
}

pub(super) fn linear<T: Tensors>(
    tensors: &mut T,
    names: &Names,
    name: &str,
    rows: usize,
    cols: usize,
) -> Result<LinearOf<T>, LoadError> {
    Ok(Linear {
        weight: tensors.matrix(&names.weight(name), rows, cols)?,
        bias: tensors.vector_if_there(&names.bias(name), rows)?,
        adapters: None,
    })
}

pub(super) fn cut<const N: usize>(
    bias: Option<Vec<f32>>,
    rows: [usize; N],
) -> [Option<Vec<f32>>; N] {
    let mut bias = bias;
    rows.map(|rows| {
        let rest = bias.as_mut().map(|bias| bias.split_off(rows));
        std::mem::replace(&mut bias, rest)
    })
}

pub(super) fn join<P: Packing, const N: usize>(
    weights: [P::Matrix; N],
    biases: [Option<Vec<f32>>; N],
) -> [Linear<P>; N] {
    let mut biases = biases.into_iter();
    weights.map(|weight| Linear {
        weight,
        bias: biases.next().flatten(),
        adapters: None,
    })
}
