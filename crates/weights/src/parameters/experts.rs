//! The experts of a layer: one stack of matrices for each projection.
//!
//! A file has a tensor of three dimensions for each projection, or a tensor for each expert (GGUF before April 2024, and
//! safetensors), or one tensor with the rows of gate and up projection of each expert (Granite's safetensors).

use super::layer_tensors::LayerTensors;
use super::norm::Norm;
use super::tensors::{KernelPacking, MatrixOf, Packing, StackOf, Tensors};
use crate::LoadError;
use crate::config::ExpertsConfig;
use crate::config::traits::ExpertRule;
use kernels::{Format, MatrixStack};

/// The router and the experts of one layer.
pub struct Experts<P: Packing = KernelPacking> {
    /// `(count, dim)` in f32: the score of each expert.
    pub router: P::Matrix,
    /// `(hidden, dim)` each; `None`: the up projections go through the activation by themselves.
    pub gate: Option<P::Stack>,
    /// `(hidden, dim)` each.
    pub up: P::Stack,
    /// `(dim, hidden)` each.
    pub down: P::Stack,
    pub biases: Option<ExpertBiases>,
    /// Addends of the experts' parts where a row chooses (count).
    pub choice_bias: Option<Vec<f32>>,
    /// Factors of the outputs (count).
    pub scales: Option<Vec<f32>>,
    /// Norms of a family with a feed-forward part beside the experts.
    pub norms: Option<ExpertNorms>,
}

/// The biases of the router and of the experts.
pub struct ExpertBiases {
    /// `(count)`.
    pub router: Vec<f32>,
    /// `(count, hidden)`.
    pub gate: Vec<f32>,
    /// `(count, hidden)`.
    pub up: Vec<f32>,
    /// `(count, dim)`.
    pub down: Vec<f32>,
}

/// Norms of experts that run beside a feed-forward part, from the stream after attention (Gemma 4).
pub struct ExpertNorms {
    /// Of the output of the feed-forward part.
    pub dense_post: Norm,
    /// Of the router's input.
    pub router: Norm,
    /// Of the experts' input.
    pub input: Norm,
    /// Of the sum of the experts' outputs.
    pub post: Norm,
}

impl<P: Packing> Experts<P> {
    /// For a model with experts.
    pub(super) fn load<T: Tensors<Packing = P>>(
        layer: &mut LayerTensors<'_, T>,
        experts: &ExpertsConfig,
    ) -> Result<Self, LoadError> {
        let traits = &layer.config.traits;
        let (count, hidden, dim) = (experts.count, experts.hidden, layer.config.dim);
        let router = load_router(layer, count, dim)?;
        let (gate, up) = if layer.has("ffn_gate_up_exps") {
            let fused = layer.weight("ffn_gate_up_exps");
            let [gate, up] = layer.tensors.stacks(&fused, count, [hidden, hidden], dim)?;
            (gate, up)
        } else {
            let mut stack = |part| load_stack(layer, part, count, (hidden, dim));
            (stack("ffn_gate")?, stack("ffn_up")?)
        };
        let biases = traits.expert_biases;
        let biases = biases.then(|| ExpertBiases::load(layer, (count, hidden, dim)));
        Ok(Self {
            biases: biases.transpose()?,
            router,
            gate: Some(gate),
            up,
            down: load_stack(layer, "ffn_down", count, (dim, hidden))?,
            choice_bias: match traits.experts {
                ExpertRule::ByKeys => layer.bias_if_there("exp_probs_b", count)?,
                _ => None,
            },
            scales: if traits.dense_beside_experts {
                let scales = layer.name("ffn_down_exps.scale");
                layer.tensors.vector_if_there(&scales, count)?
            } else {
                None
            },
            norms: ExpertNorms::load(layer)?,
        })
    }

    /// Experts without gates, biases and norms, of an encoder that is `dim` wide.
    pub(super) fn load_ungated<T: Tensors<Packing = P>, C>(
        layer: &mut LayerTensors<'_, T, C>,
        dim: usize,
        experts: &ExpertsConfig,
    ) -> Result<Self, LoadError> {
        let (count, hidden) = (experts.count, experts.hidden);
        Ok(Self {
            router: load_router(layer, count, dim)?,
            gate: None,
            up: load_stack(layer, "ffn_up", count, (hidden, dim))?,
            down: load_stack(layer, "ffn_down", count, (dim, hidden))?,
            biases: None,
            choice_bias: None,
            scales: None,
            norms: None,
        })
    }

    /// The experts.
    pub(super) fn stacks(&self) -> impl Iterator<Item = &P::Stack> {
        [&self.up, &self.down].into_iter().chain(&self.gate)
    }
}

impl Experts {
    pub fn bytes(&self) -> usize {
        let stacks: usize = self.stacks().map(MatrixStack::bytes).sum();
        self.router.bytes() + stacks
    }

    /// Formats of the experts. The router is f32 whatever the model's formats are.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        self.stacks().map(MatrixStack::format)
    }
}

impl ExpertBiases {
    fn load<T: Tensors>(
        layer: &mut LayerTensors<'_, T>,
        (count, hidden, dim): (usize, usize, usize),
    ) -> Result<Self, LoadError> {
        let mut table = |part: &str, cols| {
            let name = layer.bias(part);
            layer.tensors.table(&name, count, cols)
        };
        Ok(Self {
            gate: table("ffn_gate_exps", hidden)?,
            up: table("ffn_up_exps", hidden)?,
            down: table("ffn_down_exps", dim)?,
            router: layer.tensors.vector(&layer.bias("ffn_gate_inp"), count)?,
        })
    }
}

impl ExpertNorms {
    fn load<T: Tensors>(layer: &mut LayerTensors<'_, T>) -> Result<Option<Self>, LoadError> {
        if !layer.config.traits.dense_beside_experts {
            return Ok(None);
        }
        let (dim, scale) = (layer.config.dim, layer.name("ffn_gate_inp.scale"));
        let mut router = layer.tensors.vector(&scale, dim)?;
        let by_width = 1.0 / (dim as f32).sqrt();
        router.iter_mut().for_each(|weight| *weight *= by_width);
        Ok(Some(Self {
            dense_post: layer.rms("post_ffw_norm_1", dim)?,
            router: Norm::rms(router),
            input: layer.rms("pre_ffw_norm_2", dim)?,
            post: layer.rms("post_ffw_norm_2", dim)?,
        }))
    }
}

fn load_router<T: Tensors, C>(
    layer: &mut LayerTensors<'_, T, C>,
    count: usize,
    dim: usize,
) -> Result<MatrixOf<T>, LoadError> {
    let name = layer.weight("ffn_gate_inp");
    layer.tensors.float_matrix(&name, count, dim)
}

/// The matrices of one projection, from one tensor or from one for each expert.
fn load_stack<T: Tensors, C>(
    layer: &mut LayerTensors<'_, T, C>,
    part: &str,
    count: usize,
    (rows, cols): (usize, usize),
) -> Result<StackOf<T>, LoadError> {
    let whole = layer.weight(&format!("{part}_exps"));
    let number = layer.layer;
    let each = |expert: usize| format!("blk.{number}.{part}.{expert}.weight");
    if !layer.tensors.has(&whole) && layer.tensors.has(&each(0)) {
        return layer.tensors.stack_of(each, count, rows, cols);
    }
    let [stack] = layer.tensors.stacks(&whole, count, [rows], cols)?;
    Ok(stack)
}
