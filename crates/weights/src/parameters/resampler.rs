//! A resampler between a tower and the text: learned queries attend to the patches of a picture.

use super::linear::Linear;
use super::norm::Norm;
use super::tensors::{KernelPacking, Packing, Tensors};
use super::tower::{linear, norm, read_qkv};
use crate::LoadError;
use crate::vision::{ResamplerConfig, VisionConfig};

/// A resampler with one layer of attention, whose keys know their places and whose values do not. `out` is the width of a row.
pub struct Resampler<P: Packing = KernelPacking> {
    /// Patches to the width of a row, `(out, dim)`, and a norm.
    pub seen: Linear<P>,
    pub seen_norm: Norm,
    /// Learned, `(queries, out)`, and a norm.
    pub queries: Vec<f32>,
    pub query_norm: Norm,
    /// Attention, `(out, out)` each.
    pub query: Linear<P>,
    pub key: Linear<P>,
    pub value: Linear<P>,
    pub attended: Linear<P>,
    /// A norm, and a matrix, `(out, out)`.
    pub post_norm: Norm,
    pub row: Linear<P>,
}

impl<P: Packing> Resampler<P> {
    pub(super) fn read<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &VisionConfig,
        sizes: ResamplerConfig,
    ) -> Result<Self, LoadError> {
        let (dim, out) = (config.dim, config.projection_dim);
        // Sines and cosines of places, which are computed.
        for name in ["resampler.pos_embed", "resampler.pos_embed_k"] {
            tensors.ignore(name);
        }
        let mut normed = |part: &str| norm(tensors, config, &format!("resampler.ln_{part}"), out);
        let [query_norm, seen_norm, post_norm] = [normed("q")?, normed("kv")?, normed("post")?];
        // Safetensors have the three in one.
        let name = |part: &str| format!("resampler.{}", part.replacen('_', ".", 1));
        let [query, key, value] = read_qkv(tensors, &name, out)?;
        let mut square = |part: &str| linear(tensors, &format!("resampler.{part}"), out, out);
        Ok(Self {
            query,
            key,
            value,
            attended: square("attn.out")?,
            row: square("proj")?,
            seen: linear(tensors, "resampler.kv", out, dim)?,
            queries: tensors.table("resampler.query", sizes.queries, out)?,
            seen_norm,
            query_norm,
            post_norm,
        })
    }

    pub(super) fn linears(&self) -> [&Linear<P>; 6] {
        [
            &self.seen,
            &self.query,
            &self.key,
            &self.value,
            &self.attended,
            &self.row,
        ]
    }
}
