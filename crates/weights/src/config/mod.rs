//! Configuration of a decoder, typed and checked, from a file's metadata.
//!
//! One decoder runs all families. Their differences are data: a row of the table in `traits.rs`, and the fields
//! of [`Config`].

pub mod altup;
mod architecture;
#[cfg(test)]
mod differing_tests;
pub(crate) mod encoder_kind;
mod error;
#[cfg(test)]
mod expert_tests;
mod experts;
#[cfg(test)]
mod family_tests;
mod heads;
pub(crate) mod keys;
mod latent;
#[cfg(test)]
mod latent_tests;
pub mod limits;
mod mtp;
mod ollama_keys;
mod recurrent;
pub mod recurrent_rule;
#[cfg(test)]
mod recurrent_tests;
mod rope;
mod scales;
pub mod shapes;
pub(crate) mod state_head;
#[cfg(test)]
mod tests;
pub mod traits;
mod windows;

pub use architecture::Architecture;
pub use error::ConfigError;
pub use experts::{ExpertsConfig, RouterConfig};
pub(crate) use experts::{read_of_encoder as read_experts_of_encoder, refuse as refuse_experts};
pub(crate) use heads::HeadSizes;
pub use latent::LatentConfig;
pub use recurrent::{RecurrentConfig, RecurrentPart};
pub use rope::{RopeConfig, table_of_axes};
pub use scales::{Scales, Temperature};
pub use shapes::LayerShape;
pub use state_head::StateHead;
pub use traits::Gate;

use crate::gguf::{FromValue, Gguf};
use keys::Keys;
use limits::COLUMN_GROUP;
use recurrent_rule::RecurrentRule;
use rope::RopeSizes;
use traits::{BlockRule, FeedRule, Traits};

/// Configuration of a decoder: all numbers that the forward pass needs besides the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// Properties of the family.
    pub traits: Traits,
    /// Layers, without those that predict further tokens.
    pub layers: usize,
    /// Layers at the end of the file that predict further tokens, and are not loaded.
    pub layers_ignored: usize,
    /// Whether the last of [`Config::shapes`] is an MTP head, after the layers.
    pub mtp: bool,
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the widest feed-forward part; beside experts, of the shared expert, or 0.
    pub hidden: usize,
    /// Experts of the feed-forward part.
    pub experts: Option<ExpertsConfig>,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads of a layer without a window; 0 in a model without attention.
    pub kv_heads: usize,
    /// Elements of a head of a layer without a window.
    pub head_dim: usize,
    /// Sizes of each layer, which differ in few families.
    pub shapes: Vec<LayerShape>,
    /// Sizes of latent attention, in a family that has it.
    pub latent: Option<LatentConfig>,
    /// Recurrent layers, which keep a state in place of keys and values.
    pub recurrent: Option<RecurrentConfig>,
    /// Width of the embeddings that each layer adds for a token; 0 for none.
    pub per_layer: usize,
    /// Positions in the model's training.
    pub context_trained: usize,
    /// Positions of a sequence; selects long or short rope factors.
    pub context_max: usize,
    /// Epsilon of every norm.
    pub norm_eps: f32,
    /// Factors of embeddings, updates, attention scores and logits.
    pub scales: Scales,
    /// Cap of attention scores.
    pub attention_cap: Option<f32>,
    /// Cap of logits.
    pub logit_cap: Option<f32>,
    /// Non-linearity of the feed-forward gate.
    pub gate: Gate,
    /// The sliding window of each layer.
    pub windows: Vec<Option<usize>>,
    /// Whether each layer rotates queries and keys.
    pub roped: Vec<bool>,
    /// The rope of layers without a window.
    pub rope: RopeConfig,
    /// The rope of layers with a window.
    pub rope_local: RopeConfig,
    /// What the model gives in place of hidden states.
    pub state_head: Option<StateHead>,
    /// First layers after which something is added to rows that are vectors: such a vector is as many times wider.
    pub deepstack: usize,
}

