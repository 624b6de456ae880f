//! AltUp and LAuReL of Gemma 3n: several states of the stream, and a low-rank path beside attention.

use super::layer_tensors::LayerTensors;
use super::linear::Linear;
use super::norm::Norm;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;
use crate::config::altup::{LAUREL_RANK, STATES};

/// Projections between the embedding and the states besides the active one.
pub struct StateProjections<P: Packing = KernelPacking> {
    /// `(dim, dim)` for each further state, from the embedding.
    pub into: P::Stack,
    /// `(dim, dim)` for each further state, to the output.
    pub out_of: P::Stack,
}

/// Parameters of one layer.
pub struct LayerStates<P: Packing = KernelPacking> {
    /// `(STATES, dim)` in f32.
    pub router: P::Matrix,
    /// Norm of the router's input (dim).
    pub router_norm: Norm,
    /// `(STATES * STATES, STATES)`.
    pub predict: Vec<f32>,
    /// `(STATES, STATES)`.
    pub correct: Vec<f32>,
    /// Factors of the active state before the layer's input is added (dim).
    pub correct_scale: Vec<f32>,
    /// `(LAUREL_RANK, dim)`.
    pub laurel_left: Linear<P>,
    /// `(dim, LAUREL_RANK)`.
    pub laurel_right: Linear<P>,
    /// Norm of the low-rank path (dim).
    pub laurel_norm: Norm,
}

impl<P: Packing> StateProjections<P> {
    /// `None` for a model with one state.
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
    ) -> Result<Option<Self>, LoadError> {
        if !config.traits.altup {
            return Ok(None);
        }
        let mut stack = |name| -> Result<P::Stack, LoadError> {
            let [stack] = tensors.stacks(name, STATES - 1, [config.dim], config.dim)?;
            Ok(stack)
        };
        Ok(Some(Self {
            into: stack("altup_proj.weight")?,
            out_of: stack("altup_unembd_proj.weight")?,
        }))
    }

    pub(super) fn stacks(&self) -> [&P::Stack; 2] {
        [&self.into, &self.out_of]
    }
}

impl<P: Packing> LayerStates<P> {
    /// `None` for a model with one state.
    pub(super) fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
    ) -> Result<Option<Self>, LoadError> {
        if !layer.config.traits.altup {
            return Ok(None);
        }
        let (dim, rank) = (layer.config.dim, LAUREL_RANK);
        let router = layer.weight("altup_router");
        let mut router_norm = layer.rms("altup_router_norm", dim)?;
        let weights = router_norm.weight.iter_mut();
        weights.for_each(|weight| *weight /= dim as f32);
        Ok(Some(Self {
            router: layer.tensors.float_matrix(&router, STATES, dim)?,
            router_norm,
            predict: layer.table("altup_predict_coef", STATES * STATES, STATES)?,
            correct: layer.table("altup_correct_coef", STATES, STATES)?,
            correct_scale: layer.vector("altup_correct_scale", dim)?,
            laurel_left: layer.linear("laurel_l", rank, dim)?,
            laurel_right: layer.linear("laurel_r", dim, rank)?,
            laurel_norm: layer.rms("laurel_post_norm", dim)?,
        }))
    }

    pub(super) fn matrices(&self) -> [&P::Matrix; 3] {
        [
            &self.router,
            &self.laurel_left.weight,
            &self.laurel_right.weight,
        ]
    }
}
