//! The operations of a program: what the device computes for a batch, over buffers that are allocated at load.
//!
//! Activations are f32 in *buffers* of shape `(rows, cols)`. Rows of a buffer are [`BufferShape::stride`] floats apart; the
//! padding between is zero and stays zero. An operation runs for the rows of a [`RowSet`], one row never depends on
//! another, but for what attention and recurrent layers read from pages and states.
//!
//! An operation writes one buffer, and none that it reads, unless its documentation says so.

pub use crate::shapes::{
    BufferShape, CacheShape, MatrixShape, SCALE_GROUP, ScanHeads, StatesShape, UNIT,
};

/// A buffer of activations, by index into [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub u32);

/// A matrix of weights, by index into [`Program::matrices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixId(pub u32);

/// A vector of f32 constants: its first element in [`Program::vectors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VectorId(pub u32);

/// Keys and values of layers with one kind of heads, by index into [`Program::caches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheId(pub u32);

/// Rows of a batch that an operation runs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowSet {
    /// All rows.
    All,
    /// Rows with an output: indices into all rows.
    Wanted,
    /// Rows with a hidden state as output: indices into the wanted rows.
    Hidden,
    /// Rows with logits: indices into the wanted rows.
    Logits,
}

impl RowSet {
    /// All sets, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::All, Self::Wanted, Self::Hidden, Self::Logits];
}

/// Columns of a buffer, from `column` on, a multiple of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The buffer.
    pub buffer: BufferId,
    /// The first column.
    pub column: u32,
}

impl At {
    /// The place so many columns further right.
    pub const fn right_by(self, columns: u32) -> Self {
        Self {
            column: self.column + columns,
            ..self
        }
    }

    /// A buffer from its first column on.
    pub const fn start(buffer: BufferId) -> Self {
        Self { buffer, column: 0 }
    }
}

/// `(x - mean) / deviation * weight + bias` (layer norm), or without the mean (RMS norm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Factor of each element; `None`: ones.
    pub weight: Option<VectorId>,
    /// Addend of each element; `None`: zeros.
    pub bias: Option<VectorId>,
    /// Whether the mean is subtracted.
    pub centered: bool,
    /// Added to the variance.
    pub eps: f32,
}

/// Rotation of heads by the angles of a row's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which of the record's tables of angles: 0 or 1.
    pub table: u32,
    /// Elements of a head that turn, from the first on; the table has as many numbers in each row.
    pub dims: u32,
    /// Whether elements `2i` and `2i + 1` turn together; else `i` and `i + dims / 2`.
    pub adjacent: bool,
}

/// Where heads are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadsTo {
    /// To columns of a buffer other than the input's.
    Rows(At),
    /// To the keys of a cache's layer, in the slots of the rows.
    Keys(CacheId, u32),
    /// To the values of a cache's layer, in the slots of the rows.
    Values(CacheId, u32),
}

