//! The weights of attention.

use super::linear::{Linear, LinearOf, Names, cut, join, linear};
use super::norm::Norm;
use super::norms::LayerNorms;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;

/// Attention of one layer.
pub struct Attention<P: Packing = KernelPacking> {
    pub query: Linear<P>,
    /// Gate of each head's output, as wide as the queries.
    pub gate: Option<Linear<P>>,
    /// `None`: the layer reads the keys and values of an earlier one.
    pub key_value: Option<KeyValue<P>>,
    pub query_norm: Option<Norm>,
    /// A score for each query head that has no value.
    pub sinks: Option<Vec<f32>>,
    pub out: Linear<P>,
}

/// Projections to the keys and values that a layer stores, and their norms.
pub struct KeyValue<P: Packing = KernelPacking> {
    pub key: Linear<P>,
    /// `None`: the keys before norm and rope are the values.
    pub value: Option<Linear<P>>,
    pub key_norm: Option<Norm>,
    /// Norm of each head of the values.
    pub value_norm: Option<Norm>,
}

impl<P: Packing> Attention<P> {
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
        names: &Names,
    ) -> Result<Self, LoadError> {
        let cols = config.heads * config.shapes[names.layer].head_dim;
        let (query, gate, key_value) = if config.traits.gated_attention {
            load_gated(tensors, config, names)?
        } else {
            let (query, key_value) = load_attention(tensors, config, names)?;
            (query, None, key_value)
        };
        let sinks = config.traits.sinks;
        let sinks = sinks.then(|| tensors.vector(&names.weight("attn_sinks"), config.heads));
        let norms = &mut LayerNorms {
            tensors,
            config,
            names,
        };
        Ok(Self {
            query_norm: norms.of_heads("attn_q_norm", cols)?,
            query,
            gate,
            key_value,
            sinks: sinks.transpose()?,
            out: linear(tensors, names, "attn_output", config.dim, cols)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let stored = self.key_value.iter().flat_map(|stored| {
            let key = std::iter::once(&stored.key);
            key.chain(&stored.value)
        });
        let always = [&self.query, &self.out].into_iter();
        let all = always.chain(&self.gate).chain(stored);
        all.map(|linear| &linear.weight)
    }
}

/// Keys and values that a layer stores, if it stores its own.
type StoredOf<T> = Option<KeyValue<<T as Tensors>::Packing>>;

/// Queries, gates, keys and values.
type GatedOf<T> = (LinearOf<T>, Option<LinearOf<T>>, StoredOf<T>);

/// Queries, gates, keys and values of a family with gated attention: the rows of queries and gates alternate by head.
fn load_gated<T: Tensors>(
    tensors: &mut T,
    config: &Config,
    names: &Names,
) -> Result<GatedOf<T>, LoadError> {
    let shape = &config.shapes[names.layer];
    let (dim, cols, kv_cols) = (config.dim, config.heads * shape.head_dim, shape.kv_cols());
    let rows = [cols];
    let matrices = [&rows[..]; 2];
    let parts = tensors.interleaved(&names.weight("attn_q"), config.heads, matrices, dim)?;
    let [query, gate] = parts.map(Linear::without_bias);
    let key = linear(tensors, names, "attn_k", kv_cols, dim)?;
    let value = linear(tensors, names, "attn_v", kv_cols, dim)?;
    let norms = &mut LayerNorms {
        tensors,
        config,
        names,
    };
    let key_value = KeyValue {
        key,
        value: Some(value),
        key_norm: norms.of_heads("attn_k_norm", kv_cols)?,
        value_norm: None,
    };
    Ok((query, Some(gate), Some(key_value)))
}

/// The query projection, and what the layer stores.
fn load_attention<T: Tensors>(
    tensors: &mut T,
    config: &Config,
    names: &Names,
) -> Result<(LinearOf<T>, StoredOf<T>), LoadError> {
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

fn has_values<T: Tensors>(tensors: &T, names: &Names) -> bool {
    let parts = ["attn_v", "attn_qkv"];
    parts.iter().any(|part| tensors.has(&names.weight(part)))
}

/// Query, key and value projections, from three tensors or from one.
pub(super) fn load_qkv<T: Tensors>(
    tensors: &mut T,
    names: &Names,
    rows: [usize; 3],
    dim: usize,
) -> Result<[LinearOf<T>; 3], LoadError> {
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

/// The biases of a fused projection: one fused bias, or one for each part.
fn split_bias<T: Tensors, const N: usize>(
    tensors: &mut T,
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
