//! Trained parameters of decoders and encoders: which tensors a model has, under which names and in which shapes.
//!
//! A decoder's are generic over who packs ([`Packing`]): [`Weights::load`] packs files for this machine's kernels once, and
//! releases the file's copy; [`Weights::describe`] reads no matrix and says where each is; [`Weights::read`] takes any other
//! source of [`Tensors`].

mod adapt;
mod altup;
mod attention;
mod cached;
mod described;
mod described_reader;
mod described_tensors;
mod encoder;
mod experts;
mod file_tensors;
mod latent;
mod layer;
mod layer_tensors;
mod linear;
mod low_rank;
mod mtp;
mod norm;
mod packed_tensors;
mod parts;
mod per_layer;
mod recurrent;
mod resampler;
mod stacks;
mod state_head;
mod tensors;
mod tower;
mod tower_head;

pub use altup::{LayerStates, StateProjections};
pub use attention::{Attention, KeyValue};
pub use described::{Described, DescribedMatrix, RowRun, TensorRows};
pub use described_reader::DescribedReader;
pub use encoder::{ClassifierHead, EncoderFeedForward, EncoderLayer, EncoderWeights, LayerNorm};
pub use experts::{ExpertBiases, ExpertNorms, Experts};
pub use latent::Latent;
pub use layer::{BlockInput, Dense, Layer};
pub use linear::Linear;
pub use low_rank::{LinearAdapters, RankGroup};
pub use mtp::MtpHead;
pub use norm::Norm;
pub use packed_tensors::Packed;
pub use parts::Parameter;
pub use per_layer::{PerLayerInputs, PerLayerUpdate};
pub use recurrent::{DeltaNet, Mamba, Recurrent, ShortConv};
pub use resampler::Resampler;
pub use state_head::{HeadProjections, SCORED_ANSWERS};
pub use tensors::{
    KernelPacking, MatrixOf, Packing, Projecting, RowTable, StackOf, Stored, Tensors,
};
pub use tower::{Clamp, LayerClamps, PatchMatrix, TowerLayer, TowerWeights};
pub use tower_head::{Merger, TowerHead};

use crate::config::limits;
use crate::{Config, LoadError, ModelFiles, PackedSections};
use kernels::{Format, Isa, Pool};
use layer_tensors::{LayerTensors, stream_norm};
use packed_tensors::PackedTensors;

/// All trained parameters.
pub struct Weights<P: Packing = KernelPacking> {
    /// `(vocab, dim)`; also the vocabulary projection, unless `output` is present.
    pub embedding: P::Matrix,
    /// `(vocab, dim)`.
    pub output: Option<P::Matrix>,
    /// `(vocab)`.
    pub output_bias: Option<Vec<f32>>,
    /// Input of the vocabulary projection.
    pub output_input: BlockInput,
    pub layers: Vec<Layer<P>>,
    /// The MTP head, if it is loaded.
    pub mtp: Option<MtpHead<P>>,
    /// Inputs of the layers besides the stream.
    pub per_layer: Option<PerLayerInputs<P>>,
    /// Of a model with several states.
    pub states: Option<StateProjections<P>>,
    /// The head on hidden states.
    pub state_head: Option<HeadProjections<P>>,
    /// Divisors of the global rope's frequencies.
    pub rope_factors: Option<Vec<f32>>,
    /// Rows of the embedding.
    vocab: usize,
}

impl Weights {
    /// Loads all tensors, and packs those that `sections` does not have. `progress` is called with what was loaded so far.
    ///
    /// # Errors
    /// As for [`Weights::read`]; or a tensor cannot be packed.
    pub fn load(
        files: &ModelFiles,
        config: &Config,
        isa: Isa,
        pool: &mut Pool,
        sections: &mut PackedSections,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        let tensors = &mut PackedTensors::new(files, isa, pool, sections, progress);
        Self::read(tensors, config)
    }

    /// Formats of the matrices.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        let experts = self.experts().flat_map(Experts::formats);
        let states = self.states.iter().flat_map(StateProjections::stacks);
        let states = states.map(Stored::format);
        let latents = self.latents().flat_map(Latent::stacks).map(Stored::format);
        self.matrices()
            .map(Stored::format)
            .chain(experts)
            .chain(latents)
            .chain(states)
    }
}

