//! Embeddings of a token that single layers add (Gemma 3n and 4).
//!
//! Before the first layer, each row gets an input for every layer: the token's row of a table, plus a normalized projection
//! of the token's embedding. At its end, a layer multiplies its input with a gate that reads the stream, and adds the
//! product, projected and normalized, to the stream.

use super::scratch::Buffer;
use super::{Config, Decoder, Dims, matmul, scale};
use crate::norm;
use crate::norm::project;
use kernels::{Isa, add_scaled, dequantize, gelu_mul};
use model::VECTOR;
use std::f32::consts::FRAC_1_SQRT_2;
use weights::parameters::{PerLayerInputs, PerLayerUpdate, RowTable, Weights};

/// Weights of a table that are decoded at a time, a multiple of every format's block.
const CHUNK: usize = 256;

/// Workspace of the inputs, allocated once.
pub(super) struct PerLayerScratch {
    /// (layers * width).
    inputs: Buffer,
    /// (width).
    gate: Buffer,
}

impl PerLayerScratch {
    /// The workspace, for a model with such inputs.
    pub(super) fn new(config: &Config, dims: &Dims) -> Option<Self> {
        let (rows, width) = (dims.rows_max, config.per_layer);
        (width > 0).then(|| Self {
            inputs: Buffer::new(rows, config.layers * width),
            gate: Buffer::new(rows, width),
        })
    }

    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        self.inputs.bytes() + self.gate.bytes()
    }

    /// Moves the inputs of these rows to the front.
    pub(super) fn gather(&mut self, rows: &[usize]) {
        self.inputs.gather(rows);
    }
}

impl Decoder {
    /// Computes the inputs of all layers from the embeddings in the stream.
    pub(super) fn per_layer_inputs(&mut self, config: &Config, weights: &Weights, tokens: &[u32]) {
        let (Some(inputs), Some(scratch)) = (&weights.per_layer, &mut self.per_layer) else {
            return;
        };
        let (isa, rows, width) = (self.isa, tokens.len(), config.per_layer);
        let stream = self.scratch.stream.head(rows);
        let activations = &mut self.scratch.activations;
        activations.load(isa, &mut self.pool, stream, rows, config.dim);
        let cols = scratch.inputs.cols();
        let out = scratch.inputs.head_mut(rows);
        let PerLayerInputs {
            table,
            projection,
            norm,
        } = inputs;
        matmul(&mut self.pool, projection, activations, out);
        let by_dim = 1.0 / (config.dim as f32).sqrt();
        let by_width = (width as f32).sqrt();
        self.pool.rows(out, cols, |row, input| {
            scale(isa, input, by_dim);
            norm::apply_to_parts(norm, isa, config.norm_eps, input, width);
            // A row that is a vector has the table's row of the padding token, as in transformers.
            let token = if tokens[row] == VECTOR {
                0
            } else {
                tokens[row]
            };
            add_row(table, isa, token as usize, by_width, input);
            scale(isa, input, FRAC_1_SQRT_2);
        });
    }

    /// Writes the product of a layer's input and its gate, which reads `normed`, projected, to `update`.
    pub(super) fn per_layer_update(
        &mut self,
        config: &Config,
        index: usize,
        update: &PerLayerUpdate,
    ) {
        self.load_normed();
        let Some(scratch) = &mut self.per_layer else {
            return;
        };
        let (isa, rows, width) = (self.isa, self.rows.queries.len(), config.per_layer);
        let activations = &mut self.scratch.activations;
        let gate = scratch.gate.head_mut(rows);
        project(isa, &mut self.pool, &update.gate, activations, gate);
        let inputs = &scratch.inputs;
        self.pool.rows(gate, width, |row, gate| {
            gelu_mul(isa, gate, &inputs.row(row)[index * width..][..width]);
        });
        activations.load(isa, &mut self.pool, gate, rows, width);
        let out = self.scratch.update.head_mut(rows);
        project(isa, &mut self.pool, &update.projection, activations, out);
    }
}

/// Adds a row of a table, times `factor`, to `out`, which is as long as a row.
fn add_row(table: &RowTable, isa: Isa, row: usize, factor: f32, out: &mut [f32]) {
    let mut decoded = [0.0; CHUNK];
    let format = table.format;
    let bytes_of = |weights| weights / format.block_weights() * format.block_bytes();
    let row = &table.bytes[row * bytes_of(table.cols)..][..bytes_of(table.cols)];
    let parts = row.chunks(bytes_of(CHUNK)).zip(out.chunks_mut(CHUNK));
    for (bytes, out) in parts {
        let decoded = &mut decoded[..out.len()];
        dequantize(format, bytes, decoded);
        add_scaled(isa, out, decoded, factor);
    }
}
