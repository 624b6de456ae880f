//! Attention to latents, in the absorbed form: a head's query is multiplied with the head's key projection, so that all heads
//! read the one latent of a position; what a head attends to is multiplied with its value projection.

use super::{Role, Walk};
use crate::operation::{Activation, At, HeadsTo, Operation};
use weights::config::LatentConfig;
use weights::parameters::{Described, DescribedMatrix, Latent};

impl<'a> Walk<'a> {
    /// Stores latents, and computes attention to them, from the input to `update`. After the last layer that stores, rows
    /// without outputs are dropped.
    pub(super) fn latent(&mut self, index: usize, layer: &'a Latent<Described>) {
        let (config, Some(sizes)) = (self.config, self.config.latent.as_ref()) else {
            return;
        };
        self.store_latents(index, layer, sizes);
        if index == config.last_stored_layer() {
            self.keep_wanted();
        }
        let (heads, head_dim) = (config.heads, sizes.head_dim());
        let query = self.query_latents(index, layer, sizes);
        let attended = self.buffer(Role::Attended, heads * head_dim);
        self.attend(index, query, None, attended);
        let joined = self.buffer(Role::LatentValues, heads * sizes.value);
        let latents = At {
            column: sizes.turned as u32,
            ..attended
        };
        self.by_head(&layer.values, (latents, head_dim), (joined, sizes.value));
        let update = self.update();
        self.project(&layer.out, joined, update);
    }

    /// A position's one head: what turns, then the normalized latent, among the keys and among the values.
    fn store_latents(&mut self, index: usize, layer: &'a Latent<Described>, sizes: &LatentConfig) {
        let (rank, turned, head_dim) = (sizes.rank, sizes.turned, sizes.head_dim());
        let projected = self.buffer(Role::Latent, head_dim);
        self.project(&layer.latent, self.input, projected);
        let key = self.buffer(Role::Key, head_dim);
        let norm = self.norm(&layer.latent_norm);
        self.push(Operation::Norm {
            input: projected,
            cols: rank as u32,
            norm,
            out: At {
                column: turned as u32,
                ..key
            },
        });
        self.push(Operation::Activate {
            activation: Activation::Identity,
            gate: At {
                column: rank as u32,
                ..projected
            },
            up: None,
            cols: turned as u32,
            out: key,
        });
        let Some(place) = self.places[index] else {
            return;
        };
        let (cache, number) = (self.caches[place.cache], place.layer as u32);
        for to in [HeadsTo::Keys(cache, number), HeadsTo::Values(cache, number)] {
            let turn = self.turn(index);
            self.push(Operation::Heads {
                input: key,
                heads: 1,
                head_dim: head_dim as u32,
                norm: None,
                own_weights: false,
                norm_is_last: false,
                turn,
                tempered: false,
                transformed: self.transformed(index),
                to,
            });
        }
    }

    /// The queries of latents: of each head what turns, then the product with the key projection.
    fn query_latents(
        &mut self,
        index: usize,
        layer: &'a Latent<Described>,
        sizes: &LatentConfig,
    ) -> At {
        let (heads, head_dim, len) = (self.config.heads, sizes.head_dim(), sizes.query());
        let mut input = self.input;
        if let (Some((down, norm)), Some(rank)) = (&layer.query_down, sizes.query_rank) {
            let low = self.buffer(Role::QueryLow, rank);
            self.project(down, input, low);
            let norm = self.norm(norm);
            self.push(Operation::NormParts {
                x: low,
                parts: 1,
                len: rank as u32,
                norm,
                own_weights: false,
            });
            input = low;
        }
        let query = self.buffer(Role::LatentQuery, heads * len);
        self.project(&layer.query, input, query);
        let absorbed = self.buffer(Role::Query, heads * head_dim);
        self.push(Operation::CopyParts {
            input: At {
                column: sizes.plain as u32,
                ..query
            },
            input_stride: len as u32,
            parts: heads as u32,
            len: sizes.turned as u32,
            out: absorbed,
            out_stride: head_dim as u32,
        });
        let latents = At {
            column: sizes.turned as u32,
            ..absorbed
        };
        self.by_head(&layer.keys, (query, len), (latents, head_dim));
        let out = self.buffer(Role::Heads, heads * head_dim);
        let turn = self.turn(index);
        self.push(Operation::Heads {
            input: absorbed,
            heads: heads as u32,
            head_dim: head_dim as u32,
            norm: None,
            own_weights: false,
            norm_is_last: false,
            turn,
            tempered: self.config.scales.temperature.is_some(),
            transformed: self.transformed(index),
            to: HeadsTo::Rows(out),
        });
        out
    }

    /// Products of each head's part of a row with the head's matrix; parts of input and output have these strides. Heads are
    /// experts of which each row uses all.
    fn by_head(
        &mut self,
        stack: &'a DescribedMatrix,
        (input, input_stride): (At, usize),
        (out, out_stride): (At, usize),
    ) {
        let heads = self.config.heads;
        let choices = self.buffer(Role::AllHeads, 2 * heads);
        let pairs = (0..heads).flat_map(|head| [head as f32, 1.0]);
        self.constant(choices, pairs.collect());
        let stack = self.stack(stack);
        self.push(Operation::ExpertMatmul {
            stack,
            choices,
            used: heads as u32,
            input,
            input_stride: input_stride as u32,
            bias: None,
            out,
            out_stride: out_stride as u32,
        });
    }
}
