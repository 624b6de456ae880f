//! Recurrent layers, in place of attention: gated DeltaNet, and convolutions between gates.

use super::{Role, Walk};
use crate::operation::{Activation, At, Norm, Operation};
use crate::operation::{ScanHeads, StatesShape};
use kernels::{ScanRule, ScanShape};
use weights::config::{RecurrentConfig, RecurrentPart};
use weights::parameters::{DeltaNet, Described, Recurrent, ShortConv};

impl<'a> Walk<'a> {
    /// The recurrent part of a layer, from the input to `update`; writes the states. After the last layer that stores, rows
    /// without outputs are dropped.
    pub(super) fn recurrent(&mut self, index: usize, layer: &'a Recurrent<Described>) {
        let part = self.config.recurrent.as_ref().map(|layers| layers.part);
        match (layer, part) {
            (Recurrent::Delta(layer), Some(RecurrentPart::Scan(heads))) => {
                self.delta(index, layer, &heads);
            }
            (Recurrent::Convolution(layer), _) => self.short_conv(index, layer),
            _ => {}
        }
        if index == self.config.last_stored_layer() {
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
        let projected = |walk: &mut Self, linear: &'a _, role, cols| {
            let out = walk.buffer(role, cols);
            walk.project(linear, walk.input, out);
            out
        };
        let input = projected(self, &layer.input, Role::ScanInput, cols);
        let gate = projected(self, &layer.gate, Role::ScanGate, value_cols);
        let decay = projected(self, &layer.decay, Role::Decay, heads.value_heads);
        let rate = projected(self, &layer.rate, Role::Rate, heads.value_heads);
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
        let out = self.buffer(Role::ScanOutput, value_cols);
        self.push(Operation::Scan {
            mixed,
            gates,
            layer: number,
            out,
        });
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
pub(super) fn states_of(recurrent: &RecurrentConfig, states: usize) -> StatesShape {
    let layers = recurrent
        .layers
        .iter()
        .filter(|is_recurrent| **is_recurrent);
    StatesShape {
        layers: layers.count() as u32,
        states: states as u32,
        conv_rows: recurrent.taps.saturating_sub(1) as u32,
        conv_cols: recurrent.conv_cols() as u32,
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
