//! Experts of one layer.

use super::dense::activation;
use super::{Role, Walk};
use crate::operation::{At, MatrixId, Operation, RouteRule, UNIT, VectorId};
use weights::config::{ExpertsConfig, RouterConfig};
use weights::parameters::{Described, Experts};

/// Outputs of all choices of a row: choice `c` has the columns from `c * stride` on.
#[derive(Clone, Copy)]
struct Chosen {
    at: At,
    stride: u32,
}

impl<'a> Walk<'a> {
    /// Adds the outputs of the chosen experts to `update`, or writes them there where no other part has.
    pub(super) fn experts(
        &mut self,
        sizes: &ExpertsConfig,
        layer: &'a Experts<Described>,
        beside_dense: bool,
    ) {
        let dim = self.config.dim;
        let update = self.update();
        let (mut routed, mut input) = (self.input, self.input);
        if let Some(norms) = &layer.norms {
            let dense_post = self.norm(&norms.dense_post);
            self.push(Operation::NormParts {
                x: update,
                parts: 1,
                len: dim as u32,
                norm: dense_post,
                own_weights: false,
            });
            routed = self.read_stream(Role::RouterInput, &norms.router);
            input = self.read_stream(Role::ExpertInput, &norms.input);
        }
        let choices = self.route(sizes, layer, routed);
        let outputs = self.multiply(sizes, layer, choices, input);
        let combine = |add, out| Operation::Combine {
            outputs: outputs.at,
            stride: outputs.stride,
            choices,
            used: sizes.used as u32,
            cols: dim as u32,
            add,
            out,
        };
        let Some(norms) = &layer.norms else {
            self.push(combine(beside_dense, update));
            return;
        };
        let sums = self.buffer(Role::Sums, dim);
        self.push(combine(false, sums));
        let post = self.norm(&norms.post);
        self.push(Operation::Add {
            update: sums,
            post: Some(post),
            factor: 1.0,
            stream: update,
            stream_factor: 1.0,
            next: None,
            cols: dim as u32,
        });
    }

    /// Lets the rows choose: pairs of a number and a share.
    fn route(&mut self, sizes: &ExpertsConfig, layer: &'a Experts<Described>, input: At) -> At {
        let (count, router) = (sizes.count, &sizes.router);
        let scores = self.buffer(Role::Scores, count);
        let bias = layer.biases.as_ref().map(|biases| &biases.router);
        let bias = bias.map(|bias| self.program.vector(bias));
        let matrix = self.matrix(&layer.router);
        self.push(Operation::Matmul {
            matrix,
            input,
            bias,
            add: false,
            out: scores,
        });
        let vector = |walk: &mut Self, numbers: &Option<Vec<f32>>| {
            let numbers = numbers.as_ref();
            numbers.map(|numbers| walk.program.vector(numbers))
        };
        let choice_bias = vector(self, &layer.choice_bias);
        let factors = vector(self, &layer.scales);
        let out = self.buffer(Role::Choices, 2 * sizes.used);
        let plain = RouterConfig::softmax(router.normalized);
        self.push(Operation::Route {
            scores,
            count: count as u32,
            used: sizes.used as u32,
            rule: RouteRule {
                sigmoid: router.sigmoid,
                normalized: router.normalized,
                groups: router.groups.map(|(all, used)| (all as u32, used as u32)),
                by_scores: choice_bias.is_none() && *router == plain,
                scale: router.scale,
            },
            choice_bias,
            factors,
            out,
        });
        out
    }

    /// The feed-forward parts of the chosen experts.
    fn multiply(
        &mut self,
        sizes: &ExpertsConfig,
        layer: &'a Experts<Described>,
        choices: At,
        input: At,
    ) -> Chosen {
        let used = sizes.used as u32;
        let biases = layer.biases.as_ref();
        let input = Chosen {
            at: input,
            stride: 0,
        };
        let project =
            |walk: &mut Self, role, stack: &'a _, bias: Option<&Vec<f32>>, input: Chosen| {
                let bias = bias.map(|bias| walk.program.vector(bias));
                let matrix = walk.stack(stack);
                walk.expert_matmul(role, (matrix, bias), (choices, used), input)
            };
        let bias = biases.map(|biases| &biases.up);
        let up = project(self, Role::ExpertUp, &layer.up, bias, input);
        let bias = biases.map(|biases| &biases.gate);
        let gate = layer.gate.as_ref();
        let gate = gate.map(|gate| project(self, Role::ExpertGate, gate, bias, input));
        let (gate, up) = match gate {
            Some(gate) => (gate, Some(up.at)),
            None => (up, None),
        };
        self.push(Operation::Activate {
            activation: activation(self.config.gate),
            gate: gate.at,
            up,
            cols: used * gate.stride,
            out: gate.at,
        });
        let bias = biases.map(|biases| &biases.down);
        project(self, Role::ExpertOut, &layer.down, bias, gate)
    }

    fn expert_matmul(
        &mut self,
        role: Role,
        (stack, bias): (MatrixId, Option<VectorId>),
        (choices, used): (At, u32),
        input: Chosen,
    ) -> Chosen {
        let outputs = self.program.matrices[stack.0 as usize].unit_rows;
        let stride = outputs.next_multiple_of(UNIT);
        let at = self.buffer(role, (used * stride) as usize);
        self.push(Operation::ExpertMatmul {
            stack,
            choices,
            used,
            input: input.at,
            input_stride: input.stride,
            bias,
            out: at,
            out_stride: stride,
        });
        Chosen { at, stride }
    }

    /// The stream, normalized.
    fn read_stream(&mut self, role: Role, norm: &weights::parameters::Norm) -> At {
        let (input, out) = (self.stream(), self.buffer(role, self.config.dim));
        let (norm, cols) = (self.norm(norm), self.config.dim as u32);
        self.push(Operation::Norm {
            input,
            cols,
            norm,
            out,
        });
        out
    }
}
