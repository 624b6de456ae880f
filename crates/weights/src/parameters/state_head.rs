//! Weights of a head on hidden states.

use super::tensors::Tensors;
use super::{Linear, LoadError};
use crate::config::state_head::SCORES;
use crate::config::{Config, StateHead};
use kernels::{Format, Matrix};

/// The projections of a [`StateHead`].
pub enum HeadProjections {
    /// `(2, dim)`: yes and no.
    YesNo(Linear),
    /// `(inner, dim)` and `(outer, inner)`.
    Dense([Linear; 2]),
}

impl HeadProjections {
    /// Answers that are scored.
    pub const ANSWERS: usize = 2;

    /// For a model with a head.
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
    ) -> Result<Option<Self>, LoadError> {
        let mut linear = |name: &str, rows, cols| {
            let weight = tensors.matrix(name, rows, cols)?;
            Ok::<_, LoadError>(Linear::without_bias(weight))
        };
        let dim = config.dim;
        Ok(match config.state_head {
            None => None,
            Some(StateHead::YesNo) => Some(Self::YesNo(linear(SCORES, Self::ANSWERS, dim)?)),
            Some(StateHead::Dense { inner, outer }) => Some(Self::Dense([
                linear("dense_2.weight", inner, dim)?,
                linear("dense_3.weight", outer, inner)?,
            ])),
        })
    }

    /// Formats of the matrices.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        self.matrices().map(Matrix::format)
    }

    /// All matrices.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let all: &[Linear] = match self {
            Self::YesNo(answers) => std::slice::from_ref(answers),
            Self::Dense(projections) => projections,
        };
        all.iter().map(|linear| &linear.weight)
    }
}
