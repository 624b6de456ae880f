//! The weights of latent attention.

use super::linear::{Linear, Names, linear};
use super::norm::Norm;
use super::tensors::Tensors;
use crate::Config;
use crate::LoadError;
use crate::config::LatentConfig;
use kernels::{Format, Matrix, MatrixStack, dequantize};

/// Latent attention of one layer.
pub struct Latent {
    /// Projection to the inner width of the query projection, and its norm.
    pub query_down: Option<(Linear, Norm)>,
    /// Rows of each head: those that do not turn, then those that turn.
    pub query: Linear,
    /// The latent, then the part of the key that turns.
    pub latent: Linear,
    pub latent_norm: Norm,
    /// Of each head `(rank, plain)`: the key projection, transposed, which is part of the queries.
    pub keys: MatrixStack,
    /// Of each head `(value, rank)`: the value projection, which follows attention.
    pub values: MatrixStack,
    pub out: Linear,
}

impl Latent {
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
        sizes: &LatentConfig,
        names: &Names,
    ) -> Result<Self, LoadError> {
        let (heads, dim) = (config.heads, config.dim);
        let (query_rows, latent_rows) = (heads * sizes.query(), sizes.head_dim());
        let (query_down, query) = match sizes.query_rank {
            Some(rank) => {
                let down = linear(tensors, names, "attn_q_a", rank, dim)?;
                let norm = Norm::rms(tensors.vector(&names.weight("attn_q_a_norm"), rank)?);
                let query = linear(tensors, names, "attn_q_b", query_rows, rank)?;
                (Some((down, norm)), query)
            }
            None => (None, linear(tensors, names, "attn_q", query_rows, dim)?),
        };
        let latent_norm = tensors.vector(&names.weight("attn_kv_a_norm"), sizes.rank)?;
        let (keys, values) = load_key_value(tensors, heads, sizes, names)?;
        Ok(Self {
            query_down,
            query,
            latent: linear(tensors, names, "attn_kv_a_mqa", latent_rows, dim)?,
            latent_norm: Norm::rms(latent_norm),
            keys,
            values,
            out: linear(tensors, names, "attn_output", dim, heads * sizes.value)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let always = [&self.query, &self.latent, &self.out].into_iter();
        let down = self.query_down.iter().map(|(down, _)| down);
        always.chain(down).map(|linear| &linear.weight)
    }

    pub(super) fn stacks(&self) -> impl Iterator<Item = &MatrixStack> {
        [&self.keys, &self.values].into_iter()
    }
}

/// Key and value projections of the heads, from two tensors or, in files before April 2025, from one.
fn load_key_value(
    tensors: &mut Tensors<'_>,
    heads: usize,
    sizes: &LatentConfig,
    names: &Names,
) -> Result<(MatrixStack, MatrixStack), LoadError> {
    let LatentConfig {
        rank, plain, value, ..
    } = *sizes;
    let [key, values, joined] =
        ["attn_k_b", "attn_v_b", "attn_kv_b"].map(|part| names.weight(part));
    if !tensors.has(&key) && !tensors.has(&values) && tensors.has(&joined) {
        return split_joined(tensors, &joined, heads, sizes);
    }
    // Some files have both.
    tensors.ignore(&joined);
    let [keys] = tensors.stacks(&key, heads, [rank], plain)?;
    let [values] = tensors.stacks(&values, heads, [value], rank)?;
    Ok((keys, values))
}

/// The rows of each head are those of its keys, then those of its values. Keys are transposed, which blocks of a row do not
/// allow, so they become f32.
fn split_joined(
    tensors: &mut Tensors<'_>,
    name: &str,
    heads: usize,
    sizes: &LatentConfig,
) -> Result<(MatrixStack, MatrixStack), LoadError> {
    let LatentConfig {
        rank, plain, value, ..
    } = *sizes;
    let (format, bytes) = tensors.raw(name, heads * (plain + value), rank)?;
    let row_bytes = rank / format.block_weights() * format.block_bytes();
    let (isa, failed) = (tensors.isa, "checked above");
    let mut keys = MatrixStack::new(isa, Format::F32, heads, rank, plain).expect(failed);
    let mut values = MatrixStack::new(isa, format, heads, value, rank).expect(failed);
    let mut row = vec![0.0; rank];
    let mut transposed = vec![0; plain * rank * size_of::<f32>()];
    let of_heads = bytes.chunks_exact((plain + value) * row_bytes);
    for (head, bytes) in of_heads.enumerate() {
        let (key, rest) = bytes.split_at(plain * row_bytes);
        for (col, bytes) in key.chunks_exact(row_bytes).enumerate() {
            dequantize(format, bytes, &mut row);
            let column = transposed.chunks_exact_mut(plain * size_of::<f32>());
            for (to, number) in column.zip(&row) {
                let at = col * size_of::<f32>();
                to[at..at + size_of::<f32>()].copy_from_slice(&number.to_le_bytes());
            }
        }
        let packed = keys.pack(tensors.pool, head, &transposed);
        let packed = packed.and_then(|()| values.pack(tensors.pool, head, rest));
        packed.map_err(|error| tensors.pack_error(name, error))?;
    }
    Ok((keys, values))
}
