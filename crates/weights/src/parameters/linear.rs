//! Projections, and the names of their tensors.

use super::low_rank::LinearAdapters;
use super::tensors::Tensors;
use crate::LoadError;
use kernels::Matrix;

/// A projection.
pub struct Linear {
    /// `(outputs, inputs)`.
    pub weight: Matrix,
    /// `(outputs)`.
    pub bias: Option<Vec<f32>>,
    /// Changes that sequences may ask for.
    pub adapters: Option<LinearAdapters>,
}

impl Linear {
    /// A projection without a bias and without adapters.
    pub(super) fn without_bias(weight: Matrix) -> Self {
        Self {
            weight,
            bias: None,
            adapters: None,
        }
    }
}

/// Names of one layer's tensors.
pub struct Names {
    pub layer: usize,
}

impl Names {
    pub fn weight(&self, name: &str) -> String {
        format!("blk.{}.{name}.weight", self.layer)
    }

    pub fn scale(&self, name: &str) -> String {
        format!("blk.{}.{name}.scale", self.layer)
    }

    pub fn bias(&self, name: &str) -> String {
        format!("blk.{}.{name}.bias", self.layer)
    }
}

pub(super) fn linear(
    tensors: &mut Tensors<'_>,
    names: &Names,
    name: &str,
    rows: usize,
    cols: usize,
) -> Result<Linear, LoadError> {
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

pub(super) fn join<const N: usize>(
    weights: [Matrix; N],
    biases: [Option<Vec<f32>>; N],
) -> [Linear; N] {
    let mut biases = biases.into_iter();
    weights.map(|weight| Linear {
        weight,
        bias: biases.next().flatten(),
        adapters: None,
    })
}
