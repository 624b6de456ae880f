//! Recurrent layers, in place of attention or next to it: gated DeltaNet, Mamba-2, and convolutions between gates.

use super::{Role, Walk};
use crate::operation::{Activation, At, Norm, Operation};
use crate::operation::{ScanHeads, StatesShape};
use kernels::{ScanRule, ScanShape};
use weights::config::{RecurrentConfig, RecurrentPart};
use weights::parameters::{BlockInput, DeltaNet, Described, Linear, Mamba, Recurrent, ShortConv};

impl<'a> Walk<'a> {
    /// The recurrent part of a layer, from the input to `update`; writes the states. After the last layer that stores, rows
    /// without outputs are dropped.
    pub(super) fn recurrent(
        &mut self,
        index: usize,
        layer: &'a Recurrent<Described>,
        beside_attention: bool,
    ) {
        let part = self.config.recurrent.as_ref().map(|layers| layers.part);
        match (layer, part) {
            (Recurrent::Delta(layer), Some(RecurrentPart::Scan(heads))) => {
                self.delta(index, layer, &heads);
            }
            (Recurrent::Mamba(layer), Some(RecurrentPart::Scan(heads))) => {
                self.mamba(index, layer, &heads);
            }
            (Recurrent::Convolution(layer), _) => self.short_conv(index, layer),
            _ => {}
        }
        if beside_attention {
            self.add(None, None, &BlockInput::AsAttention);
        } else if index == self.config.last_stored_layer() {
            let (input, cols) = (self.update, self.config.dim);
            self.keep_wanted();
            let out = self.buffer(Role::KeptUpdate, cols);
            self.push(Operation::Gather {
                input,
                cols: cols as u32,
                out,
            });
            self.update = out;
        }
    }

    fn delta(&mut self, index: usize, layer: &'a DeltaNet<Described>, heads: &ScanShape) {
        let (cols, value_cols) = (heads.cols(), heads.value_cols());
        let input = self.projected(&layer.input, Role::ScanInput, cols);
        let gate = self.projected(&layer.gate, Role::ScanGate, value_cols);
        let decay = self.projected(&layer.decay, Role::Decay, heads.value_heads);
        let rate = self.projected(&layer.rate, Role::Rate, heads.value_heads);
        let mixed = self.buffer(Role::Mixed, cols);
        let number = self.recurrent_number(index);
        let taps = self.program.vector(&layer.taps);
        self.push(Operation::Convolve {
            input,
            layer: number,
            taps,
            bias: None,
            silu: true,
            out: mixed,
        });
        self.normalize_heads(mixed, heads);
        let gates = self.buffer(Role::Gates, 2 * heads.value_heads);
        let bias = self.program.vector(&layer.decay_bias);
        let factor = self.program.vector(&layer.decay_factor);
        self.push(Operation::ScanGates {
            decay,
            rate: Some(rate),
            heads: heads.value_heads as u32,
            bias,
            factor,
            out: gates,
        });
        let out = self.scan(number, mixed, gates, value_cols);
        let norm = self.norm(&layer.norm);
        self.push(Operation::NormParts {
            x: out,
            parts: heads.value_heads as u32,
            len: heads.value_dim as u32,
            norm,
            own_weights: false,
        });
        self.push(Operation::Activate {
            activation: Activation::Silu,
            gate,
            up: Some(out),
            cols: value_cols as u32,
            out: gate,
        });
        let update = self.update();
        self.project(&layer.out, gate, update);
    }

    fn mamba(&mut self, index: usize, layer: &'a Mamba<Described>, heads: &ScanShape) {
        let (cols, value_cols) = (heads.cols(), heads.value_cols());
        let value_heads = heads.value_heads;
        let input = self.projected(&layer.input, Role::ScanInput, cols);
        let gate = self.projected(&layer.gate, Role::ScanGate, value_cols);
        let decay = self.projected(&layer.step, Role::Decay, value_heads);
        let mixed = self.buffer(Role::Mixed, cols);
        let number = self.recurrent_number(index);
        let taps = self.program.vector(&layer.taps);
        let taps_bias = layer.taps_bias.as_ref();
        let bias = taps_bias.map(|bias| self.program.vector(bias));
        self.push(Operation::Convolve {
            input,
            layer: number,
            taps,
            bias,
            silu: true,
            out: mixed,
        });
        let vectors = [&layer.step_bias, &layer.decay_factor, &layer.skip];
        let [bias, factor, factors] = vectors.map(|vector| self.program.vector(vector));
        let gates = self.buffer(Role::Gates, 2 * value_heads);
        self.push(Operation::ScanGates {
            decay,
            rate: None,
            heads: value_heads as u32,
            bias,
            factor,
            out: gates,
        });
        let out = self.scan(number, mixed, gates, value_cols);
        self.push(Operation::AddParts {
            x: out,
            parts: value_heads as u32,
            len: heads.value_dim as u32,
            values: mixed,
            factors,
        });
        self.push(Operation::Activate {
            activation: Activation::Silu,
            gate,
            up: Some(out),
            cols: value_cols as u32,
            out: gate,
        });
        if let Some(norm) = &layer.norm {
            let norm = self.norm(norm);
            self.push(Operation::NormParts {
                x: gate,
                parts: heads.key_heads as u32,
                len: (value_cols / heads.key_heads) as u32,
                norm,
                own_weights: true,
            });
        }
        let update = self.update();
        self.project(&layer.out, gate, update);
    }

