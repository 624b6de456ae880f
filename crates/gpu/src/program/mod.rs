//! The program of a model: one walk over the configuration and the described weights, in the order in which crate `cpu`
//! computes. What stands where is decided by [`Config`] and by which parameters there are, never by the name of a family.

mod attention;
mod dense;
mod experts;
mod head;
mod latent;
mod mtp;
mod per_layer;
mod recurrent;

use crate::operation::{
    At, BufferId, CacheId, CacheShape, DrawShape, MatrixId, MatrixShape, Norm, Operation, Program,
    RowSet, UNIT,
};
use crate::options::Options;
use crate::record::{ADAPTER_WORDS, Record};
use kernels::{KvKind, Rope};
use model::Dims;
use model::adapters::SEQUENCE_ADAPTERS_MAX;
use recurrent::states_of;
use weights::Config;
use weights::config::shapes::KvPlace;
use weights::parameters::{
    BlockInput, Described, DescribedMatrix, Layer, Linear, Norm as NormWeights, RankGroup, Weights,
};

/// A program, and what runs it.
pub(crate) struct Plan {
    pub(crate) program: Program,
    /// Where the weights are, by [`MatrixId`].
    pub(crate) matrices: Vec<DescribedMatrix>,
    /// The ropes of both tables of angles; `None` where nothing turns.
    pub(crate) ropes: [Option<Rope>; 2],
    /// Buffers that are read back.
    pub(crate) outputs: Outputs,
    /// Buffers that nothing writes, with what is in each of their rows.
    pub(crate) constants: Vec<(BufferId, Vec<f32>)>,
}

/// Buffers that are read back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outputs {
    /// `(logit rows, vocab)`.
    pub(crate) logits: BufferId,
    /// `(hidden rows, cols)`: hidden states, or the logits of the two answers of a model that scores.
    pub(crate) hidden: BufferId,
}

impl Plan {
    /// The program of a model that [`crate::supports()`] accepts.
    pub(crate) fn new(
        config: &Config,
        weights: &Weights<Described>,
        dims: &Dims,
        options: &Options,
        adapters: usize,
    ) -> Self {
        let mut walk = Walk::new(config, weights, dims, options.kv);
        walk.adapters = adapters;
        walk.program.vector_rows = options.vectors.then(|| walk.vector_rows());
        let factor = config.scales.vectors;
        walk.program.vector_factor = (factor != 1.0).then_some(factor);
        walk.program.exact = options.exact;
        walk.program.on_matrix_units = !options.exact;
        let recurrent = config.recurrent.as_ref();
        walk.program.states =
            recurrent.map(|layers| states_of(layers, options.states, config.mtp_cols()));
        walk.embed(weights);
        for (index, layer) in weights.layers.iter().enumerate() {
            let next = weights.layers.get(index + 1);
            let next = next.map_or(&weights.output_input, |layer| &layer.attention_input);
            walk.layer(index, layer, next);
        }
        let hidden = walk.input;
        if let Some(head) = &weights.mtp {
            walk.store_for_head(weights, head);
        }
        let outputs = walk.head(weights);
        if let Some(head) = &weights.mtp {
            walk.guess(weights, head, hidden);
        }
        walk.finish(weights, dims, options, outputs)
    }
}

/// What a buffer is for. Layers of one width share the buffers of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Stream(RowSet),
    Normed(RowSet),
    /// Vectors in place of tokens.
    Vectors,
    /// Products of adapters of a rank.
    Adapters(usize),
    /// Projections of the queries.
    Query,
    /// Queries as attention reads them.
    Heads,
    Key,
    Value,
    Attended,
    /// Results of attention over values that were transformed.
    Transformed,
    /// Of attention to latents: a latent, queries between their projections, values, and the numbers of all heads.
    Latent,
    QueryLow,
    LatentQuery,
    LatentValues,
    AllHeads,
    Gate,
    Up,
    Update,
    /// An update of the rows that are kept.
    KeptUpdate,
    /// Inputs of a convolution, and what it gives.
    ScanInput,
    Mixed,
    /// Of a recurrent layer.
    ScanGate,
    ScanOutput,
    Decay,
    Rate,
    Gates,
    /// Inputs of router and experts next to a feed-forward part.
    RouterInput,
    ExpertInput,
    /// Scores of the experts, and what each row chose.
    Scores,
    Choices,
    /// Of the chosen experts, one after the other.
    ExpertGate,
    ExpertUp,
    ExpertOut,
    Sums,
    /// Inputs of all layers besides the stream.
    Inputs(RowSet),
    /// Rows of the table that the inputs are made of.
    InputRows,
    /// Of an MTP head: tokens and hidden states, and what becomes of them.
    Joined,
    HeadStream,
    HeadInput,
    Hidden,
    LogitInput,
    Logits,
    Answers,
}

