//! The weights of an MTP head.

use super::layer::{BlockInput, Layer};
use super::layer_tensors::{LayerTensors, stream_norm};
use super::norm::Norm;
use super::output_norm_names;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;

/// The MTP head: a layer of attention after the last one, whose input is a token and the hidden state before it.
pub struct MtpHead<P: Packing = KernelPacking> {
    /// Norm of a token's embedding.
    pub embedding_norm: Norm,
    /// Norm of a hidden state.
    pub hidden_norm: Norm,
    /// `(dim, 2 dim)`: from an embedding and a hidden state to the stream.
    pub join: P::Matrix,
    pub layer: Layer<P>,
    /// Input of the vocabulary projection.
    pub output_input: BlockInput,
    /// `(vocab, dim)`; `None`: the model's embedding.
    pub embedding: Option<P::Matrix>,
    /// `(vocab, dim)`; `None`: the model's projection.
    pub output: Option<P::Matrix>,
}

impl<P: Packing> MtpHead<P> {
    /// For a model whose head is loaded.
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
        vocab: usize,
    ) -> Result<Option<Self>, LoadError> {
        if !config.mtp {
            return Ok(None);
        }
        let dim = config.dim;
        let layer = &mut LayerTensors {
            tensors,
            config,
            layer: config.layers,
        };
        let mut output_norm =
            ["weight", "bias"].map(|kind| layer.name(&format!("nextn.shared_head_norm.{kind}")));
        if !layer.tensors.has(&output_norm[0]) {
            output_norm = output_norm_names(config);
        }
        let mut table = |part: &str| {
            let table = layer.has(part).then(|| layer.weight(part));
            let table = table.map(|name| layer.tensors.matrix(&name, vocab, dim));
            table.transpose()
        };
        Ok(Some(Self {
            embedding: table("nextn.embed_tokens")?,
            output: table("nextn.shared_head_head")?,
            embedding_norm: layer.norm("nextn.enorm")?,
            hidden_norm: layer.norm("nextn.hnorm")?,
            join: layer
                .tensors
                .matrix(&layer.weight("nextn.eh_proj"), dim, 2 * dim)?,
            layer: Layer::load(layer)?,
            output_input: BlockInput::Normed(stream_norm(layer.tensors, config, &output_norm)?),
        }))
    }

    /// All matrices but those of experts.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let tables = self.embedding.iter().chain(&self.output);
        let own = std::iter::once(&self.join).chain(tables);
        own.chain(self.layer.matrices())
    }
}
