//! Attention of one layer.

use super::{Role, Walk};
use crate::operation::{At, HeadsTo, Operation, Turn};
use kernels::RopePairs;
use weights::config::traits::QkNorm;
use weights::parameters::{Attention, Described, KeyValue, Norm as NormWeights};

/// Heads between their projection and attention.
#[derive(Clone, Copy)]
struct Heads<'a> {
    input: At,
    heads: usize,
    norm: Option<&'a NormWeights>,
    /// Whether they are queries, which grow with the position in some models.
    are_queries: bool,
    /// Whether they turn.
    turn: bool,
    to: HeadsTo,
}

impl<'a> Walk<'a> {
    /// Stores keys and values, and computes attention, from the input to `update`. After the last layer that stores, rows
    /// without outputs are dropped.
    pub(super) fn attention(&mut self, index: usize, layer: &'a Attention<Described>) {
        if let Some(stored) = &layer.key_value {
            self.store(index, stored);
        }
        if index == self.config.last_stored_layer() {
            self.keep_wanted();
        }
        let config = self.config;
        let cols = config.heads * config.shapes[index].head_dim;
        let (query, heads) = (
            self.buffer(Role::Query, cols),
            self.buffer(Role::Heads, cols),
        );
        self.project(&layer.query, self.input, query);
        self.heads(
            index,
            Heads {
                input: query,
                heads: config.heads,
                norm: layer.query_norm.as_ref(),
                are_queries: true,
                turn: true,
                to: HeadsTo::Rows(heads),
            },
        );
        let attended = self.buffer(Role::Attended, cols);
        self.attend(index, heads, layer.sinks.as_deref(), attended);
        if let Some(gate) = &layer.gate {
            self.gate_heads(gate, attended, cols);
        }
        let update = self.update();
        self.project(&layer.out, attended, update);
    }

    /// Attention of queries to the keys and values that a layer reads.
    pub(super) fn attend(&mut self, index: usize, query: At, sinks: Option<&[f32]>, out: At) {
        let (config, Some(place)) = (self.config, self.places[index]) else {
            return;
        };
        let sinks = sinks.map(|sinks| self.program.vector(sinks));
        let (head_dim, transformed) = (config.shapes[index].head_dim, self.transformed(index));
        let attended = if transformed > 1 {
            self.buffer(Role::Transformed, config.heads * head_dim)
        } else {
            out
        };
        self.push(Operation::Attend {
            query,
            heads: config.heads as u32,
            cache: self.caches[place.cache],
            layer: place.layer as u32,
            scale: config.scales.query,
            cap: config.attention_cap,
            window: config.windows[index].map(|window| window as u32),
            blocks: config.sees_block(index),
            sinks,
            out: attended,
        });
        if transformed > 1 {
            self.push(Operation::Heads {
                input: attended,
                heads: config.heads as u32,
                head_dim: head_dim as u32,
                norm: None,
                own_weights: false,
                norm_is_last: false,
                turn: None,
                tempered: false,
                transformed,
                to: HeadsTo::Rows(out),
            });
        }
    }

    /// Elements of a layer's heads that are transformed together before they are stored.
    pub(super) fn transformed(&self, index: usize) -> u32 {
        let place = self.places[index].as_ref();
        place.map_or(1, |place| {
            let cache = self.caches[place.cache];
            self.program.caches[cache.0 as usize].transformed()
        })
    }

    /// Multiplies what attention gave with a sigmoid of the input's projection.
    fn gate_heads(
        &mut self,
        gate: &'a weights::parameters::Linear<Described>,
        attended: At,
        cols: usize,
    ) {
        let gates = self.buffer(Role::Gate, cols);
        self.project(gate, self.input, gates);
        self.push(Operation::Activate {
            activation: crate::operation::Activation::Sigmoid,
            gate: gates,
            up: Some(attended),
            cols: cols as u32,
            out: attended,
        });
    }

    /// Stores the keys and values of a layer.
    pub(super) fn store(&mut self, index: usize, stored: &'a KeyValue<Described>) {
        let Some(place) = self.places[index] else {
            return;
        };
        let shape = &self.config.shapes[index];
        let (cache, layer) = (self.caches[place.cache], place.layer as u32);
        let key = self.buffer(Role::Key, shape.kv_cols());
        self.project(&stored.key, self.input, key);
        // Values are read before the norm of the keys, which is in place for whole rows, where they are the keys.
        let value = match &stored.value {
            Some(linear) => {
                let value = self.buffer(Role::Value, shape.kv_cols());
                self.project(linear, self.input, value);
                value
            }
            None => key,
        };
        self.heads(
            index,
            Heads {
                input: value,
                heads: shape.kv_heads,
                norm: stored.value_norm.as_ref(),
                are_queries: false,
                turn: false,
                to: HeadsTo::Values(cache, layer),
            },
        );
        self.heads(
            index,
            Heads {
                input: key,
                heads: shape.kv_heads,
                norm: stored.key_norm.as_ref(),
                are_queries: false,
                turn: true,
                to: HeadsTo::Keys(cache, layer),
            },
        );
    }

    /// Norm and rotation of heads. Values are normalized head by head, whatever queries and keys are.
    fn heads(&mut self, index: usize, heads: Heads<'a>) {
        let (config, rule) = (self.config, self.config.traits.qk_norm);
        let head_dim = config.shapes[index].head_dim;
        let mut norm = heads.norm.map(|norm| self.norm(norm));
        let own_weights = heads.norm.is_some_and(|norm| norm.weight.len() > head_dim);
        if heads.turn && rule == QkNorm::Row {
            let cols = heads.heads * head_dim;
            if let Some(norm) = norm.take() {
                self.push(Operation::NormParts {
                    x: heads.input,
                    parts: 1,
                    len: cols as u32,
                    norm,
                    own_weights: false,
                });
            }
        }
        let turn = heads.turn.then(|| self.turn(index)).flatten();
        self.push(Operation::Heads {
            input: heads.input,
            heads: heads.heads as u32,
            head_dim: head_dim as u32,
            norm,
            own_weights: own_weights && norm.is_some(),
            norm_is_last: rule == QkNorm::TurnedHeads,
            turn,
            tempered: heads.are_queries && config.scales.temperature.is_some(),
            transformed: self.transformed(index),
            to: heads.to,
        });
    }

    /// The rotation of a layer's queries and keys.
    pub(super) fn turn(&mut self, index: usize) -> Option<Turn> {
        let config = self.config;
        let (rope, table) = (config.rope_of(index), config.windows[index].is_some());
        if !config.roped[index] || rope.dims == 0 {
            return None;
        }
        let table = usize::from(table);
        self.turned[table] = true;
        Some(Turn {
            table: table as u32,
            dims: rope.dims as u32,
            adjacent: rope.pairs == RopePairs::Adjacent,
        })
    }
}
