//! AltUp and LAuReL of Gemma 3n: several states of the stream, and a low-rank path beside attention.

use super::linear::{Linear, Names, linear};
use super::norm::Norm;
use super::tensors::Tensors;
use crate::Config;
use crate::LoadError;
use crate::config::altup::{LAUREL_RANK, STATES};
use kernels::{Format, Matrix, MatrixStack};

/// Projections between the embedding and the states besides the active one.
pub struct StateProjections {
    /// `(dim, dim)` for each further state, from the embedding.
    pub into: MatrixStack,
    /// `(dim, dim)` for each further state, to the output.
    pub out_of: MatrixStack,
}

/// Parameters of one layer.
pub struct LayerStates {
    /// `(STATES, dim)` in f32.
    pub router: Matrix,
    /// Norm of the router's input (dim).
    pub router_norm: Norm,
    /// `(STATES * STATES, STATES)`.
    pub predict: Vec<f32>,
    /// `(STATES, STATES)`.
    pub correct: Vec<f32>,
    /// Factors of the active state before the layer's input is added (dim).
    pub correct_scale: Vec<f32>,
    /// `(LAUREL_RANK, dim)`.
    pub laurel_left: Linear,
    /// `(dim, LAUREL_RANK)`.
    pub laurel_right: Linear,
    /// Norm of the low-rank path (dim).
    pub laurel_norm: Norm,
}

impl StateProjections {
    /// `None` for a model with one state.
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
    ) -> Result<Option<Self>, LoadError> {
        if !config.traits.altup {
            return Ok(None);
        }
        let mut stack = |name| -> Result<MatrixStack, LoadError> {
            let [stack] = tensors.stacks(name, STATES - 1, [config.dim], config.dim)?;
            Ok(stack)
        };
        Ok(Some(Self {
            into: stack("altup_proj.weight")?,
            out_of: stack("altup_unembd_proj.weight")?,
        }))
    }

    pub(super) fn bytes(&self) -> usize {
        self.into.bytes() + self.out_of.bytes()
    }

    pub(super) fn formats(&self) -> [Format; 2] {
        [self.into.format(), self.out_of.format()]
    }
}

impl LayerStates {
    /// `None` for a model with one state.
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
        names: &Names,
    ) -> Result<Option<Self>, LoadError> {
        if !config.traits.altup {
            return Ok(None);
        }
        let (dim, rank) = (config.dim, LAUREL_RANK);
        let mut router_norm = tensors.vector(&names.weight("altup_router_norm"), dim)?;
        router_norm
            .iter_mut()
            .for_each(|weight| *weight /= dim as f32);
        let (predict, correct) = ("altup_predict_coef", "altup_correct_coef");
        Ok(Some(Self {
            router: tensors.float_matrix(&names.weight("altup_router"), STATES, dim)?,
            router_norm: Norm::rms(router_norm),
            predict: tensors.table(&names.weight(predict), STATES * STATES, STATES)?,
            correct: tensors.table(&names.weight(correct), STATES, STATES)?,
            correct_scale: tensors.vector(&names.weight("altup_correct_scale"), dim)?,
            laurel_left: linear(tensors, names, "laurel_l", rank, dim)?,
            laurel_right: linear(tensors, names, "laurel_r", dim, rank)?,
            laurel_norm: Norm::rms(tensors.vector(&names.weight("laurel_post_norm"), dim)?),
        }))
    }

    pub(super) fn matrices(&self) -> [&Matrix; 3] {
        [
            &self.router,
            &self.laurel_left.weight,
            &self.laurel_right.weight,
        ]
    }
}
