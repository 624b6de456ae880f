//! The weights of a recurrent layer, by its kind.

use super::layer_tensors::LayerTensors;
use super::linear::{Linear, LinearOf};
use super::norm::Norm;
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::LoadError;
use crate::config::recurrent_rule::RecurrentRule;
use crate::config::{RecurrentConfig, RecurrentPart};
use kernels::{ScanRule, ScanShape};

/// A recurrent layer, by its kind.
pub enum Recurrent<P: Packing = KernelPacking> {
    Delta(DeltaNet<P>),
    Mamba(Mamba<P>),
    Convolution(ShortConv<P>),
}

impl<P: Packing> Recurrent<P> {
    pub(super) fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
        recurrent: &RecurrentConfig,
    ) -> Result<Self, LoadError> {
        let taps = recurrent.taps;
        Ok(match &recurrent.part {
            RecurrentPart::Nothing(_) => Self::Convolution(ShortConv::load(layer, taps)?),
            RecurrentPart::Scan(heads) if heads.rule == ScanRule::Delta => {
                Self::Delta(DeltaNet::load(layer, heads, taps)?)
            }
            RecurrentPart::Scan(heads) => Self::Mamba(Mamba::load(layer, heads, taps)?),
        })
    }

    pub(super) fn matrices(&self) -> Vec<&P::Matrix> {
        match self {
            Self::Delta(layer) => layer.matrices(),
            Self::Mamba(layer) => layer.matrices(),
            Self::Convolution(layer) => layer.matrices(),
        }
    }
}

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
    fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
        heads: &ScanShape,
        taps: usize,
    ) -> Result<Self, LoadError> {
        let (dim, each) = (layer.config.dim, heads.value_heads);
        let (input, gate) = load_input_and_gate(layer, heads)?;
        let (decay, rate) = load_decay_and_rate(layer, heads)?;
        Ok(Self {
            input,
            gate,
            decay,
            rate,
            taps: load_taps(layer, "ssm_conv1d", heads.cols(), taps)?,
            decay_bias: load_decay_bias(layer, each)?,
            decay_factor: load_decay_factor(layer, each)?,
            norm: layer.rms("ssm_norm", heads.value_dim)?,
            out: layer.linear("ssm_out", dim, heads.value_cols())?,
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
    layer: &mut LayerTensors<'_, T>,
    heads: &ScanShape,
) -> Result<(LinearOf<T>, LinearOf<T>), LoadError> {
    let dim = layer.config.dim;
    let (keys, values) = (heads.key_heads * heads.key_dim, heads.value_cols());
    if heads.grouped && layer.has("ssm_in") {
        let (mixed, gates) = ([keys, keys, values], [values]);
        let matrices = [&mixed[..], &gates];
        let joined = layer.weight("ssm_in");
        let parts = layer
            .tensors
            .interleaved(&joined, heads.key_heads, matrices, dim)?;
        let [input, gate] = parts.map(Linear::without_bias);
        return Ok((input, gate));
    }
    let input = layer.linear("attn_qkv", heads.cols(), dim)?;
    Ok((input, layer.linear("attn_gate", values, dim)?))
}

/// Decay and rate, from two tensors, or from one with the rows of each key head together.
fn load_decay_and_rate<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
    heads: &ScanShape,
) -> Result<(LinearOf<T>, LinearOf<T>), LoadError> {
    let dim = layer.config.dim;
    if !heads.grouped {
        let mut part = |name| layer.linear(name, heads.value_heads, dim);
        return Ok((part("ssm_alpha")?, part("ssm_beta")?));
    }
    let rows = [heads.value_heads];
    let (joined, matrices) = (layer.weight("ssm_ba"), [&rows[..]; 2]);
    let parts = layer
        .tensors
        .interleaved(&joined, heads.key_heads, matrices, dim)?;
    let [rate, decay] = parts.map(Linear::without_bias);
    Ok((decay, rate))
}

/// The bias of each head's decay; without `.bias` in files that Ollama's converter wrote.
fn load_decay_bias<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
    each: usize,
) -> Result<Vec<f32>, LoadError> {
    let bare = layer.name("ssm_dt");
    match layer.tensors.vector_if_there(&bare, each)? {
        Some(biases) => Ok(biases),
        None => layer.tensors.vector(&layer.bias("ssm_dt"), each),
    }
}