impl<P: Packing> Weights<P> {
    /// Reads all tensors of this model.
    ///
    /// # Errors
    /// A tensor is missing, does not fit, or is not used.
    pub fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
    ) -> Result<Self, LoadError> {
        let vocab = read_vocab(tensors)?;
        let dim = config.dim;
        let weights = Self {
            embedding: tensors.matrix(EMBEDDING, vocab, dim)?,
            output: if tensors.has("output.weight") {
                Some(tensors.matrix("output.weight", vocab, dim)?)
            } else {
                None
            },
            output_bias: tensors.vector_if_there("output.bias", vocab)?,
            output_input: BlockInput::Normed(stream_norm(
                tensors,
                config,
                &output_norm_names(config),
            )?),
            rope_factors: rope_factors(tensors, config)?,
            per_layer: PerLayerInputs::load(tensors, config, vocab)?,
            states: StateProjections::load(tensors, config)?,
            state_head: HeadProjections::load(tensors, config)?,
            layers: (0..config.layers)
                .map(|layer| {
                    Layer::load(&mut LayerTensors {
                        tensors,
                        config,
                        layer,
                    })
                })
                .collect::<Result<_, _>>()?,
            mtp: MtpHead::load(tensors, config, vocab)?,
            vocab,
        };
        let ignored = config.layers..config.layers + config.layers_ignored;
        ignored.for_each(|layer| tensors.ignore_prefix(&format!("blk.{layer}.")));
        tensors.finish_all()?;
        Ok(weights)
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// The vocabulary projection.
    pub fn projection(&self) -> &P::Matrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }

    fn experts(&self) -> impl Iterator<Item = &Experts<P>> {
        let layers = self.layers.iter();
        let layers = layers.chain(self.mtp.iter().map(|head| &head.layer));
        layers.flat_map(|layer| &layer.experts)
    }

    fn latents(&self) -> impl Iterator<Item = &Latent<P>> {
        self.layers.iter().flat_map(|layer| &layer.latent)
    }

    fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let inputs = self.per_layer.as_ref().map(|inputs| &inputs.projection);
        let outer = std::iter::once(&self.embedding).chain(&self.output);
        let head = self.state_head.iter().flat_map(HeadProjections::matrices);
        let outer = outer.chain(inputs).chain(head);
        let outer = outer.chain(self.mtp.iter().flat_map(MtpHead::matrices));
        outer.chain(self.layers.iter().flat_map(Layer::matrices))
    }
}

const EMBEDDING: &str = "token_embd.weight";

/// The number of embeddings.
fn read_vocab<T: Tensors>(tensors: &T) -> Result<usize, LoadError> {
    let vocab = tensors.rows_of(EMBEDDING)?;
    bounded("the number of embeddings", vocab, limits::VOCAB)
}

/// A number that a file gives, from 1 to `most`.
fn bounded(name: &'static str, given: usize, most: usize) -> Result<usize, LoadError> {
    let is_within = (1..=most).contains(&given);
    is_within.then_some(given).ok_or(LoadError::Option {
        name,
        given,
        least: 1,
        most,
    })
}

/// Names of the weight and the bias of the norm before the vocabulary projection.
fn output_norm_names(config: &Config) -> [String; 2] {
    ["weight", "bias"].map(|kind| format!("{}.{kind}", config.traits.output_norm))
}

fn rope_factors<T: Tensors>(
    tensors: &mut T,
    config: &Config,
) -> Result<Option<Vec<f32>>, LoadError> {
    let Some(name) = config.rope.factors else {
        return Ok(None);
    };
    let factors = tensors.vector_if_there(name, config.rope.dims / 2)?;
    match factors
        .as_ref()
        .and_then(|factors| factors.iter().position(|&factor| factor <= 0.0))
    {
        Some(index) => Err(LoadError::Value {
            tensor: name.into(),
            index,
        }),
        None => Ok(factors),
    }
}