/// The state of the walk.
struct Walk<'a> {
    config: &'a Config,
    dims: Dims,
    program: Program,
    matrices: Vec<&'a DescribedMatrix>,
    roles: Vec<(Role, u32, BufferId)>,
    places: Vec<Option<KvPlace>>,
    caches: Vec<CacheId>,
    /// Rows of buffers that nothing writes.
    constants: Vec<(BufferId, Vec<f32>)>,
    /// Tables of angles that something turns by.
    turned: [bool; 2],
    /// The rows that are still computed.
    rows: RowSet,
    /// Input of the next block.
    input: At,
    /// What the last block gives.
    update: At,
    /// Inputs of all layers besides the stream, in a model that has them.
    inputs: Option<At>,
    /// Number of adapters.
    adapters: usize,
}

impl<'a> Walk<'a> {
    fn new(config: &'a Config, weights: &'a Weights<Described>, dims: &Dims, kind: KvKind) -> Self {
        let mut walk = Self {
            config,
            dims: *dims,
            program: Program {
                rows_max: dims.rows_max as u32,
                context_max: dims.context_max as u32,
                ..Program::default()
            },
            matrices: Vec::new(),
            roles: Vec::new(),
            places: config.kv_places(),
            caches: Vec::new(),
            constants: Vec::new(),
            turned: [false; 2],
            rows: RowSet::All,
            input: At::start(BufferId(0)),
            update: At::start(BufferId(0)),
            inputs: None,
            adapters: 0,
        };
        let shapes = config.kv_shapes(dims.pages, dims.page_tokens, kind);
        for shape in shapes {
            let cache = walk.program.cache(CacheShape {
                layers: shape.layers as u32,
                pages: shape.pages as u32,
                page_tokens: shape.page_tokens as u32,
                kv_heads: shape.kv_heads as u32,
                head_dim: shape.head_dim as u32,
                kind: shape.kind,
            });
            walk.caches.push(cache);
        }
        // The embedding is the first matrix, as the projection of many models, too.
        walk.matrix(&weights.embedding);
        walk
    }

    /// Embeddings to the stream, and the input of the first layer.
    fn embed(&mut self, weights: &'a Weights<Described>) {
        let table = self.matrix(&weights.embedding);
        let out = self.stream();
        let factor = self.config.scales.embedding;
        self.push(Operation::Embed { table, factor, out });
        self.place_vectors(out);
        if let Some(inputs) = &weights.per_layer {
            self.per_layer_inputs(inputs, out);
        }
        self.input = out;
        if let Some(BlockInput::Normed(norm)) =
            weights.layers.first().map(|layer| &layer.attention_input)
        {
            let (norm, cols, to) = (self.norm(norm), self.config.dim as u32, self.normed());
            self.push(Operation::Norm {
                input: out,
                cols,
                norm,
                out: to,
            });
            self.input = to;
        }
    }

    /// One layer, whose input is ready; leaves the input of `next`.
    fn layer(&mut self, index: usize, layer: &'a Layer<Described>, next: &'a BlockInput) {
        if layer.mixes() {
            if let Some(recurrent) = &layer.recurrent {
                self.recurrent(index, recurrent, layer.attention.is_some());
            }
            if let Some(attention) = &layer.attention {
                self.attention(index, attention);
            }
            if let Some(latent) = &layer.latent {
                self.latent(index, latent);
            }
            let post = layer.attention_post_norm.as_ref();
            if !layer.feeds() {
                self.add(post, None, next);
                return;
            }
            self.add(post, None, &layer.hidden_input);
        }
        if let Some(dense) = &layer.dense {
            self.dense(dense);
        }
        if let (Some(experts), Some(sizes)) = (&layer.experts, self.config.experts_of(index)) {
            self.experts(sizes, experts, layer.dense.is_some());
        }
        let (post, factor) = (layer.hidden_post_norm.as_ref(), layer.output_scale);
        match &layer.per_layer {
            None => self.add(post, factor, next),
            Some(update) => {
                self.add(post, None, &BlockInput::Stream);
                self.per_layer_update(index, update);
                self.add(Some(&update.post_norm), factor, next);
            }
        }
        if index < self.config.deepstack {
            self.add_vectors(index, next);
        }
    }

