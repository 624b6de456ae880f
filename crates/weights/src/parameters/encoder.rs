//! Weights of an encoder, packed once.

use super::attention::load_qkv;
use super::layer_tensors::LayerTensors;
use super::packed_tensors::PackedTensors;
use super::tensors::Tensors;
use super::tower::linear;
use super::{EMBEDDING, Experts, Linear, bounded, read_vocab};
use crate::config::limits;
use crate::config::state_head::SCORES;
use crate::encoder::EncoderConfig;
use crate::{LoadError, ModelFiles, Packed, PackedSections};
use kernels::{Format, Isa, Matrix, Pool};

/// Token types of a text: before and after the separator.
const TOKEN_TYPES: usize = 2;
/// Classes of a classification head.
const CLASSES_MAX: usize = 1 << 10;

/// Scale and shift of a layer norm, `(dim)` each.
pub struct LayerNorm {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

/// The weights of one layer.
pub struct EncoderLayer {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub attention_out: Linear,
    pub attention_norm: LayerNorm,
    pub feed_forward: EncoderFeedForward,
    pub output_norm: LayerNorm,
}

/// The feed-forward part of a layer.
#[expect(clippy::large_enum_variant, reason = "one for each layer of one model")]
pub enum EncoderFeedForward {
    /// One for all rows.
    Dense {
        gate: Option<Linear>,
        up: Linear,
        down: Linear,
    },
    /// Experts, of which each row chooses some.
    Experts(Experts),
}

/// A classification head: a projection through tanh, then the scores.
pub struct ClassifierHead {
    /// `(dim, dim)`.
    pub pooler: Option<Linear>,
    /// `(classes, dim)`.
    pub scores: Linear,
}

/// All trained parameters of an encoder.
pub struct EncoderWeights {
    /// `(vocab, dim)`.
    pub embedding: Matrix,
    /// Learned positions, `(context, dim)`.
    pub positions: Option<Matrix>,
    /// The embeddings of the first two token types, `(dim)` each, or of the only one.
    pub token_types: Vec<Vec<f32>>,
    pub embedding_norm: LayerNorm,
    pub layers: Vec<EncoderLayer>,
    pub head: Option<ClassifierHead>,
}

impl EncoderWeights {
    /// Loads all tensors, and packs those that `sections` does not have. `progress` is called with what was loaded so far.
    pub fn load(
        files: &ModelFiles,
        config: &EncoderConfig,
        isa: Isa,
        pool: &mut Pool,
        sections: &mut PackedSections,
        progress: &mut dyn FnMut(Packed),
    ) -> Result<Self, LoadError> {
        let tensors = &mut PackedTensors::new(files, isa, pool, sections, progress);
        let (dim, vocab) = (config.dim, read_vocab(tensors)?);
        let weights = Self {
            embedding: tensors.matrix(EMBEDDING, vocab, dim)?,
            positions: match config.rope {
                None => {
                    Some(tensors.matrix("position_embd.weight", config.context_trained, dim)?)
                }
                Some(_) => None,
            },
            token_types: load_token_types(tensors, dim)?,
            embedding_norm: load_norm(tensors, "token_embd_norm", dim)?,
            layers: (0..config.layers)
                .map(|layer| EncoderLayer::load(tensors, config, layer))
                .collect::<Result<_, _>>()?,
            head: if config.ranks {
                Some(ClassifierHead::load(tensors, dim)?)
            } else {
                None
            },
        };
        tensors.finish_all()?;
        Ok(weights)
    }

    /// Resident bytes of the matrices.
    pub fn bytes(&self) -> usize {
        let experts: usize = self.experts().map(Experts::bytes).sum();
        self.matrices().map(Matrix::bytes).sum::<usize>() + experts
    }

    /// Formats of the matrices.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        let experts = self.experts().flat_map(Experts::formats);
        self.matrices().map(Matrix::format).chain(experts)
    }

    fn experts(&self) -> impl Iterator<Item = &Experts> {
        self.layers
            .iter()
            .filter_map(|layer| match &layer.feed_forward {
                EncoderFeedForward::Experts(experts) => Some(experts),
                EncoderFeedForward::Dense { .. } => None,
            })
    }

    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let outer = std::iter::once(&self.embedding).chain(&self.positions);
        let head = self.head.iter().flat_map(ClassifierHead::matrices);
        outer
            .chain(self.layers.iter().flat_map(EncoderLayer::matrices))
            .chain(head)
    }
}

