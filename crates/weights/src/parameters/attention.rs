//! The weights of attention.

use super::layer_tensors::LayerTensors;
use super::linear::{Linear, LinearOf, cut, join};
use super::norm::Norm;
use super::tensors::{KernelPacking, Packing, Tensors};
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
        layer: &mut LayerTensors<'_, T>,
    ) -> Result<Self, LoadError> {
        let config = layer.config;
        let cols = config.heads * config.shapes[layer.layer].head_dim;
        let (query, gate, key_value) = if config.traits.gated_attention {
            load_gated(layer)?
        } else {
            let (query, key_value) = load_attention(layer)?;
            (query, None, key_value)
        };
        let sinks = config.traits.sinks;
        let sinks = sinks.then(|| layer.vector("attn_sinks", config.heads));
        Ok(Self {
            query_norm: layer.head_norm("attn_q_norm", cols)?,
            query,
            gate,
            key_value,
            sinks: sinks.transpose()?,
            out: layer.linear("attn_output", config.dim, cols)?,
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
fn load_gated<T: Tensors>(layer: &mut LayerTensors<'_, T>) -> Result<GatedOf<T>, LoadError> {
    let config = layer.config;
    let shape = &config.shapes[layer.layer];
    let (dim, cols, kv_cols) = (config.dim, config.heads * shape.head_dim, shape.kv_cols());
    let rows = [cols];
    let (name, matrices) = (layer.weight("attn_q"), [&rows[..]; 2]);
    let parts = layer
        .tensors
        .interleaved(&name, config.heads, matrices, dim)?;
    let [query, gate] = parts.map(Linear::without_bias);
    let key_value = KeyValue {
        key: layer.linear("attn_k", kv_cols, dim)?,
        value: Some(layer.linear("attn_v", kv_cols, dim)?),
        key_norm: layer.head_norm("attn_k_norm", kv_cols)?,
        value_norm: None,
    };
    Ok((query, Some(gate), Some(key_value)))
}

/// The query projection, and what the layer stores.
fn load_attention<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
) -> Result<(LinearOf<T>, StoredOf<T>), LoadError> {
    let config = layer.config;
    let shape = &config.shapes[layer.layer];
    let (dim, kv_cols) = (config.dim, shape.kv_cols());
    let query_cols = config.heads * shape.head_dim;
    if shape.kv_layer != layer.layer {
        // Converters keep projections that the model has been trained without.
        for part in ["attn_k", "attn_v", "attn_k_norm"] {
            layer.tensors.ignore(&layer.weight(part));
        }
        return Ok((layer.linear("attn_q", query_cols, dim)?, None));
    }
    let has_values = layer.has("attn_v") || layer.has("attn_qkv");
    let (query, key, value) = if config.traits.value_norm && !has_values {
        let key = layer.linear("attn_k", kv_cols, dim)?;
        (layer.linear("attn_q", query_cols, dim)?, key, None)
    } else {
        let [query, key, value] = load_qkv(layer, [query_cols, kv_cols, kv_cols], dim)?;
        (query, key, Some(value))
    };
    let value_norm = config.traits.value_norm;
    let key_value = KeyValue {
        key,
        value,
        key_norm: layer.head_norm("attn_k_norm", kv_cols)?,
        value_norm: value_norm.then(|| Norm::rms(vec![1.0; shape.head_dim])),
    };
    Ok((query, Some(key_value)))
}

/// Query, key and value projections, from three tensors or from one.
pub(super) fn load_qkv<T: Tensors, C>(
    layer: &mut LayerTensors<'_, T, C>,
    rows: [usize; 3],
    dim: usize,
) -> Result<[LinearOf<T>; 3], LoadError> {
    let parts = ["attn_q", "attn_k", "attn_v"];
    if !layer.has("attn_qkv") {
        let [q, k, v] = parts;
        return Ok([
            layer.linear(q, rows[0], dim)?,
            layer.linear(k, rows[1], dim)?,
            layer.linear(v, rows[2], dim)?,
        ]);
    }
    // One fused bias, or one for each part.
    let mut biases = [const { None }; 3];
    if let Some(bias) = layer.bias_if_there("attn_qkv", rows.iter().sum())? {
        biases = cut(Some(bias), rows);
    } else {
        for (bias, (part, rows)) in biases.iter_mut().zip(parts.into_iter().zip(rows)) {
            *bias = layer.bias_if_there(part, rows)?;
        }
    }
    let weights = layer.tensors.split(&layer.weight("attn_qkv"), rows, dim)?;
    Ok(join(weights, biases))
}
