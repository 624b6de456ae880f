//! An MTP head: guesses about the token after the next one, by a layer whose input is a token and the hidden state before it.

use super::{Role, Walk};
use crate::operation::{At, Operation, RowSet};
use weights::parameters::{BlockInput, Described, MtpHead, Norm as NormWeights, Weights};

impl<'a> Walk<'a> {
    /// Stores the head's keys and values of all rows, whose hidden states are the input, and keeps the hidden states of
    /// sequences; then drops the rows without outputs.
    pub(super) fn store_for_head(
        &mut self,
        weights: &'a Weights<Described>,
        head: &'a MtpHead<Described>,
    ) {
        let hidden = self.input;
        let stream = self.buffer(Role::HeadStream, self.config.dim);
        let input = self.buffer(Role::HeadInput, self.config.dim);
        self.join(weights, head, (hidden, stream, input));
        let attention = head.layer.attention.as_ref();
        if let Some(stored) = attention.and_then(|attention| attention.key_value.as_ref()) {
            self.store(self.config.layers, stored);
        }
        self.input = hidden;
        self.keep_wanted();
    }

    /// The program of guesses: one row for each.
    pub(super) fn guess(
        &mut self,
        weights: &'a Weights<Described>,
        head: &'a MtpHead<Described>,
        hidden: At,
    ) {
        let of_batch = std::mem::take(&mut self.program.steps);
        self.rows = RowSet::All;
        let (stream, input) = (self.stream(), self.normed());
        self.join(weights, head, (hidden, stream, input));
        self.layer(self.config.layers, &head.layer, &head.output_input);
        let projection = head.output.as_ref();
        self.logits(weights, projection.unwrap_or_else(|| weights.projection()));
        self.program.guesses = std::mem::replace(&mut self.program.steps, of_batch);
    }

    /// Joins each row's token, or its vector, and the hidden state before it to the stream, and makes the input of the
    /// head's layer.
    fn join(
        &mut self,
        weights: &'a Weights<Described>,
        head: &'a MtpHead<Described>,
        (hidden, stream, input): (At, At, At),
    ) {
        let (dim, cols) = (self.config.dim, self.config.dim as u32);
        let joined = self.buffer(Role::Joined, 2 * dim);
        let before = joined.right_by(cols);
        let table = self.matrix(head.embedding.as_ref().unwrap_or(&weights.embedding));
        self.push(Operation::Embed {
            table,
            factor: 1.0,
            out: joined,
        });
        self.place_vectors(joined);
        let Some(states) = self.program.states else {
            return;
        };
        let taps = [vec![1.0; dim], vec![0.0; dim]].concat();
        let taps = self.program.vector(&taps);
        self.push(Operation::Convolve {
            input: hidden,
            layer: states.layers,
            taps,
            bias: None,
            silu: false,
            out: before,
        });
        self.norm_part(joined, &head.embedding_norm);
        self.norm_part(before, &head.hidden_norm);
        let matrix = self.matrix(&head.join);
        self.push(Operation::Matmul {
            matrix,
            input: joined,
            bias: None,
            add: false,
            out: stream,
        });
        self.input = stream;
        if let BlockInput::Normed(norm) = &head.layer.attention_input {
            let norm = self.norm(norm);
            self.push(Operation::Norm {
                input: stream,
                cols,
                norm,
                out: input,
            });
            self.input = input;
        }
    }

    /// Normalizes columns as wide as the stream, in place.
    fn norm_part(&mut self, x: At, norm: &NormWeights) {
        let norm = self.norm(norm);
        self.push(Operation::NormParts {
            x,
            parts: 1,
            len: self.config.dim as u32,
            norm,
            own_weights: false,
        });
    }
}
