//! The weights of latent attention.

use super::layer_tensors::LayerTensors;
use super::linear::Linear;
use super::norm::Norm;
use super::tensors::{KernelPacking, Packing, StackOf, Tensors};
use crate::LoadError;
use crate::config::LatentConfig;

/// Latent attention of one layer.
pub struct Latent<P: Packing = KernelPacking> {
    /// Projection to the inner width of the query projection, and its norm.
    pub query_down: Option<(Linear<P>, Norm)>,
    /// Rows of each head: those that do not turn, then those that turn.
    pub query: Linear<P>,
    /// The latent, then the part of the key that turns.
    pub latent: Linear<P>,
    pub latent_norm: Norm,
    /// Of each head `(rank, plain)`: the key projection, transposed, which is part of the queries.
    pub keys: P::Stack,
    /// Of each head `(value, rank)`: the value projection, which follows attention.
    pub values: P::Stack,
    pub out: Linear<P>,
}

impl<P: Packing> Latent<P> {
    pub(super) fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
        sizes: &LatentConfig,
    ) -> Result<Self, LoadError> {
        let (heads, dim) = (layer.config.heads, layer.config.dim);
        let (query_rows, latent_rows) = (heads * sizes.query(), sizes.head_dim());
        let (query_down, query) = match sizes.query_rank {
            Some(rank) => {
                let down = layer.linear("attn_q_a", rank, dim)?;
                let norm = layer.rms("attn_q_a_norm", rank)?;
                let query = layer.linear("attn_q_b", query_rows, rank)?;
                (Some((down, norm)), query)
            }
            None => (None, layer.linear("attn_q", query_rows, dim)?),
        };
        let latent_norm = layer.rms("attn_kv_a_norm", sizes.rank)?;
        let (keys, values) = load_key_value(layer, heads, sizes)?;
        Ok(Self {
            query_down,
            query,
            latent: layer.linear("attn_kv_a_mqa", latent_rows, dim)?,
            latent_norm,
            keys,
            values,
            out: layer.linear("attn_output", dim, heads * sizes.value)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &P::Matrix> {
        let always = [&self.query, &self.latent, &self.out].into_iter();
        let down = self.query_down.iter().map(|(down, _)| down);
        always.chain(down).map(|linear| &linear.weight)
    }

    pub(super) fn stacks(&self) -> impl Iterator<Item = &P::Stack> {
        [&self.keys, &self.values].into_iter()
    }
}

/// Key and value projections of the heads, from two tensors or, in files before April 2025, from one.
fn load_key_value<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
    heads: usize,
    sizes: &LatentConfig,
) -> Result<(StackOf<T>, StackOf<T>), LoadError> {
    let LatentConfig {
        rank, plain, value, ..
    } = *sizes;
    let [key, values, joined] =
        ["attn_k_b", "attn_v_b", "attn_kv_b"].map(|part| layer.weight(part));
    let tensors = &mut *layer.tensors;
    if !tensors.has(&key) && !tensors.has(&values) && tensors.has(&joined) {
        return tensors.joined_heads(&joined, heads, sizes);
    }
    // Some files have both.
    tensors.ignore(&joined);
    let [keys] = tensors.stacks(&key, heads, [rank], plain)?;
    let [values] = tensors.stacks(&values, heads, [value], rank)?;
    Ok((keys, values))
}