    /// A product of the input, in the buffer of a role.
    fn projected(&mut self, linear: &'a Linear<Described>, role: Role, cols: usize) -> At {
        let out = self.buffer(role, cols);
        self.project(linear, self.input, out);
        out
    }

    /// The scan of a recurrent layer.
    fn scan(&mut self, layer: u32, mixed: At, gates: At, value_cols: usize) -> At {
        let out = self.buffer(Role::ScanOutput, value_cols);
        self.push(Operation::Scan {
            mixed,
            gates,
            layer,
            out,
        });
        out
    }

    /// A convolution between two gates.
    fn short_conv(&mut self, index: usize, layer: &'a ShortConv<Described>) {
        let dim = self.config.dim;
        let projected = self.buffer(Role::ScanGate, 3 * dim);
        self.project(&layer.input, self.input, projected);
        let part = |number: usize| At {
            column: (number * dim) as u32,
            ..projected
        };
        let product = |gate, up, out| Operation::Activate {
            activation: Activation::Identity,
            gate,
            up: Some(up),
            cols: dim as u32,
            out,
        };
        let input = self.buffer(Role::ScanInput, dim);
        self.push(product(part(0), part(2), input));
        let mixed = self.buffer(Role::Mixed, dim);
        let (layer_number, taps) = (
            self.recurrent_number(index),
            self.program.vector(&layer.taps),
        );
        self.push(Operation::Convolve {
            input,
            layer: layer_number,
            taps,
            bias: None,
            silu: false,
            out: mixed,
        });
        self.push(product(part(1), mixed, mixed));
        let update = self.update();
        self.project(&layer.out, mixed, update);
    }

    /// Queries and keys of one row become as long as one; queries are scaled for the product with the state. A norm by the
    /// mean of squares is one by their sum, but for a factor.
    fn normalize_heads(&mut self, mixed: At, heads: &ScanShape) {
        let key_dim = heads.key_dim as f32;
        let by_root = 1.0 / key_dim.sqrt();
        for (part, factor) in [(0, by_root * by_root), (1, by_root)] {
            let weight = self.program.vector(&vec![factor; heads.key_dim]);
            self.push(Operation::NormParts {
                x: At {
                    column: mixed.column + (part * heads.key_heads * heads.key_dim) as u32,
                    ..mixed
                },
                parts: heads.key_heads as u32,
                len: heads.key_dim as u32,
                norm: Norm {
                    weight: Some(weight),
                    bias: None,
                    centered: false,
                    eps: self.config.norm_eps / key_dim,
                },
                own_weights: false,
            });
        }
    }

    /// The layer's number among the recurrent ones.
    fn recurrent_number(&self, index: usize) -> u32 {
        let layers = self.config.recurrent.iter();
        let layers = layers.flat_map(|recurrent| recurrent.layers.iter().take(index));
        layers.filter(|is_recurrent| **is_recurrent).count() as u32
    }
}

/// What sequences keep in the recurrent layers.
pub(super) fn states_of(recurrent: &RecurrentConfig, states: usize, hidden: usize) -> StatesShape {
    let layers = recurrent
        .layers
        .iter()
        .filter(|is_recurrent| **is_recurrent);
    StatesShape {
        layers: layers.count() as u32,
        states: states as u32,
        conv_rows: recurrent.taps.saturating_sub(1) as u32,
        conv_cols: recurrent.conv_cols() as u32,
        hidden: hidden as u32,
        scan: match recurrent.part {
            RecurrentPart::Nothing(_) => None,
            RecurrentPart::Scan(heads) => Some(ScanHeads {
                key_heads: heads.key_heads as u32,
                value_heads: heads.value_heads as u32,
                key_dim: heads.key_dim as u32,
                value_dim: heads.value_dim as u32,
                grouped: heads.grouped,
                delta: heads.rule == ScanRule::Delta,
            }),
        },
    }
}