/// What the gate of a product goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// Gelu, tanh approximation.
    Gelu,
    /// `max(x, 0)^2`.
    SquaredRelu,
    /// `x * sigmoid(1.702 x)` with `x` at most 7; the other factor is within -7 and 7, and has 1 added.
    ClampedSwiglu,
    /// `sigmoid(x)`.
    Sigmoid,
    /// `x`.
    Identity,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// `out = factor * table[token]`, `(rows, table cols)`; a row that is a vector gets the row of token 0.
    Embed {
        /// `(vocabulary, cols)`.
        table: MatrixId,
        /// Factor of all elements.
        factor: f32,
        /// The embeddings.
        out: At,
    },
    /// Rows that are vectors: `stream = vector`, or added to it, then `normed = next(stream)`; `(rows, cols)`. Other rows stay.
    Vectors {
        /// Part of the vectors, in [`Program::vector_rows`].
        vectors: At,
        /// Whether the part is added to what the stream holds.
        add: bool,
        /// The rows, in place.
        stream: At,
        /// The norm of the next block's input, and the place of this input.
        next: Option<(Norm, At)>,
        /// Elements of a part.
        cols: u32,
    },
    /// `out = norm(input)`, `(rows, cols)`.
    Norm {
        /// The input.
        input: At,
        /// Elements of a row.
        cols: u32,
        /// The norm, over the whole row.
        norm: Norm,
        /// The output.
        out: At,
    },
    /// `x = norm(x)` in each of `parts` parts of `len` elements, in place. Weights count from each part's beginning anew,
    /// unless `own_weights`.
    NormParts {
        /// `(rows, parts, len)`.
        x: At,
        /// Parts of a row.
        parts: u32,
        /// Elements of a part.
        len: u32,
        /// The norm.
        norm: Norm,
        /// Whether each part has weights (and biases) of its own, one part after the other.
        own_weights: bool,
    },
    /// `stream = (stream + factor * post(update)) * stream_factor`, then `normed = next(stream)`; `(rows, cols)`.
    Add {
        /// The update that is added.
        update: At,
        /// Norm of what is added.
        post: Option<Norm>,
        /// Factor of what is added, after the norm.
        factor: f32,
        /// The rows that the update is added to, in place.
        stream: At,
        /// Factor of the sum.
        stream_factor: f32,
        /// The norm of the next block's input, and the place of this input.
        next: Option<(Norm, At)>,
        /// Elements of a row.
        cols: u32,
    },
    /// `out = matrix * input + bias`, or added to `out`; `(rows, matrix rows)`.
    Matmul {
        /// `(outputs, inputs)`.
        matrix: MatrixId,
        /// `(rows, inputs)`. Where the inputs are no multiple of [`UNIT`], nothing may follow them in the buffer.
        input: At,
        /// `(outputs)`.
        bias: Option<VectorId>,
        /// Whether the product is added to what `out` holds.
        add: bool,
        /// `(rows, outputs)`.
        out: At,
    },
    /// `low = factor * scale * A input` for each adapter of a row that has a pair here: `(rows, adapters, rank)`, the part of each
    /// adapter from a multiple of [`UNIT`] on. Other parts stay.
    AdaptDown {
        /// `(pairs, rank, inputs)`: its `unit_rows` are the rank.
        stack: MatrixId,
        /// Of each adapter the number of its pair, or -1, and its factor: `(adapters, 2)`.
        numbers: VectorId,
        /// `(rows, inputs)`.
        input: At,
        /// The products.
        low: At,
    },
    /// `out = out + B low`, in the order of a row's adapters, for those that have a pair here; `(rows, outputs)`.
    AdaptUp {
        /// `(pairs, outputs, rank)`: its `unit_rows` are the outputs.
        stack: MatrixId,
        /// As in [`Operation::AdaptDown`].
        numbers: VectorId,
        /// As [`Operation::AdaptDown`] writes it.
        low: At,
        /// The sum.
        out: At,
    },
    /// Norm and rotation of heads on their way to attention; `(rows, heads, head_dim)`. For a cache, `heads` and `head_dim`
    /// are those of the cache.
    Heads {
        /// The projection.
        input: At,
        /// Heads.
        heads: u32,
        /// Elements of a head.
        head_dim: u32,
        /// Norm of each head.
        norm: Option<Norm>,
        /// Whether each head has weights (and biases) of its own.
        own_weights: bool,
        /// Whether the norm follows the rotation.
        norm_is_last: bool,
        /// The rotation.
        turn: Option<Turn>,
        /// Whether a row is multiplied by its record's temperature.
        tempered: bool,
        /// Elements that a Walsh-Hadamard transform takes together at the end, a power of two that divides a head; 1: none.
        transformed: u32,
        /// Where the heads are written.
        to: HeadsTo,
    },
    /// Attention of queries to the keys and values of their sequences; `(rows, heads, head_dim)`.
    Attend {
        /// Queries. The heads of one key head follow each other.
        query: At,
        /// Query heads, a multiple of the cache's.
        heads: u32,
        /// The cache.
        cache: CacheId,
        /// The cache's layer.
        layer: u32,
        /// Multiplied into the scores.
        scale: f32,
        /// `cap * tanh(score / cap)`.
        cap: Option<f32>,
        /// Positions that a query sees, its own included; `None`: all.
        window: Option<u32>,
        /// Whether rows of a block see its later rows.
        blocks: bool,
        /// A score for each query head that takes part in the softmax and has no value.
        sinks: Option<VectorId>,
        /// The output.
        out: At,
    },
    /// `out = activation(gate) * up`, or `activation(gate)`; `(rows, cols)`. `out` may be in the buffer of `gate` or `up`,
    /// if it is at the place of one of both and apart from the other.
    Activate {
        /// The activation.
        activation: Activation,
        /// What goes through the activation.
        gate: At,
        /// The other factor; `None`: ones.
        up: Option<At>,
        /// Elements of a row.
        cols: u32,
        /// The output.
        out: At,
    },
    /// `logits = cap * tanh(factor * (logits + bias) / cap)`, in place. What is not finite before factor and cap becomes NaN.
    Finish {
        /// `(rows, cols)`.
        logits: At,
        /// Elements of a row.
        cols: u32,
        /// Added first.
        bias: Option<VectorId>,
        /// Factor.
        factor: f32,
        /// Cap.
        cap: Option<f32>,
    },
    /// Choice of experts: those with the best scores, in ascending order of their numbers.
    Route {
        /// `(rows, count)`.
        scores: At,
        /// Experts, at most 1024.
        count: u32,
        /// Experts that a row uses.
        used: u32,
        /// How they are chosen.
        rule: RouteRule,
        /// Added to the parts for the choice alone (count).
        choice_bias: Option<VectorId>,
        /// Factors of the shares (count).
        factors: Option<VectorId>,
        /// `(rows, used, 2)`: number of the expert, and share.
        out: At,
    },
    /// Products of each row with the experts that it chose: `(rows, used, outputs)`, the results of choice `c` from column
    /// `c * out_stride` on.
    ExpertMatmul {
        /// `(count, outputs, inputs)`: its `unit_rows` are the outputs.
        stack: MatrixId,
        /// As [`Operation::Route`] writes them.
        choices: At,
        /// Experts that a row uses.
        used: u32,
        /// The input; its column is a multiple of [`UNIT`].
        input: At,
        /// Columns between the inputs of two choices, a multiple of [`UNIT`]; 0: all have one input.
        input_stride: u32,
        /// `(count, outputs)`.
        bias: Option<VectorId>,
        /// The output.
        out: At,
        /// Columns between the results of two choices.
        out_stride: u32,
    },
    /// `out = sum of share * output` over a row's choices, in ascending order of the experts, or added to `out`.
    Combine {
        /// `(rows, used, cols)`.
        outputs: At,
        /// Columns between the outputs of two choices.
        stride: u32,
        /// As [`Operation::Route`] writes them.
        choices: At,
        /// Experts that a row uses.
        used: u32,
        /// Elements of an output.
        cols: u32,
        /// Whether the sum is added to what `out` holds.
        add: bool,
        /// `(rows, cols)`.
        out: At,
    },
    /// A convolution over time of each column, `(rows, conv_cols)`, for all rows. Writes the convolution's part of the states.
    Convolve {
        /// The input.
        input: At,
        /// The recurrent layer.
        layer: u32,
        /// `(conv_rows + 1, conv_cols)`, the last row for the present.
        taps: VectorId,
        /// Added to the sum.
        bias: Option<VectorId>,
        /// Whether silu is applied.
        silu: bool,
        /// The output.
        out: At,
    },
    /// Of each head `exp(softplus(decay + bias) * factor)`, then `sigmoid(rate)`, or without a rate the softplus.
    ScanGates {
        /// `(rows, heads)`.
        decay: At,
        /// `(rows, heads)`.
        rate: Option<At>,
        /// Value heads.
        heads: u32,
        /// Added to the decay (heads).
        bias: VectorId,
        /// `(heads)`.
        factor: VectorId,
        /// `(rows, heads, 2)`.
        out: At,
    },
    /// The rows of each span one after the other, for all rows. Reads and writes the heads' states.
    Scan {
        /// Queries, keys and values of all heads in the order of the rule.
        mixed: At,
        /// As [`Operation::ScanGates`] writes them.
        gates: At,
        /// The recurrent layer.
        layer: u32,
        /// `(rows, value_heads, value_dim)`.
        out: At,
    },
    /// `x = x * sigmoid(input . weights)`, in place; `(rows, cols)`.
    Share {
        /// The rows that are multiplied.
        x: At,
        /// Elements of a row.
        cols: u32,
        /// What decides the factor.
        input: At,
        /// Elements of the input, and of the weights.
        input_cols: u32,
        /// The weights.
        weights: VectorId,
    },
    /// `out = input` in each of `parts` parts of `len` elements.
    CopyParts {
        /// The input.
        input: At,
        /// Columns between two parts of the input.
        input_stride: u32,
        /// Parts of a row.
        parts: u32,
        /// Elements of a part.
        len: u32,
        /// The output, in another buffer.
        out: At,
        /// Columns between two parts of the output.
        out_stride: u32,
    },
    /// `x = x + factor * values` in each of `parts` parts of `len` elements, in place.
    AddParts {
        /// The parts that are added to.
        x: At,
        /// Parts of a row.
        parts: u32,
        /// Elements of a part.
        len: u32,
        /// The values that are added.
        values: At,
        /// The factor of each part (parts).
        factors: VectorId,
    },
    /// `out[i] = input[rows[i]]` for the rows of the operation's set; `(rows, cols)`.
    Gather {
        /// Rows of the set that the indices point into.
        input: At,
        /// Elements of a row.
        cols: u32,
        /// The rows.
        out: At,
    },
}