    /// Puts vectors in the place of tokens' embeddings.
    fn place_vectors(&mut self, embeddings: At) {
        let cols = self.config.dim as u32;
        if let Some(buffer) = self.program.vector_rows {
            self.push(Operation::Vectors {
                vectors: At::start(buffer),
                add: false,
                stream: embeddings,
                next: None,
                cols,
            });
        }
    }

    /// Adds the part of vectors for a layer to its rows (DeepStack), whose input of the next block is then made again.
    fn add_vectors(&mut self, index: usize, next: &BlockInput) {
        let Some(buffer) = self.program.vector_rows else {
            return;
        };
        let cols = self.config.dim as u32;
        let next = match next {
            BlockInput::Normed(norm) => Some((self.norm(norm), self.normed())),
            BlockInput::Stream | BlockInput::AsAttention => None,
        };
        let stream = self.stream();
        self.push(Operation::Vectors {
            vectors: At::start(buffer).right_by((1 + index as u32) * cols),
            add: true,
            stream,
            next,
            cols,
        });
    }

    /// The buffer of vectors, each with parts for the first layers.
    fn vector_rows(&mut self) -> BufferId {
        let width = self.config.dim * (1 + self.config.deepstack);
        self.buffer(Role::Vectors, width).buffer
    }

    /// Adds `update` to the stream, and prepares the input of the next block.
    fn add(&mut self, post: Option<&NormWeights>, factor: Option<f32>, next: &BlockInput) {
        let (stream, update) = (self.stream(), self.update);
        let post = post.map(|norm| self.norm(norm));
        let next = match next {
            BlockInput::Normed(norm) => {
                self.input = self.normed();
                Some((self.norm(norm), self.input))
            }
            BlockInput::Stream => {
                self.input = stream;
                None
            }
            BlockInput::AsAttention => None,
        };
        self.push(Operation::Add {
            update,
            post,
            factor: self.config.scales.update,
            stream,
            stream_factor: factor.unwrap_or(1.0),
            next,
            cols: self.config.dim as u32,
        });
    }

    /// A product with a projection, from a buffer to another.
    fn project(&mut self, linear: &'a Linear<Described>, input: At, out: At) {
        let matrix = self.matrix(&linear.weight);
        let bias = linear.bias.as_ref();
        let bias = bias.map(|bias| self.program.vector(bias));
        self.push(Operation::Matmul {
            matrix,
            input,
            bias,
            add: false,
            out,
        });
        for group in linear.adapters.iter().flat_map(|adapters| &adapters.groups) {
            self.adapt(group, input, out);
        }
    }

    /// Adds what pairs of one rank change.
    fn adapt(&mut self, group: &'a RankGroup<Described>, input: At, out: At) {
        let numbers = (0..self.adapters).flat_map(|number| match group.matrix_of(number) {
            Some((pair, factor)) => [pair as f32, factor],
            None => [-1.0, 0.0],
        });
        let numbers: Vec<f32> = numbers.collect();
        let numbers = self.program.vector(&numbers);
        let rank = group.down.rows;
        let width = rank.next_multiple_of(UNIT as usize) * SEQUENCE_ADAPTERS_MAX;
        let low = self.buffer(Role::Adapters(rank), width);
        let stack = self.stack(&group.down);
        self.push(Operation::AdaptDown {
            stack,
            numbers,
            input,
            low,
        });
        let stack = self.stack(&group.up);
        self.push(Operation::AdaptUp {
            stack,
            numbers,
            low,
            out,
        });
    }

    /// From here on, only rows with outputs are computed.
    fn keep_wanted(&mut self) {
        let (stream, input, cols) = (self.stream(), self.input, self.config.dim as u32);
        let is_stream = input == stream;
        self.rows = RowSet::Wanted;
        let out = self.stream();
        self.push(Operation::Gather {
            input: stream,
            cols,
            out,
        });
        self.input = out;
        if !is_stream {
            self.input = self.normed();
            let out = self.input;
            self.push(Operation::Gather { input, cols, out });
        }
        self.keep_wanted_inputs();
    }