impl Config {
    /// Reads and checks a file's metadata. `context_max` bounds a sequence; `None` means the context of the
    /// training.
    ///
    /// # Errors
    /// The first key that is missing, of the wrong type, out of bounds or unsupported.
    pub fn from_gguf(gguf: &Gguf, context_max: Option<usize>) -> Result<Self, ConfigError> {
        let architecture = read_architecture(gguf)?;
        let (keys, traits) = (Keys::new(gguf, architecture.name()), architecture.traits());
        let (layers, layers_ignored) = read_layers(&keys)?;
        let dim = grouped(&keys, "embedding_length", limits::DIM)?;
        let feed_forward = experts::read(&keys, &traits, layers)?;
        let windows = windows::read(&keys, traits.windows, layers)?;
        let latent = LatentConfig::read(&keys, &traits)?;
        let (family, hidden) = ((&traits, latent.as_ref()), &feed_forward.hidden);
        let (heads, mut shapes) = LayerShape::read_all(&keys, family, dim, &windows, hidden)?;
        let recurrent = recurrent::read(&keys, &traits, dim, &shapes, layers_ignored)?;
        let beside = traits
            .recurrent
            .is_some_and(RecurrentRule::is_beside_attention);
        if let Some(recurrent) = recurrent.as_ref().filter(|_| !beside) {
            LayerShape::take_attention(&mut shapes, &recurrent.layers);
        }
        let (context_trained, context_max) = read_context(&keys, context_max)?;
        let sizes = RopeSizes {
            head_dim: heads.dim,
            local_head_dim: heads.local_dim,
            context_trained,
            context_max,
        };
        let (rope, rope_local) = rope::read(&keys, &traits, &sizes)?;
        let mut scales = Scales::read(&keys, &traits, layers, dim, &heads)?;
        if let Some(latent) = &latent {
            scales.query = latent.score_scale(&keys, &rope)?;
        }
        Ok(Self {
            architecture,
            traits,
            layers,
            layers_ignored,
            mtp: false,
            dim,
            hidden: shapes.iter().map(|shape| shape.hidden).max().unwrap_or(0),
            experts: feed_forward.experts,
            heads: heads.queries,
            kv_heads: heads.keys,
            head_dim: heads.dim,
            shapes,
            latent,
            recurrent,
            per_layer: read_per_layer(&keys, &traits)?,
            context_trained,
            context_max,
            norm_eps: read_eps(&keys, &traits)?,
            scales,
            attention_cap: cap(&keys, "attn_logit_softcapping", traits.attention_cap)?,
            logit_cap: cap(&keys, "final_logit_softcapping", traits.logit_cap)?,
            gate: traits.gate,
            roped: windows::read_roped(&keys, traits.roped, &windows)?,
            windows,
            rope,
            rope_local,
            state_head: StateHead::read(gguf, &keys, traits.state_head, dim)?,
            deepstack: read_deepstack(&keys, layers)?,
        })
    }

    /// Whether a token sees earlier tokens only.
    pub fn is_causal(&self) -> bool {
        !self.traits.bidirectional
    }

    /// Whether rows turn by three positions.
    pub fn has_axes(&self) -> bool {
        !self.rope.axes.is_empty()
    }

    /// Whether rows of one image see each other in some layer.
    pub fn has_blocks(&self) -> bool {
        (0..self.layers).any(|layer| self.sees_block(layer))
    }

    /// Whether rows of one image see each other in layer `layer`.
    pub fn sees_block(&self, layer: usize) -> bool {
        match self.traits.blocks {
            BlockRule::Never => false,
            BlockRule::All => true,
            BlockRule::Windowed => self.per_layer == 0 && self.windows[layer].is_some(),
        }
    }

    /// Entries that the model gives of a token in place of logits: of the hidden state, or of its head.
    pub fn hidden_dim(&self) -> usize {
        self.state_head.map_or(self.dim, StateHead::entries)
    }

    /// The rope of layer `layer`.
    pub fn rope_of(&self, layer: usize) -> &RopeConfig {
        if self.windows[layer].is_some() {
            &self.rope_local
        } else {
            &self.rope
        }
    }

    /// The widest input of a projection.
    pub fn cols_max(&self) -> usize {
        let expert = self.experts.map_or(0, |experts| experts.hidden);
        let hidden = self.hidden.max(expert);
        let widest = self.dim.max(hidden).max(self.per_layer);
        let recurrent = self.recurrent.as_ref();
        let recurrent = recurrent.map_or(0, RecurrentConfig::cols_max);
        let latent = self.latent.map_or(0, |latent| latent.cols_max(self.heads));
        // The MTP head reads an embedding and a hidden state together.
        let joined = 2 * self.mtp_cols();
        let others = recurrent.max(latent).max(joined);
        widest.max(self.query_cols()).max(others)
    }

    /// The experts of layer `layer`, if it has any.
    pub fn experts_of(&self, layer: usize) -> Option<&ExpertsConfig> {
        let experts = self.experts.as_ref();
        experts.filter(|experts| layer >= experts.first_layer)
    }

    /// Whether the outputs of experts are summed before they are added to those of a feed-forward part beside them.
    pub fn sums_experts(&self) -> bool {
        self.traits.dense_beside_experts && self.experts.is_some()
    }

    /// Rows of the projections' input at a time, in a batch of `rows_max` rows: experts gather theirs.
    pub fn gathered_rows(&self, rows_max: usize) -> usize {
        rows_max.max(self.experts.map_or(0, |experts| experts.used))
    }

    /// Bytes of one state of a sequence, in a model with recurrent layers.
    pub fn state_bytes(&self) -> Option<usize> {
        let recurrent = self.recurrent.as_ref()?;
        let bytes = recurrent.state_shape().bytes().unwrap_or(usize::MAX);
        Some(bytes.saturating_add(self.mtp_cols() * size_of::<f32>()))
    }

