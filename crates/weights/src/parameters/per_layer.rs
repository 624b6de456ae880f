//! Embeddings of a token that single layers add (Gemma 3n and 4).

use super::layer_tensors::LayerTensors;
use super::linear::Linear;
use super::norm::Norm;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;

/// The inputs of all layers for a token: a row of a table, and a projection of the token's embedding.
pub struct PerLayerInputs<P: Packing = KernelPacking> {
    /// `(vocab, layers * width)`.
    pub table: P::Table,
    /// `(layers * width, dim)`.
    pub projection: P::Matrix,
    /// Norm of each layer's part of the projection (width).
    pub norm: Norm,
}

/// Parameters with which one layer adds its input to the stream.
pub struct PerLayerUpdate<P: Packing = KernelPacking> {
    /// `(width, dim)`.
    pub gate: Linear<P>,
    /// `(dim, width)`.
    pub projection: Linear<P>,
    /// Norm of the update (dim).
    pub post_norm: Norm,
}

impl<P: Packing> PerLayerInputs<P> {
    /// `None` for a model without such inputs.
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
        vocab: usize,
    ) -> Result<Option<Self>, LoadError> {
        let width = config.per_layer;
        if width == 0 {
            return Ok(None);
        }
        let cols = config.layers * width;
        Ok(Some(Self {
            table: tensors.row_table("per_layer_token_embd.weight", vocab, cols)?,
            projection: tensors.matrix("per_layer_model_proj.weight", cols, config.dim)?,
            norm: Norm::rms(tensors.vector("per_layer_proj_norm.weight", width)?),
        }))
    }
}

impl<P: Packing> PerLayerUpdate<P> {
    /// `None` for a model without such inputs.
    pub(super) fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
    ) -> Result<Option<Self>, LoadError> {
        let (width, dim) = (layer.config.per_layer, layer.config.dim);
        if width == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            gate: layer.linear("inp_gate", width, dim)?,
            projection: layer.linear("proj", dim, width)?,
            post_norm: layer.rms("post_norm", dim)?,
        }))
    }

    pub(super) fn matrices(&self) -> [&P::Matrix; 2] {
        [&self.gate.weight, &self.projection.weight]
    }
}
