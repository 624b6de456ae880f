//! Embeddings of a token that single layers add (Gemma 4).

use super::{Role, Walk};
use crate::operation::{Activation, At, Norm, Operation};
use std::f32::consts::FRAC_1_SQRT_2;
use weights::parameters::{Described, PerLayerInputs, PerLayerUpdate};

impl<'a> Walk<'a> {
    /// The inputs of all layers: a projection of the embedding, normalized layer by layer, plus a row of a table.
    pub(super) fn per_layer_inputs(&mut self, inputs: &'a PerLayerInputs<Described>, stream: At) {
        let (config, width) = (self.config, self.config.per_layer);
        let cols = config.layers * width;
        let out = self.buffer(Role::Inputs(self.rows), cols);
        let rows = self.buffer(Role::InputRows, cols);
        let (matrix, table) = (self.matrix(&inputs.projection), self.matrix(&inputs.table));
        self.push(Operation::Matmul {
            matrix,
            input: stream,
            bias: None,
            add: false,
            out,
        });
        // The projection is divided by the root of the width before its norm, which changes nothing but what is added to
        // the variance.
        let norm = self.norm(&inputs.norm);
        let eps = norm.eps * config.dim as f32;
        self.push(Operation::NormParts {
            x: out,
            parts: config.layers as u32,
            len: width as u32,
            norm: Norm { eps, ..norm },
            own_weights: false,
        });
        self.push(Operation::Embed {
            table,
            factor: (width as f32).sqrt(),
            out: rows,
        });
        self.push(Operation::Add {
            update: rows,
            post: None,
            factor: 1.0,
            stream: out,
            stream_factor: FRAC_1_SQRT_2,
            next: None,
            cols: cols as u32,
        });
        self.inputs = Some(out);
    }

    /// The product of a layer's input and its gate, which reads the stream, projected to `update`.
    pub(super) fn per_layer_update(&mut self, index: usize, update: &'a PerLayerUpdate<Described>) {
        let Some(inputs) = self.inputs else { return };
        let width = self.config.per_layer;
        let gate = self.buffer(Role::Gate, width);
        self.project(&update.gate, self.input, gate);
        self.push(Operation::Activate {
            activation: Activation::Gelu,
            gate,
            up: Some(At {
                column: (index * width) as u32,
                ..inputs
            }),
            cols: width as u32,
            out: gate,
        });
        let out = self.update();
        self.project(&update.projection, gate, out);
    }

    /// Drops the inputs of rows without outputs.
    pub(super) fn keep_wanted_inputs(&mut self) {
        let Some(input) = self.inputs else { return };
        let cols = self.config.layers * self.config.per_layer;
        let out = self.buffer(Role::Inputs(self.rows), cols);
        self.push(Operation::Gather {
            input,
            cols: cols as u32,
            out,
        });
        self.inputs = Some(out);
    }
}
