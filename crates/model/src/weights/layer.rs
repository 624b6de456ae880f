//! The weights of one layer.

use super::LoadError;
use super::tensors::Tensors;
use crate::Config;
use kernels::Matrix;

/// A projection.
pub(crate) struct Linear {
    /// `(outputs, inputs)`.
    pub(crate) weight: Matrix,
    /// `(outputs)`.
    pub(crate) bias: Option<Vec<f32>>,
}

/// The weights of one layer. Norms are `(dim)`, head norms `(head_dim)`.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) query_norm: Option<Vec<f32>>,
    pub(crate) key_norm: Option<Vec<f32>>,
    pub(crate) attention_out: Linear,
    pub(crate) attention_post_norm: Option<Vec<f32>>,
    pub(crate) hidden_norm: Vec<f32>,
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
    pub(crate) hidden_post_norm: Option<Vec<f32>>,
}

impl Layer {
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
        layer: usize,
    ) -> Result<Self, LoadError> {
        let names = Names { layer };
        let (dim, head_dim) = (config.dim, config.head_dim);
        let rows = [config.query_cols(), config.kv_cols(), config.kv_cols()];
        let [query, key, value] = load_qkv(tensors, &names, rows, dim)?;
        let [gate, up] = load_gate_up(tensors, config, &names)?;
        let mut optional = |wanted: bool, name: &str, len: usize| {
            wanted
                .then(|| tensors.vector(&names.weight(name), len))
                .transpose()
        };
        Ok(Self {
            query,
            key,
            value,
            gate,
            up,
            query_norm: optional(config.qk_norm, "attn_q_norm", head_dim)?,
            key_norm: optional(config.qk_norm, "attn_k_norm", head_dim)?,
            attention_post_norm: optional(config.post_norms, "post_attention_norm", dim)?,
            hidden_post_norm: optional(config.post_norms, "post_ffw_norm", dim)?,
            attention_norm: tensors.vector(&names.weight("attn_norm"), dim)?,
            hidden_norm: tensors.vector(&names.weight("ffn_norm"), dim)?,
            attention_out: linear(tensors, &names, "attn_output", dim, config.query_cols())?,
            down: linear(tensors, &names, "ffn_down", dim, config.hidden)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        [
            &self.query,
            &self.key,
            &self.value,
            &self.attention_out,
            &self.gate,
            &self.up,
            &self.down,
        ]
        .into_iter()
        .map(|linear| &linear.weight)
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

/// Gate and up projections, from two tensors or from one.
fn load_gate_up(
    tensors: &mut Tensors<'_>,
    config: &Config,
    names: &Names,
) -> Result<[Linear; 2], LoadError> {
    let (hidden, dim) = (config.hidden, config.dim);
    if !config.fused_gate_up {
        return Ok([
            linear(tensors, names, "ffn_gate", hidden, dim)?,
            linear(tensors, names, "ffn_up", hidden, dim)?,
        ]);
    }
    let rows = [hidden, hidden];
    let bias = tensors.vector_if_there(&names.bias("ffn_up"), 2 * hidden)?;
    let weights = tensors.split(&names.weight("ffn_up"), rows, dim)?;
    Ok(join(weights, cut(bias, rows)))
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
