//! From the last layer's rows to hidden states and logits.

use super::{Outputs, Role, Walk};
use crate::operation::{At, Operation, RowSet};
use weights::parameters::{Described, DescribedMatrix, HeadProjections, SCORED_ANSWERS, Weights};

impl<'a> Walk<'a> {
    /// Gathers the hidden states and the rows with logits, and computes the logits.
    pub(super) fn head(&mut self, weights: &'a Weights<Described>) -> Outputs {
        if self.rows == RowSet::All {
            self.keep_wanted();
        }
        let (dim, input) = (self.config.dim, self.input);
        self.rows = RowSet::Hidden;
        let mut hidden = self.buffer(Role::Hidden, dim);
        self.push(Operation::Gather {
            input,
            cols: dim as u32,
            out: hidden,
        });
        if let Some(HeadProjections::YesNo(answers)) = &weights.state_head {
            let out = self.buffer(Role::Answers, SCORED_ANSWERS);
            self.project(answers, hidden, out);
            hidden = out;
        }
        self.input = input;
        let logits = self.logits(weights, weights.projection());
        Outputs {
            logits: logits.buffer,
            hidden: hidden.buffer,
        }
    }

    /// The logits of the rows with logits among those of the input.
    pub(super) fn logits(
        &mut self,
        weights: &'a Weights<Described>,
        projection: &'a DescribedMatrix,
    ) -> At {
        self.rows = RowSet::Logits;
        let (config, input, dim) = (self.config, self.input, self.config.dim);
        let states = self.buffer(Role::LogitInput, dim);
        self.push(Operation::Gather {
            input,
            cols: dim as u32,
            out: states,
        });
        let logits = self.buffer(Role::Logits, weights.vocab());
        let matrix = self.matrix(projection);
        self.push(Operation::Matmul {
            matrix,
            input: states,
            bias: None,
            add: false,
            out: logits,
        });
        let bias = weights.output_bias.as_ref();
        let bias = bias.map(|bias| self.program.vector(bias));
        self.push(Operation::Finish {
            logits,
            cols: weights.vocab() as u32,
            bias,
            factor: config.scales.logits,
            cap: config.logit_cap,
        });
        logits
    }
}