    /// States of the stream in a row: 1, or more in Gemma 3n.
    pub fn states(&self) -> usize {
        if self.traits.altup { altup::STATES } else { 1 }
    }

    /// Columns of a row of queries, of the widest layer.
    pub fn query_cols(&self) -> usize {
        let widest = self.shapes.iter().map(|shape| shape.head_dim).max();
        self.heads * widest.unwrap_or(0)
    }

    /// Columns of a row of gates of attention; 0 in a family without them.
    pub fn gate_cols(&self) -> usize {
        if self.traits.gated_attention {
            self.query_cols()
        } else {
            0
        }
    }

    /// Columns of a row of keys, and of values, of the widest layer.
    pub fn kv_cols(&self) -> usize {
        let cols = self.shapes.iter().map(LayerShape::kv_cols);
        cols.max().unwrap_or(0)
    }
}

fn read_architecture(gguf: &Gguf) -> Result<Architecture, ConfigError> {
    let name = architecture_name(gguf)?;
    Architecture::from_name(name).ok_or_else(|| ConfigError::Architecture {
        found: name.chars().take(64).collect(),
    })
}

/// The content of `general.architecture`.
pub(crate) fn architecture_name(gguf: &Gguf) -> Result<&str, ConfigError> {
    let key = || "general.architecture".to_owned();
    let value = gguf
        .get(&key())
        .ok_or_else(|| ConfigError::Missing { key: key() })?;
    <&str>::from_value(&value).map_err(|_| ConfigError::Type {
        key: key(),
        wanted: "text",
    })
}

/// A width that kernels can read: a multiple of [`COLUMN_GROUP`].
pub(crate) fn grouped(keys: &Keys<'_>, name: &str, most: usize) -> Result<usize, ConfigError> {
    let size = keys.required(name, COLUMN_GROUP, most)?;
    if !size.is_multiple_of(COLUMN_GROUP) {
        return Err(keys.range(name, size, format!("a multiple of {COLUMN_GROUP}")));
    }
    Ok(size)
}

pub(crate) fn read_context(
    keys: &Keys<'_>,
    asked: Option<usize>,
) -> Result<(usize, usize), ConfigError> {
    let trained = keys.required("context_length", 1, limits::CONTEXT)?;
    match asked {
        None => Ok((trained, trained)),
        Some(asked) if (1..=trained).contains(&asked) => Ok((trained, asked)),
        Some(asked) => Err(keys.range(
            "context_length",
            trained,
            format!("at least the {asked} asked for"),
        )),
    }
}

/// The width of the embeddings that each layer adds, in a family that has them.
fn read_per_layer(keys: &Keys<'_>, traits: &Traits) -> Result<usize, ConfigError> {
    const NAME: &str = "embedding_length_per_layer_input";
    if traits.per_layer && keys.size(NAME, 0, limits::DIM)?.unwrap_or(0) != 0 {
        grouped(keys, NAME, limits::DIM)
    } else {
        Ok(0)
    }
}

/// Layers to run, and further ones at the end of the file, which predict tokens after the next.
fn read_layers(keys: &Keys<'_>) -> Result<(usize, usize), ConfigError> {
    let all = keys.required("block_count", 1, limits::LAYERS)?;
    let ignored = keys
        .size("nextn_predict_layers", 0, all - 1)?
        .unwrap_or_default();
    Ok((all - ignored, ignored))
}

/// First layers after which something is added to rows that are vectors. Ollama's converter names the tower's layers.
fn read_deepstack(keys: &Keys<'_>, layers: usize) -> Result<usize, ConfigError> {
    if let Some(count) = keys.size("n_deepstack_layers", 0, layers)? {
        return Ok(count);
    }
    let of_tower = keys.numbers("vision.deepstack_visual_indexes", layers)?;
    Ok(of_tower.map_or(0, |layers| layers.len()))
}

fn read_eps(keys: &Keys<'_>, traits: &Traits) -> Result<f32, ConfigError> {
    const LAYER: &str = "attention.layer_norm_epsilon";
    const RMS: &str = "attention.layer_norm_rms_epsilon";
    let (name, other) = if traits.layer_norms {
        (LAYER, None)
    } else {
        // Files of Nemotron H may have the other key only.
        (RMS, (traits.feed == FeedRule::Alone).then_some(LAYER))
    };
    let mut found = keys.float(name, limits::EPS)?;
    if let Some(other) = other.filter(|_| found.is_none()) {
        found = keys.float(other, limits::EPS)?;
    }
    found.ok_or_else(|| keys.missing(name))
}

/// A soft cap; 0 for none.
fn cap(keys: &Keys<'_>, name: &str, default: Option<f32>) -> Result<Option<f32>, ConfigError> {
    let Some(default) = default else {
        return Ok(None);
    };
    let cap = keys.float(name, limits::CAP)?.unwrap_or(default);
    Ok((cap > 0.0).then_some(cap))
}