impl EncoderLayer {
    fn load(
        tensors: &mut PackedTensors<'_>,
        config: &EncoderConfig,
        layer: usize,
    ) -> Result<Self, LoadError> {
        let layer = &mut LayerTensors {
            tensors,
            config,
            layer,
        };
        let (dim, cols) = (config.dim, config.query_cols());
        let rows = [cols, config.kv_cols(), config.kv_cols()];
        let [query, key, value] = load_qkv(layer, rows, dim)?;
        let norms = ["attn_output_norm", "layer_output_norm"].map(|part| layer.name(part));
        Ok(Self {
            query,
            key,
            value,
            attention_out: layer.linear("attn_output", dim, cols)?,
            attention_norm: load_norm(layer.tensors, &norms[0], dim)?,
            feed_forward: EncoderFeedForward::load(layer)?,
            output_norm: load_norm(layer.tensors, &norms[1], dim)?,
        })
    }

    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let always = [&self.query, &self.key, &self.value, &self.attention_out];
        let dense = match &self.feed_forward {
            EncoderFeedForward::Dense { gate, up, down } => {
                Some([up, down].into_iter().chain(gate))
            }
            EncoderFeedForward::Experts(_) => None,
        };
        let all = always.into_iter().chain(dense.into_iter().flatten());
        all.map(|linear| &linear.weight)
    }
}

impl EncoderFeedForward {
    fn load(
        layer: &mut LayerTensors<'_, PackedTensors<'_>, EncoderConfig>,
    ) -> Result<Self, LoadError> {
        let (dim, hidden) = (layer.config.dim, layer.config.hidden);
        if let Some(experts) = layer.config.experts_of(layer.layer) {
            let experts = Experts::load_ungated(layer, dim, experts)?;
            return Ok(Self::Experts(experts));
        }
        let gate = layer.config.is_gated();
        let gate = gate.then(|| layer.linear("ffn_gate", hidden, dim));
        Ok(Self::Dense {
            gate: gate.transpose()?,
            up: layer.linear("ffn_up", hidden, dim)?,
            down: layer.linear("ffn_down", dim, hidden)?,
        })
    }
}

impl ClassifierHead {
    fn load(tensors: &mut PackedTensors<'_>, dim: usize) -> Result<Self, LoadError> {
        let classes = tensors.rows_of(SCORES)?;
        let classes = bounded("the number of classes", classes, CLASSES_MAX)?;
        let scores = linear(tensors, "cls.output", classes, dim)?;
        let pooler = if tensors.has("cls.weight") {
            Some(linear(tensors, "cls", dim, dim)?)
        } else {
            None
        };
        Ok(Self { pooler, scores })
    }

    /// Number of scores.
    pub fn classes(&self) -> usize {
        self.scores.weight.rows()
    }

    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let all = std::iter::once(&self.scores).chain(&self.pooler);
        all.map(|linear| &linear.weight)
    }
}

fn load_norm(
    tensors: &mut PackedTensors<'_>,
    name: &str,
    dim: usize,
) -> Result<LayerNorm, LoadError> {
    Ok(LayerNorm {
        weight: tensors.vector(&format!("{name}.weight"), dim)?,
        bias: tensors.vector(&format!("{name}.bias"), dim)?,
    })
}

fn load_token_types(
    tensors: &mut PackedTensors<'_>,
    dim: usize,
) -> Result<Vec<Vec<f32>>, LoadError> {
    const TYPES: &str = "token_types.weight";
    if !tensors.has(TYPES) {
        return Ok(Vec::new());
    }
    let types = tensors.rows_of(TYPES)?;
    let types = bounded("the number of token types", types, limits::VOCAB)?;
    let table = tensors.matrix(TYPES, types, dim)?;
    let row = |of: usize| {
        let mut row = vec![0.0; dim];
        table.row(of, &mut row);
        row
    };
    Ok((0..types.min(TOKEN_TYPES)).map(row).collect())
}
