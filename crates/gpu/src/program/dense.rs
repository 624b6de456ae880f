//! Feed-forward parts that every row uses.

use super::{Role, Walk};
use crate::operation::{Activation, Operation};
use weights::config::Gate;
use weights::parameters::{Dense, Described};

impl<'a> Walk<'a> {
    /// A feed-forward part, from the input to `update`.
    pub(super) fn dense(&mut self, layer: &'a Dense<Described>) {
        let hidden = layer.up.weight.rows;
        let up = self.buffer(Role::Up, hidden);
        self.project(&layer.up, self.input, up);
        let activation = activation(self.config.gate);
        let (gate, up) = match &layer.gate {
            Some(linear) => {
                let gate = self.buffer(Role::Gate, hidden);
                self.project(linear, self.input, gate);
                (gate, Some(up))
            }
            None => (up, None),
        };
        self.push(Operation::Activate {
            activation,
            gate,
            up,
            cols: hidden as u32,
            out: gate,
        });
        let update = self.update();
        self.project(&layer.down, gate, update);
        if let Some(share) = &layer.share {
            let weights = self.program.vector(share);
            let cols = self.config.dim as u32;
            self.push(Operation::Share {
                x: update,
                cols,
                input: self.input,
                input_cols: cols,
                weights,
            });
        }
    }
}

/// The device's name of an activation.
pub(super) fn activation(gate: Gate) -> Activation {
    match gate {
        Gate::Silu => Activation::Silu,
        Gate::Gelu => Activation::Gelu,
        Gate::SquaredRelu => Activation::SquaredRelu,
        Gate::ClampedSwiglu => Activation::ClampedSwiglu,
    }
}
