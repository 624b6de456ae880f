//! The weights of one layer.

use super::LoadError;
use super::altup::LayerStates;
use super::experts::Experts;
use super::norms::LayerNorms;
use super::per_layer::PerLayerUpdate;
use super::tensors::Tensors;
use crate::Config;
use crate::config::altup::cutoff;
use crate::norm::Norm;
use kernels::{Isa, Matrix};

/// A projection.
pub(crate) struct Linear {
    /// `(outputs, inputs)`.
    pub(crate) weight: Matrix,
    /// `(outputs)`.
    pub(crate) bias: Option<Vec<f32>>,
}

/// Input of attention or of a feed-forward part.
pub(crate) enum BlockInput {
    /// The normalized stream.
    Normed(Norm),
    /// The stream.
    Stream,
    /// The input of the attention of the same layer.
    AsAttention,
}

impl BlockInput {
    /// Writes one row of the input to `input`, which holds the input of the previous attention.
    pub(crate) fn read(&self, isa: Isa, eps: f32, stream: &[f32], input: &mut [f32]) {
        match self {
            Self::Normed(norm) => norm.apply(isa, eps, stream, input),
            Self::Stream => input.copy_from_slice(stream),
            Self::AsAttention => {}
        }
    }
}

/// A feed-forward part that every row uses.
pub(crate) struct Dense {
    pub(crate) gate: Option<Linear>,
    /// Standard deviations above the mean from which on entries of the gate are kept.
    pub(crate) cutoff: Option<f32>,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// Projections to the keys and values that a layer stores, and their norms.
pub(crate) struct KeyValue {
    pub(crate) key: Linear,
    /// `None`: the keys before norm and rope are the values.
    pub(crate) value: Option<Linear>,
    pub(crate) key_norm: Option<Norm>,
    /// Norm of each head of the values.
    pub(crate) value_norm: Option<Norm>,
}

/// The weights of one layer. Norms are `(dim)`; those of queries and keys `(head_dim)` or as long as a row.
pub(crate) struct Layer {
    pub(crate) attention_input: BlockInput,
    pub(crate) query: Linear,
    /// `None`: the layer reads the keys and values of an earlier one.
    pub(crate) key_value: Option<KeyValue>,
    pub(crate) query_norm: Option<Norm>,
    /// A score for each query head that has no value.
    pub(crate) sinks: Option<Vec<f32>>,
    pub(crate) attention_out: Linear,
    pub(crate) attention_post_norm: Option<Norm>,
    pub(crate) hidden_input: BlockInput,
    /// The feed-forward part, or the expert that every row uses beside the others.
    pub(crate) dense: Option<Dense>,
    pub(crate) experts: Option<Experts>,
    pub(crate) hidden_post_norm: Option<Norm>,
    pub(crate) per_layer: Option<PerLayerUpdate>,
    /// Of a model with several states.
    pub(crate) states: Option<LayerStates>,
    /// Factor of the stream after the layer.
    pub(crate) output_scale: Option<f32>,
}

impl Layer {
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
        layer: usize,
    ) -> Result<Self, LoadError> {
        let names = Names { layer };
        let shape = &config.shapes[layer];
        let (dim, query_cols) = (config.dim, config.heads * shape.head_dim);
        let (query, key_value) = load_attention(tensors, config, &names)?;
        let sinks = config.traits.sinks;
        let sinks = sinks.then(|| tensors.vector(&names.weight("attn_sinks"), config.heads));
        let sinks = sinks.transpose()?;
        let dense = (shape.hidden > 0).then(|| Dense::load(tensors, config, &names));
        let dense = dense.transpose()?;
        let experts = config.experts.as_ref();
        let experts = experts.map(|experts| Experts::load(tensors, config, experts, &names));
        let experts = experts.transpose()?;
        let norms = &mut LayerNorms {
            tensors,
            config,
            names: &names,
        };
        Ok(Self {
            sinks,
            query,
            key_value,
            dense,
            experts,
            query_norm: norms.of_heads("attn_q_norm", query_cols)?,
            attention_post_norm: norms.after("post_attention_norm")?,
            hidden_post_norm: norms.after("post_ffw_norm")?,
            attention_input: norms.before_attention()?,
            hidden_input: norms.before_feed_forward()?,
            attention_out: linear(tensors, &names, "attn_output", dim, query_cols)?,
            per_layer: PerLayerUpdate::load(tensors, config, &names)?,
            states: LayerStates::load(tensors, config, &names)?,
            output_scale: load_output_scale(tensors, config, &names)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let always = [&self.query, &self.attention_out];
        let stored = self.key_value.iter().flat_map(|stored| {
            let key = std::iter::once(&stored.key);
            key.chain(&stored.value)
        });
        let dense = self.dense.iter().flat_map(|dense| {
            let always = [&dense.up, &dense.down].into_iter();
            always.chain(&dense.gate)
        });
        let all = always.into_iter().chain(stored).chain(dense);
        let per_layer = self.per_layer.iter().flat_map(PerLayerUpdate::matrices);
        let states = self.states.iter().flat_map(LayerStates::matrices);
        let others = per_layer.chain(states);
        all.map(|linear| &linear.weight).chain(others)
    }
}

impl Dense {
    /// The shared expert's tensors have names of their own.
    fn load(tensors: &mut Tensors<'_>, config: &Config, names: &Names) -> Result<Self, LoadError> {
        let (hidden, dim) = (config.shapes[names.layer].hidden, config.dim);
        if config.experts.is_some() && !config.traits.dense_beside_experts {
            let mut part = |name: &str, rows, cols| {
                linear(tensors, names, &format!("{name}_shexp"), rows, cols)
            };
            return Ok(Self {
                gate: Some(part("ffn_gate", hidden, dim)?),
                cutoff: None,
                up: part("ffn_up", hidden, dim)?,
                down: part("ffn_down", dim, hidden)?,
            });
        }
        let (gate, up) = load_gate_up(tensors, config, names)?;
        let sparse = config.traits.altup;
        Ok(Self {
            gate,
            cutoff: sparse.then(|| cutoff(names.layer)).flatten(),
            up,
            down: linear(tensors, names, "ffn_down", dim, hidden)?,
        })
    }
}

/// Names of one layer's tensors.
pub(crate) struct Names {
    pub(crate) layer: usize,
}

impl Names {
    pub(crate) fn weight(&self, name: &str) -> String {
        format!("blk.{}.{name}.weight", self.layer)
    }

    pub(crate) fn scale(&self, name: &str) -> String {
        format!("blk.{}.{name}.scale", self.layer)
    }

    pub(crate) fn bias(&self, name: &str) -> String {
        format!("blk.{}.{name}.bias", self.layer)
    }
}

pub(crate) fn linear(
    tensors: &mut Tensors<'_>,
    names: &Names,
    name: &str,
    rows: usize,
    cols: usize,
) -> Result<Linear, LoadError> {
    Ok(Linear {
        weight: tensors.matrix(&names.weight(name), rows, cols)?,
        bias: tensors.vector_if_there(&names.bias(name), rows)?,
    })
}

/// The query projection, and what the layer stores.
fn load_attention(
    tensors: &mut Tensors<'_>,
    config: &Config,
    names: &Names,
) -> Result<(Linear, Option<KeyValue>), LoadError> {
    let shape = &config.shapes[names.layer];
    let (dim, kv_cols) = (config.dim, shape.kv_cols());
    let query_cols = config.heads * shape.head_dim;
    let (query, stored) = if shape.kv_layer != names.layer {
        // Converters keep projections that the model has been trained without.
        for part in ["attn_k", "attn_v", "attn_k_norm"] {
            tensors.ignore(&names.weight(part));
        }
        (linear(tensors, names, "attn_q", query_cols, dim)?, None)
    } else if config.traits.value_norm && !has_values(tensors, names) {
        let key = linear(tensors, names, "attn_k", kv_cols, dim)?;
        let query = linear(tensors, names, "attn_q", query_cols, dim)?;
        (query, Some((key, None)))
    } else {
        let rows = [query_cols, kv_cols, kv_cols];
        let [query, key, value] = load_qkv(tensors, names, rows, dim)?;
        (query, Some((key, Some(value))))
    };
    let Some((key, value)) = stored else {
        return Ok((query, None));
    };
    let norms = &mut LayerNorms {
        tensors,
        config,
        names,
    };
    let key_norm = norms.of_heads("attn_k_norm", kv_cols)?;
    let value_norm = config.traits.value_norm;
    let value_norm = value_norm.then(|| Norm::rms(vec![1.0; shape.head_dim]));
    let key_value = KeyValue {
        key,
        value,
        key_norm,
        value_norm,
    };
    Ok((query, Some(key_value)))
}

fn has_values(tensors: &Tensors<'_>, names: &Names) -> bool {
    let parts = ["attn_v", "attn_qkv"];
    parts.iter().any(|part| tensors.has(&names.weight(part)))
}

fn load_output_scale(
    tensors: &mut Tensors<'_>,
    config: &Config,
    names: &Names,
) -> Result<Option<f32>, LoadError> {
    let name = names.weight("layer_output_scale");
    if !config.traits.layers_differ || !tensors.has(&name) {
        return Ok(None);
    }
    Ok(tensors.vector(&name, 1)?.first().copied())
}

/// Query, key and value projections, from three tensors or from one.
pub(crate) fn load_qkv(
    tensors: &mut Tensors<'_>,
    names: &Names,
    rows: [usize; 3],
    dim: usize,
) -> Result<[Linear; 3], LoadError> {
    let parts = ["attn_q", "attn_k", "attn_v"];
    if !tensors.has(&names.weight("attn_qkv")) {
        let [q, k, v] = parts;
        return Ok([
            linear(tensors, names, q, rows[0], dim)?,
            linear(tensors, names, k, rows[1], dim)?,
            linear(tensors, names, v, rows[2], dim)?,
        ]);
    }
    let biases = split_bias(tensors, names, "attn_qkv", rows, parts)?;
    let weights = tensors.split(&names.weight("attn_qkv"), rows, dim)?;
    Ok(join(weights, biases))
}

/// Gate, if the family has one, and up projections, from two tensors or from one.
fn load_gate_up(
    tensors: &mut Tensors<'_>,
    config: &Config,
    names: &Names,
) -> Result<(Option<Linear>, Linear), LoadError> {
    let (hidden, dim) = (config.shapes[names.layer].hidden, config.dim);
    if !config.traits.fused_gate_up {
        let gate = match config.traits.gated {
            true => Some(linear(tensors, names, "ffn_gate", hidden, dim)?),
            false => None,
        };
        return Ok((gate, linear(tensors, names, "ffn_up", hidden, dim)?));
    }
    let rows = [hidden, hidden];
    let bias = tensors.vector_if_there(&names.bias("ffn_up"), 2 * hidden)?;
    let weights = tensors.split(&names.weight("ffn_up"), rows, dim)?;
    let [gate, up] = join(weights, cut(bias, rows));
    Ok((Some(gate), up))
}

/// The biases of a fused projection: one fused bias, or one for each part.
fn split_bias<const N: usize>(
    tensors: &mut Tensors<'_>,
    names: &Names,
    fused: &str,
    rows: [usize; N],
    parts: [&str; N],
) -> Result<[Option<Vec<f32>>; N], LoadError> {
    let all = rows.iter().sum();
    if let Some(bias) = tensors.vector_if_there(&names.bias(fused), all)? {
        return Ok(cut(Some(bias), rows));
    }
    let mut biases = [const { None }; N];
    for (bias, (part, rows)) in biases.iter_mut().zip(parts.into_iter().zip(rows)) {
        *bias = tensors.vector_if_there(&names.bias(part), rows)?;
    }
    Ok(biases)
}

fn cut<const N: usize>(bias: Option<Vec<f32>>, rows: [usize; N]) -> [Option<Vec<f32>>; N] {
    let mut bias = bias;
    rows.map(|rows| {
        let rest = bias.as_mut().map(|bias| bias.split_off(rows));
        std::mem::replace(&mut bias, rest)
    })
}

fn join<const N: usize>(weights: [Matrix; N], biases: [Option<Vec<f32>>; N]) -> [Linear; N] {
    let mut biases = biases.into_iter();
    weights.map(|weight| Linear {
        weight,
        bias: biases.next().flatten(),
    })
}