/// How rows choose among experts by their scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteRule {
    /// An expert's part is the sigmoid of its score, else a part of the softmax over all.
    pub sigmoid: bool,
    /// Shares are parts of the sum of the chosen experts' parts.
    pub normalized: bool,
    /// Experts are chosen by the scores themselves, not by parts and bias.
    pub by_scores: bool,
    /// Equal groups of experts, and how many of them a row uses: those with the largest sum of their best two parts.
    pub groups: Option<(u32, u32)>,
    /// Factor of the shares.
    pub scale: f32,
}

/// An operation and its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The rows.
    pub rows: RowSet,
    /// The operation.
    pub operation: Operation,
}

/// Logits that tokens are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawShape {
    /// `(logit rows, vocab)`.
    pub logits: BufferId,
    /// Draws of a batch, at most.
    pub draws_max: u32,
}

/// What a device runs for each batch, and what it needs for it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Buffers of activations.
    pub buffers: Vec<BufferShape>,
    /// Matrices.
    pub matrices: Vec<MatrixShape>,
    /// All vectors, one after the other, each from a multiple of 4 on.
    pub vectors: Vec<f32>,
    /// Caches of keys and values.
    pub caches: Vec<CacheShape>,
    /// States of sequences, in a model with recurrent layers.
    pub states: Option<StatesShape>,
    /// Vectors in place of tokens, one for each row that is one, written before a batch; `None`: all rows are tokens.
    pub vector_rows: Option<BufferId>,
    /// Factor of these vectors; `None`: 1.
    pub vector_factor: Option<f32>,
    /// Operations in order. One for a set without rows is left out of a batch.
    pub steps: Vec<Step>,
    /// Operations of a guess of an MTP head, with logits where those of a batch are; empty: there is no head.
    pub guesses: Vec<Step>,
    /// Buffers that the host may read after a batch.
    pub outputs: Vec<BufferId>,
    /// Whether a row has the same bits in batches of all sizes. Else it has them in batches of fewer than 16 rows, and larger
    /// ones are computed by tiles.
    pub exact: bool,
    /// Whether products of 16 rows and more are computed on matrix units, where the device has them.
    pub on_matrix_units: bool,
    /// Rows of the largest batch.
    pub rows_max: u32,
    /// Words of the largest [record](crate::record).
    pub record_words_max: u32,
    /// Positions of the longest sequence.
    pub context_max: u32,
    /// The logits that tokens are drawn from; `None`: nothing is drawn.
    pub draws: Option<DrawShape>,
}

impl Program {
    /// Adds a buffer.
    pub fn buffer(&mut self, rows: u32, cols: u32) -> BufferId {
        self.buffers.push(BufferShape { rows, cols });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Adds a matrix; its bytes are uploaded after the program was loaded.
    pub fn matrix(&mut self, shape: MatrixShape) -> MatrixId {
        self.matrices.push(shape);
        MatrixId(self.matrices.len() as u32 - 1)
    }

    /// Adds a vector.
    pub fn vector(&mut self, vector: &[f32]) -> VectorId {
        let first = self.vectors.len();
        self.vectors.extend_from_slice(vector);
        let padded = self.vectors.len().next_multiple_of(4);
        self.vectors.resize(padded, 0.0);
        VectorId(first as u32)
    }

    /// Adds a cache.
    pub fn cache(&mut self, shape: CacheShape) -> CacheId {
        self.caches.push(shape);
        CacheId(self.caches.len() as u32 - 1)
    }

    /// The operations of a batch, and of a guess.
    pub fn all_steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().chain(&self.guesses)
    }

    /// Adds an operation.
    pub fn push(&mut self, rows: RowSet, operation: Operation) {
        self.steps.push(Step { rows, operation });
    }
}
