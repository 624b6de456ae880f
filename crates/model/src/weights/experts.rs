//! The experts of a layer: one stack of matrices for each projection.
//!
//! A file has a tensor of three dimensions for each projection, or a tensor for each expert (GGUF before April 2024, and
//! safetensors), or one tensor with the rows of gate and up projection of each expert (Granite's safetensors).

use super::LoadError;
use super::layer::Names;
use super::tensors::Tensors;
use crate::Config;
use crate::config::ExpertsConfig;
use kernels::{Format, Matrix, MatrixStack};

/// The router and the experts of one layer.
pub(crate) struct Experts {
    /// `(count, dim)` in f32: the score of each expert.
    pub(crate) router: Matrix,
    /// `(hidden, dim)` each.
    pub(crate) gate: MatrixStack,
    /// `(hidden, dim)` each.
    pub(crate) up: MatrixStack,
    /// `(dim, hidden)` each.
    pub(crate) down: MatrixStack,
    pub(crate) biases: Option<ExpertBiases>,
}

/// The biases of the router and of the experts.
pub(crate) struct ExpertBiases {
    /// `(count)`.
    pub(crate) router: Vec<f32>,
    /// `(count, hidden)`.
    pub(crate) gate: Vec<f32>,
    /// `(count, hidden)`.
    pub(crate) up: Vec<f32>,
    /// `(count, dim)`.
    pub(crate) down: Vec<f32>,
}

impl Experts {
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        config: &Config,
        experts: &ExpertsConfig,
        names: &Names,
    ) -> Result<Self, LoadError> {
        let (count, hidden, dim) = (experts.count, experts.hidden, config.dim);
        let router = tensors.float_matrix(&names.weight("ffn_gate_inp"), count, dim)?;
        let fused = names.weight("ffn_gate_up_exps");
        let (gate, up) = if tensors.has(&fused) {
            let [gate, up] = tensors.stacks(&fused, count, [hidden, hidden], dim)?;
            (gate, up)
        } else {
            let mut stack = |part| load_stack(tensors, names, part, count, (hidden, dim));
            (stack("ffn_gate")?, stack("ffn_up")?)
        };
        let biases = config.traits.expert_biases;
        let biases = biases.then(|| ExpertBiases::load(tensors, names, (count, hidden, dim)));
        Ok(Self {
            biases: biases.transpose()?,
            router,
            gate,
            up,
            down: load_stack(tensors, names, "ffn_down", count, (dim, hidden))?,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let stacks = self.stacks().map(MatrixStack::bytes);
        self.router.bytes() + stacks.iter().sum::<usize>()
    }

    /// Formats of the experts. The router is f32 whatever the model's formats are.
    pub(super) fn formats(&self) -> [Format; 3] {
        self.stacks().map(MatrixStack::format)
    }

    fn stacks(&self) -> [&MatrixStack; 3] {
        [&self.gate, &self.up, &self.down]
    }
}

impl ExpertBiases {
    fn load(
        tensors: &mut Tensors<'_>,
        names: &Names,
        (count, hidden, dim): (usize, usize, usize),
    ) -> Result<Self, LoadError> {
        let mut table = |name: &str, cols| tensors.table(&names.bias(name), count, cols);
        Ok(Self {
            gate: table("ffn_gate_exps", hidden)?,
            up: table("ffn_up_exps", hidden)?,
            down: table("ffn_down_exps", dim)?,
            router: tensors.vector(&names.bias("ffn_gate_inp"), count)?,
        })
    }
}

/// The matrices of one projection, from one tensor or from one for each expert.
fn load_stack(
    tensors: &mut Tensors<'_>,
    names: &Names,
    part: &str,
    count: usize,
    (rows, cols): (usize, usize),
) -> Result<MatrixStack, LoadError> {
    let (whole, each) = (names.weight(&format!("{part}_exps")), |expert: usize| {
        names.weight(&format!("{part}.{expert}"))
    });
    if !tensors.has(&whole) && tensors.has(&each(0)) {
        return tensors.stack_of(each, count, rows, cols);
    }
    let [stack] = tensors.stacks(&whole, count, [rows], cols)?;
    Ok(stack)
}