    /// Makes every row of a buffer that nothing writes this one.
    fn constant(&mut self, at: At, row: Vec<f32>) {
        if !self.constants.iter().any(|(known, _)| *known == at.buffer) {
            self.constants.push((at.buffer, row));
        }
    }

    fn push(&mut self, operation: Operation) {
        self.program.push(self.rows, operation);
    }

    fn stream(&mut self) -> At {
        self.buffer(Role::Stream(self.rows), self.config.dim)
    }

    /// Where the next block writes.
    fn update(&mut self) -> At {
        self.update = self.buffer(Role::Update, self.config.dim);
        self.update
    }

    fn normed(&mut self) -> At {
        self.buffer(Role::Normed(self.rows), self.config.dim)
    }

    /// The buffer of a role and a width. Each width has its own, so that the padding of rows stays zero.
    fn buffer(&mut self, role: Role, cols: usize) -> At {
        let cols = cols as u32;
        let known = self.roles.iter();
        let mut known = known.filter(|(of, width, _)| (*of, *width) == (role, cols));
        if let Some((_, _, buffer)) = known.next() {
            return At::start(*buffer);
        }
        let rows = match role {
            Role::LogitInput | Role::Logits => self.dims.logit_rows_max,
            _ => self.dims.rows_max,
        };
        let buffer = self.program.buffer(rows as u32, cols);
        self.roles.push((role, cols, buffer));
        At::start(buffer)
    }

    fn matrix(&mut self, matrix: &'a DescribedMatrix) -> MatrixId {
        self.matrix_of(matrix, 1)
    }

    /// Matrices of one shape, none of which is cut.
    fn stack(&mut self, stack: &'a DescribedMatrix) -> MatrixId {
        self.matrix_of(stack, stack.rows)
    }

    fn matrix_of(&mut self, matrix: &'a DescribedMatrix, unit_rows: usize) -> MatrixId {
        let known = self.matrices.iter();
        let mut known = known.zip(0..);
        if let Some((_, id)) = known.find(|(known, _)| std::ptr::eq(**known, matrix)) {
            return MatrixId(id);
        }
        self.matrices.push(matrix);
        self.program.matrix(MatrixShape {
            format: matrix.format,
            rows: matrix.all_rows() as u32,
            cols: matrix.cols as u32,
            unit_rows: unit_rows as u32,
        })
    }

    fn norm(&mut self, norm: &NormWeights) -> Norm {
        Norm {
            weight: Some(self.program.vector(&norm.weight)),
            bias: norm.bias.as_ref().map(|bias| self.program.vector(bias)),
            centered: norm.centered,
            eps: self.config.norm_eps,
        }
    }

    fn finish(
        mut self,
        weights: &Weights<Described>,
        dims: &Dims,
        options: &Options,
        outputs: Outputs,
    ) -> Plan {
        let ropes = [&self.config.rope, &self.config.rope_local];
        let mut turned = self.turned.into_iter();
        let ropes = ropes.map(|rope| {
            let factors = rope.factors.and(weights.rope_factors.clone());
            let is_used = turned.next().unwrap_or(false);
            is_used.then(|| Rope::new(rope.spec(factors)))
        });
        let angles: usize = ropes.iter().flatten().map(Rope::table_len).sum();
        let pages = dims.context_max.div_ceil(dims.page_tokens);
        let entries = options.spans_max.saturating_mul(pages);
        let adapters = if self.adapters > 0 { ADAPTER_WORDS } else { 0 };
        let words = Record::words_max(dims.rows_max, angles + adapters, entries);
        self.program.outputs = vec![outputs.logits, outputs.hidden];
        self.program.draws = Some(DrawShape {
            logits: outputs.logits,
            draws_max: options.draws_max as u32,
        });
        self.program.record_words_max = u32::try_from(words).unwrap_or(u32::MAX);
        Plan {
            program: self.program,
            matrices: self.matrices.into_iter().cloned().collect(),
            ropes,
            outputs,
            constants: self.constants,
        }
    }
}
