//! The weights of an MTP head.

use super::layer::{BlockInput, Layer};
use super::linear::Names;
use super::norm::Norm;
use super::norms::load_norm;
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
        let (dim, layer) = (config.dim, config.layers);
        let names = Names { layer };
        let norm_names = |name: &str| [names.weight(name), names.bias(name)];
        let mut output_norm = norm_names("nextn.shared_head_norm");
        if !tensors.has(&output_norm[0]) {
            let name = config.traits.output_norm;
            output_norm = ["weight", "bias"].map(|kind| format!("{name}.{kind}"));
        }
        let mut table = |name: &str| {
            let name = names.weight(name);
            let table = tensors.has(&name);
            table.then(|| tensors.matrix(&name, vocab, dim)).transpose()
        };
        Ok(Some(Self {
            embedding: table("nextn.embed_tokens")?,
            output: table("nextn.shared_head_head")?,
            embedding_norm: load_norm(tensors, config, &norm_names("nextn.enorm"))?,
            hidden_norm: load_norm(tensors, config, &norm_names("nextn.hnorm"))?,
            join: tensors.matrix(&names.weight("nextn.eh_proj"), dim, 2 * dim)?,
            layer: Layer::load(tensors, config, layer)?,
            output_input: BlockInput::Normed(load_norm(tensors, config, &output_norm)?),
        }))
    }

    /// All matrices but those of experts.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let tables = self.embedding.iter().chain(&self.output);
        let own = std::iter::once(&self.join).chain(tables);
        own.chain(self.layer.matrices())
    }
}
