//! Projections.

use super::low_rank::LinearAdapters;
use super::tensors::{KernelPacking, Packing, Tensors};

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
