//! The weights of gated DeltaNet.

use super::linear::{Linear, LinearOf, Names, linear};
use super::norm::Norm;
use super::taps::{load_decay_factor, load_taps};
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;
use kernels::ScanShape;

/// Gated DeltaNet: a convolution over time, then the gated delta rule.
pub struct DeltaNet<P: Packing = KernelPacking> {
    /// Queries, keys and values of all heads: `(cols, dim)`.
    pub input: Linear<P>,
    /// Gate of the output: `(value_cols, dim)`.
    pub gate: Linear<P>,
    /// `(value_heads, dim)`: how fast a head forgets.
    pub decay: Linear<P>,
    /// `(value_heads, dim)`: how much of an error a head corrects.
    pub rate: Linear<P>,
    /// Taps of the convolution, `(taps, cols)`; the last row for the present.
    pub taps: Vec<f32>,
    /// Addend of the decay (value_heads).
    pub decay_bias: Vec<f32>,
    /// Factor of the decay (value_heads); negative.
    pub decay_factor: Vec<f32>,
    /// Norm of each head's output.
    pub norm: Norm,
    /// `(dim, value_cols)`.
    pub out: Linear<P>,
}

impl<P: Packing> DeltaNet<P> {
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
        (heads, taps): (&ScanShape, usize),
        names: &Names,
    ) -> Result<Self, LoadError> {
        let dim = config.dim;
        let (cols, values) = (heads.cols(), heads.value_cols());
        let each = heads.value_heads;
        let (input, gate) = load_input_and_gate(tensors, heads, names, dim)?;
        let (decay, rate) = load_decay_and_rate(tensors, heads, names, dim)?;
        Ok(Self {
            input,
            gate,
            decay,
            rate,
            taps: load_taps(tensors, &names.weight("ssm_conv1d"), cols, taps)?,
            decay_bias: tensors.vector(&names.bias("ssm_dt"), each)?,
            decay_factor: load_decay_factor(tensors, names, each)?,
            norm: Norm::rms(tensors.vector(&names.weight("ssm_norm"), heads.value_dim)?),
            out: linear(tensors, names, "ssm_out", dim, values)?,
        })
    }

    pub(super) fn matrices(&self) -> Vec<&P::Matrix> {
        let all = [&self.input, &self.gate, &self.decay, &self.rate, &self.out];
        all.map(|linear| &linear.weight).to_vec()
    }
}

/// Queries, keys and values, and the gate: from two tensors, or from one (files of 2025) with the rows of each key head
/// together.
fn load_input_and_gate<T: Tensors>(
    tensors: &mut T,
    heads: &ScanShape,
    names: &Names,
    dim: usize,
) -> Result<(LinearOf<T>, LinearOf<T>), LoadError> {
    let (keys, values) = (heads.key_heads * heads.key_dim, heads.value_cols());
    let joined = names.weight("ssm_in");
    if heads.grouped && tensors.has(&joined) {
        let (mixed, gates) = ([keys, keys, values], [values]);
        let matrices = [&mixed[..], &gates];
        let [input, gate] = tensors.interleaved(&joined, heads.key_heads, matrices, dim)?;
        let linear = |weight| Linear::without_bias(weight);
        return Ok((linear(input), linear(gate)));
    }
    let input = linear(tensors, names, "attn_qkv", heads.cols(), dim)?;
    Ok((input, linear(tensors, names, "attn_gate", values, dim)?))
}

/// Decay and rate, from two tensors, or from one with the rows of each key head together.
fn load_decay_and_rate<T: Tensors>(
    tensors: &mut T,
    heads: &ScanShape,
    names: &Names,
    dim: usize,
) -> Result<(LinearOf<T>, LinearOf<T>), LoadError> {
    if !heads.grouped {
        let mut part = |name| linear(tensors, names, name, heads.value_heads, dim);
        return Ok((part("ssm_alpha")?, part("ssm_beta")?));
    }
    let rows = [heads.value_heads];
    let matrices = [&rows[..]; 2];
    let parts = tensors.interleaved(&names.weight("ssm_ba"), heads.key_heads, matrices, dim);
    let [rate, decay] = parts?;
    let linear = |weight| Linear::without_bias(weight);
    Ok((linear(decay), linear(rate)))
}
