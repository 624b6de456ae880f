//! The weights of one layer.

use super::LoadError;
use super::experts::Experts;
use super::norms::LayerNorms;
use super::tensors::Tensors;
use crate::Config;
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
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// The weights of one layer. Norms are `(dim)`; those of queries and keys `(head_dim)` or as long as a row.
pub(crate) struct Layer {
    pub(crate) attention_input: BlockInput,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) query_norm: Option<Norm>,
    pub(crate) key_norm: Option<Norm>,
    /// A score for each query head that has no value.
    pub(crate) sinks: Option<Vec<f32>>,
    pub(crate) attention_out: Linear,
    pub(crate) attention_post_norm: Option<Norm>,
    pub(crate) hidden_input: BlockInput,
    /// The feed-forward part, or the expert that every row uses beside the others.
    pub(crate) dense: Option<Dense>,
    pub(crate) experts: Option<Experts>,
    pub(crate) hidden_post_norm: Option<Norm>,
}

impl Layer {
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
        layer: usize,
    ) -> Result<Self, LoadError> {
        let names = Names { layer };
        let (dim, query_cols, kv_cols) = (config.dim, config.query_cols(), config.kv_cols());
        let rows = [query_cols, kv_cols, kv_cols];
        let [query, key, value] = load_qkv(tensors, &names, rows, dim)?;
        let sinks = config.traits.sinks;
        let sinks = sinks.then(|| tensors.vector(&names.weight("attn_sinks"), config.heads));
        let sinks = sinks.transpose()?;
        let dense = (config.hidden > 0).then(|| Dense::load(tensors, config, &names));
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
            key,
            value,
            dense,
            experts,
            query_norm: norms.of_heads("attn_q_norm", query_cols)?,
            key_norm: norms.of_heads("attn_k_norm", kv_cols)?,
            attention_post_norm: norms.after("post_attention_norm")?,
            hidden_post_norm: norms.after("post_ffw_norm")?,
            attention_input: norms.before_attention()?,
            hidden_input: norms.before_feed_forward()?,
            attention_out: linear(tensors, &names, "attn_output", dim, query_cols)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let always = [&self.query, &self.key, &self.value, &self.attention_out];
        let dense = self.dense.iter().flat_map(|dense| {
            let always = [&dense.up, &dense.down].into_iter();
            always.chain(&dense.gate)
        });
        let all = always.into_iter().chain(dense);
        all.map(|linear| &linear.weight)
    }
}

impl Dense {
    /// The shared expert's tensors have names of their own.
    fn load(tensors: &mut Tensors<'_>, config: &Config, names: &Names) -> Result<Self, LoadError> {
        let (hidden, dim) = (config.hidden, config.dim);
        if config.experts.is_some() {
            let mut part = |name: &str, rows, cols| {
                linear(tensors, names, &format!("{name}_shexp"), rows, cols)
            };
            return Ok(Self {
                gate: Some(part("ffn_gate", hidden, dim)?),
                up: part("ffn_up", hidden, dim)?,
                down: part("ffn_down", dim, hidden)?,
            });
        }
        let (gate, up) = load_gate_up(tensors, config, names)?;
        Ok(Self {
            gate,
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
    let (hidden, dim) = (config.hidden, config.dim);
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
