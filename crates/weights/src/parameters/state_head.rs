//! Weights of a head on hidden states.

use super::tensors::{KernelPacking, Packing, Tensors};
use super::{Linear, LoadError};
use crate::config::state_head::SCORES;
use crate::config::{Config, StateHead};
use kernels::{Format, Matrix};

/// The projections of a [`StateHead`].
pub enum HeadProjections<P: Packing = KernelPacking> {
    /// `(2, dim)`: yes and no.
    YesNo(Linear<P>),
    /// `(inner, dim)` and `(outer, inner)`.
    Dense([Linear<P>; 2]),
}

/// Answers that are scored.
pub const SCORED_ANSWERS: usize = 2;

impl<P: Packing> HeadProjections<P> {
    /// For a model with a head.
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
    ) -> Result<Option<Self>, LoadError> {
        let mut linear = |name: &str, rows, cols| {
            let weight = tensors.matrix(name, rows, cols)?;
            Ok::<_, LoadError>(Linear::without_bias(weight))
        };
        let dim = config.dim;
        Ok(match config.state_head {
            None => None,
            Some(StateHead::YesNo) => Some(Self::YesNo(linear(SCORES, SCORED_ANSWERS, dim)?)),
            Some(StateHead::Dense { inner, outer }) => Some(Self::Dense([
                linear("dense_2.weight", inner, dim)?,
                linear("dense_3.weight", outer, inner)?,
            ])),
        })
    }

    /// All matrices.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let all: &[Linear<P>] = match self {
            Self::YesNo(answers) => std::slice::from_ref(answers),
            Self::Dense(projections) => projections,
        };
        all.iter().map(|linear| &linear.weight)
    }
}

impl HeadProjections {
    /// Formats of the matrices.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        self.matrices().map(Matrix::format)
    }
}
