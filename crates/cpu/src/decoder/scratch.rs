//! Workspace of the forward pass, allocated once for the largest batch.

use kernels::{Activations, Format, Isa, ZeroedBuffer};
use model::Dims;
use std::ops::Range;
use weights::Config;
use weights::config::LayerShape;
use weights::parameters::Weights;

/// Rows of f32, `(rows_max, cols)`.
pub(crate) struct Buffer {
    data: ZeroedBuffer<f32>,
    cols: usize,
}

impl Buffer {
    pub(crate) fn new(rows: usize, cols: usize) -> Self {
        Self {
            data: ZeroedBuffer::new(rows * cols),
            cols,
        }
    }

    /// Columns.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// Rows.
    pub(crate) fn rows(&self) -> usize {
        self.data.len().checked_div(self.cols).unwrap_or_default()
    }

    /// Uses the memory as rows of `cols`, at most as wide as at first. The content is undefined.
    pub(crate) fn set_cols(&mut self, cols: usize) {
        self.cols = cols;
    }

    /// All rows.
    pub(crate) fn all(&self) -> &[f32] {
        &self.data
    }

    /// The first `rows` rows.
    pub(crate) fn head(&self, rows: usize) -> &[f32] {
        &self.data[..rows * self.cols]
    }

    /// The first `rows` rows, to be written.
    pub(crate) fn head_mut(&mut self, rows: usize) -> &mut [f32] {
        &mut self.data[..rows * self.cols]
    }

    /// Some rows, to be written.
    pub(crate) fn rows_mut(&mut self, rows: Range<usize>) -> &mut [f32] {
        &mut self.data[rows.start * self.cols..rows.end * self.cols]
    }

    /// One row.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.cols..][..self.cols]
    }

    /// Moves the rows with these ascending indices to the front.
    pub(crate) fn gather(&mut self, rows: &[usize]) {
        for (to, &from) in rows.iter().enumerate() {
            let start = from * self.cols;
            self.data
                .copy_within(start..start + self.cols, to * self.cols);
        }
    }

    /// Copies these rows of `other`, in this order.
    pub(crate) fn copy_rows(&mut self, other: &Self, rows: &[usize]) {
        for (to, &from) in rows.iter().enumerate() {
            let to = to * self.cols;
            self.data[to..to + self.cols].copy_from_slice(other.row(from));
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len() * size_of::<f32>()
    }
}

/// All buffers of the forward pass, with their columns.
pub(crate) struct Scratch {
    /// The residual stream (dim).
    pub(crate) stream: Buffer,
    /// The normalized stream (dim).
    pub(crate) normed: Buffer,
    /// Output of attention or feed-forward, to be added to the stream (dim).
    pub(crate) update: Buffer,
    /// (heads * head_dim) of a layer, as the next six.
    pub(crate) query: Buffer,
    /// Gates of the attended (heads * head_dim), in a family with gated attention.
    pub(crate) query_gate: Buffer,
    /// (kv_heads * head_dim).
    pub(crate) key: Buffer,
    /// (kv_heads * head_dim).
    pub(crate) value: Buffer,
    /// Output of attention before the projection (heads * head_dim).
    pub(crate) attended: Buffer,
    /// (hidden).
    pub(crate) gate: Buffer,
    /// (hidden).
    pub(crate) up: Buffer,
    /// Factors of a feed-forward part without a gate (hidden); empty beside a gate.
    pub(crate) ones: Vec<f32>,
    /// Cosine and sine of each row's position: global and local rope (rope dims).
    pub(crate) angles: [Buffer; 2],
    /// Sums of experts' outputs, where they have a norm of their own (dim).
    pub(crate) sums: Buffer,
    /// Requested hidden states (dim).
    pub(crate) hidden: Buffer,
    /// Logits (vocab); `logit_rows_max` rows.
    pub(crate) logits: Buffer,
    /// The input of the projections (cols_max).
    pub(crate) activations: Activations,
    activations_bytes: usize,
}

impl Scratch {
    pub(crate) fn new(config: &Config, weights: &Weights, dims: &Dims) -> Self {
        let rows = dims.rows_max;
        let (query_cols, kv_cols) = (config.query_cols(), config.kv_cols());
        let (gathered, cols_max) = (config.gathered_rows(rows), config.cols_max());
        let activations = Activations::new(gathered, cols_max).for_weights(weights.formats());
        Self {
            stream: Buffer::new(rows, config.dim),
            normed: Buffer::new(rows, config.dim),
            update: Buffer::new(rows, config.dim),
            query: Buffer::new(rows, query_cols),
            query_gate: Buffer::new(
                if config.traits.gated_attention {
                    rows
                } else {
                    0
                },
                query_cols,
            ),
            key: Buffer::new(rows, kv_cols),
            value: Buffer::new(rows, kv_cols),
            attended: Buffer::new(rows, query_cols),
            gate: Buffer::new(
                rows,
                if config.traits.gated {
                    config.hidden
                } else {
                    0
                },
            ),
            up: Buffer::new(rows, config.hidden),
            ones: vec![
                1.0;
                if config.traits.gated {
                    0
                } else {
                    config.hidden
                }
            ],
            angles: [&config.rope, &config.rope_local].map(|rope| Buffer::new(rows, rope.dims)),
            sums: Buffer::new(if config.sums_experts() { rows } else { 0 }, config.dim),
            hidden: Buffer::new(rows, config.dim),
            logits: Buffer::new(dims.logit_rows_max, dims.vocab),
            activations,
            activations_bytes: Activations::bytes(gathered, cols_max),
        }
    }

    /// Adapts the buffers to the sizes of a layer.
    pub(crate) fn set_shape(&mut self, heads: usize, shape: &LayerShape) {
        let query_cols = heads * shape.head_dim;
        let sizes = [
            (&mut self.query, query_cols),
            (&mut self.query_gate, query_cols),
            (&mut self.attended, query_cols),
            (&mut self.key, shape.kv_cols()),
            (&mut self.value, shape.kv_cols()),
            (&mut self.gate, shape.hidden),
            (&mut self.up, shape.hidden),
        ];
        for (buffer, cols) in sizes {
            buffer.set_cols(cols);
        }
    }

    /// Resident bytes.
    pub(crate) fn bytes(&self) -> usize {
        let [global, local] = &self.angles;
        let buffers = [
            &self.stream,
            &self.normed,
            &self.update,
            &self.query,
            &self.query_gate,
            &self.key,
            &self.value,
            &self.attended,
            &self.gate,
            &self.up,
            global,
            local,
            &self.sums,
            &self.hidden,
            &self.logits,
        ];
        let buffers: usize = buffers.iter().map(|buffer| buffer.bytes()).sum();
        buffers + size_of_val(&self.ones[..]) + self.activations_bytes
    }
}

/// The ISA of attention: no tiles beside F32 weights, since users of such a model want exact numbers.
pub(crate) fn attention_isa(isa: Isa, mut formats: impl Iterator<Item = Format>) -> Isa {
    if formats.all(|format| format == Format::F32) {
        isa.without_amx()
    } else {
        isa
    }
}