/// Mamba-2 (Dao and Gu 2024): a convolution over time, then a scan.
pub struct Mamba<P: Packing = KernelPacking> {
    /// Gate of the output: `(value_cols, dim)`.
    pub gate: Linear<P>,
    /// Values, keys and queries: `(cols, dim)`.
    pub input: Linear<P>,
    /// `(value_heads, dim)`: how long a token is for a head.
    pub step: Linear<P>,
    /// Taps of the convolution, `(taps, cols)`; the last row for the present.
    pub taps: Vec<f32>,
    /// (cols).
    pub taps_bias: Option<Vec<f32>>,
    /// Addend of the step (value_heads).
    pub step_bias: Vec<f32>,
    /// Factor of the step in the decay (value_heads); negative.
    pub decay_factor: Vec<f32>,
    /// Factor of the values that are added to the output (value_heads).
    pub skip: Vec<f32>,
    /// Norm of each group of heads (value_cols).
    pub norm: Option<Norm>,
    /// `(dim, value_cols)`.
    pub out: Linear<P>,
}

impl<P: Packing> Mamba<P> {
    fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
        heads: &ScanShape,
        taps: usize,
    ) -> Result<Self, LoadError> {
        let (dim, cols, values) = (layer.config.dim, heads.cols(), heads.value_cols());
        let each = heads.value_heads;
        let rows = [values, cols, each];
        let parts = layer.tensors.split(&layer.weight("ssm_in"), rows, dim)?;
        let [gate, input, step] = parts.map(Linear::without_bias);
        Ok(Self {
            gate,
            input,
            step,
            taps: load_taps(layer, "ssm_conv1d", cols, taps)?,
            taps_bias: layer.bias_if_there("ssm_conv1d", cols)?,
            step_bias: layer.tensors.vector(&layer.bias("ssm_dt"), each)?,
            decay_factor: load_decay_factor(layer, each)?,
            skip: layer.tensors.per_head(&layer.name("ssm_d"), each)?,
            norm: load_group_norm(layer, heads)?,
            out: layer.linear("ssm_out", dim, values)?,
        })
    }

    pub(super) fn matrices(&self) -> Vec<&P::Matrix> {
        let all = [&self.gate, &self.input, &self.step, &self.out];
        all.map(|linear| &linear.weight).to_vec()
    }
}

/// The norm, without which are some models of Falcon H1.
fn load_group_norm<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
    heads: &ScanShape,
) -> Result<Option<Norm>, LoadError> {
    let rule = layer.config.traits.recurrent;
    if rule.is_some_and(RecurrentRule::is_beside_attention) && !layer.has("ssm_norm") {
        return Ok(None);
    }
    let groups = heads.key_heads;
    let weight = layer.table("ssm_norm", groups, heads.value_cols() / groups)?;
    Ok(Some(Norm::rms(weight)))
}

/// A convolution over time between two gates (LFM2).
pub struct ShortConv<P: Packing = KernelPacking> {
    /// First gate, second gate, and what is convolved: `(3 * dim, dim)`.
    pub input: Linear<P>,
    /// `(taps, dim)`; the last row for the present.
    pub taps: Vec<f32>,
    /// `(dim, dim)`.
    pub out: Linear<P>,
}

impl<P: Packing> ShortConv<P> {
    fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
        taps: usize,
    ) -> Result<Self, LoadError> {
        let dim = layer.config.dim;
        Ok(Self {
            input: layer.linear("shortconv.in_proj", 3 * dim, dim)?,
            taps: load_taps(layer, "shortconv.conv", dim, taps)?,
            out: layer.linear("shortconv.out_proj", dim, dim)?,
        })
    }

    pub(super) fn matrices(&self) -> Vec<&P::Matrix> {
        vec![&self.input.weight, &self.out.weight]
    }
}

/// The taps of a convolution of `cols` columns, as `(taps, cols)`.
fn load_taps<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
    part: &str,
    cols: usize,
    taps: usize,
) -> Result<Vec<f32>, LoadError> {
    let by_column = layer.table(part, cols, taps)?;
    let of_tap = |tap: usize| by_column.iter().skip(tap).step_by(taps).copied();
    Ok((0..taps).flat_map(of_tap).collect())
}

/// The factor of each head's decay; with a positive one a state would grow without bound.
fn load_decay_factor<T: Tensors>(
    layer: &mut LayerTensors<'_, T>,
    heads: usize,
) -> Result<Vec<f32>, LoadError> {
    let tensor = layer.name("ssm_a");
    let factors = layer.tensors.per_head(&tensor, heads)?;
    match factors.iter().position(|&factor| factor > 0.0) {
        Some(index) => Err(LoadError::Value { tensor, index }),
        None => Ok(factors),
    }
}
