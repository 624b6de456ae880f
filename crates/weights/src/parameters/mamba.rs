//! The weights of Mamba-2.

use super::linear::{Linear, Names, join, linear};
use super::norm::Norm;
use super::taps::{load_decay_factor, load_taps};
use super::tensors::{KernelPacking, Packing, Tensors};
use crate::Config;
use crate::LoadError;
use crate::config::recurrent_rule::RecurrentRule;
use kernels::ScanShape;

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
    pub(super) fn load<T: Tensors<Packing = P>>(
        tensors: &mut T,
        config: &Config,
        (heads, taps): (&ScanShape, usize),
        names: &Names,
    ) -> Result<Self, LoadError> {
        let (dim, cols, values) = (config.dim, heads.cols(), heads.value_cols());
        let each = heads.value_heads;
        let rows = [values, cols, each];
        let parts = tensors.split(&names.weight("ssm_in"), rows, dim)?;
        let [gate, input, step] = join(parts, [const { None }; 3]);
        let skip = format!("blk.{}.ssm_d", names.layer);
        let conv = "ssm_conv1d";
        Ok(Self {
            gate,
            input,
            step,
            taps: load_taps(tensors, &names.weight(conv), cols, taps)?,
            taps_bias: tensors.vector_if_there(&names.bias(conv), cols)?,
            step_bias: tensors.vector(&names.bias("ssm_dt"), each)?,
            decay_factor: load_decay_factor(tensors, names, each)?,
            skip: tensors.per_head(&skip, each)?,
            norm: load_norm(tensors, config, heads, names)?,
            out: linear(tensors, names, "ssm_out", dim, values)?,
        })
    }

    pub(super) fn matrices(&self) -> Vec<&P::Matrix> {
        let all = [&self.gate, &self.input, &self.step, &self.out];
        all.map(|linear| &linear.weight).to_vec()
    }
}

/// The norm, without which are some models of Falcon H1.
fn load_norm<T: Tensors>(
    tensors: &mut T,
    config: &Config,
    heads: &ScanShape,
    names: &Names,
) -> Result<Option<Norm>, LoadError> {
    let (name, groups) = (names.weight("ssm_norm"), heads.key_heads);
    let rule = config.traits.recurrent;
    if rule.is_some_and(RecurrentRule::is_beside_attention) && !tensors.has(&name) {
        return Ok(None);
    }
    let weight = tensors.table(&name, groups, heads.value_cols() / groups)?;
    Ok(Some(Norm::rms(weight)))
}
