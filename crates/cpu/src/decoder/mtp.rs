//! The MTP head: guesses about the token after the next one.
//!
//! At a position the head reads the token's embedding and the hidden state before it, joins them to a stream, and runs one
//! layer of attention with keys and values of its own, which are in the model's pages as those of one more layer. Each pass of
//! the model stores these keys and values for its rows, so the head may guess after any token; where a span begins, the hidden
//! state before it is part of the sequence's state. All is a function of the tokens, however they were divided into passes.

use super::scratch::Buffer;
use super::{Config, Decoder, Dims, ForwardError, Weights, matmul};
use crate::norm;
use kernels::ZeroedBuffer;
use model::{Batch, Span, Want};
use weights::parameters::MtpHead;

/// The hidden state before a row.
#[derive(Clone, Copy)]
enum Before {
    /// Nothing precedes.
    Nothing,
    /// That of another row.
    Row(usize),
    /// That of a sequence's state.
    State(u32),
}

/// Workspace of an MTP head, and hidden states of sequences.
pub(super) struct MtpScratch {
    /// Of each state of sequences: the hidden state of its last token (dim).
    kept: ZeroedBuffer<f32>,
    /// Of each row.
    before: Vec<Before>,
    /// Hidden states of the rows (dim).
    hidden: Buffer,
    /// Normalized embeddings and hidden states of the rows (2 * dim).
    joined: Buffer,
}

impl MtpScratch {
    pub(super) fn new(config: &Config, dims: &Dims, states: usize) -> Option<Self> {
        let (rows, dim) = (dims.rows_max, config.dim);
        config.mtp.then(|| Self {
            kept: ZeroedBuffer::new(states * dim),
            before: Vec::with_capacity(rows),
            hidden: Buffer::new(rows, dim),
            joined: Buffer::new(rows, 2 * dim),
        })
    }

    /// Bytes of the hidden states of sequences, and of the workspace.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let before = self.before.capacity() * size_of::<Before>();
        let scratch = self.hidden.bytes() + self.joined.bytes() + before;
        (size_of_val(&self.kept[..]), scratch)
    }

    /// Reads what precedes each row of a batch.
    fn read(&mut self, batch: &Batch) -> Result<(), &'static str> {
        let count = self.kept.len() / self.hidden.cols();
        self.before.clear();
        for span in batch.spans() {
            let states = span.states.ok_or("a span has no states")?;
            let first = self.before.len();
            let before = match states.before {
                None if span.position == 0 => Before::Nothing,
                Some(state) if span.position > 0 => Before::State(state),
                _ => return Err("a state precedes all tokens but the first"),
            };
            if states.before.is_some_and(|state| state as usize >= count) {
                return Err("a state does not exist");
            }
            let others = first..first + span.tokens.len().saturating_sub(1);
            self.before.extend(span.tokens.first().map(|_| before));
            self.before.extend(others.map(Before::Row));
        }
        Ok(())
    }

    /// Takes the rows' hidden states, and keeps those of the states that the batch writes.
    fn keep(&mut self, batch: &Batch, hidden: &[f32]) {
        let dim = self.hidden.cols();
        let rows = hidden.len() / dim;
        self.hidden.head_mut(rows).copy_from_slice(hidden);
        let mut first = 0;
        for span in batch.spans() {
            let written = span.states.map(|states| states.written(span.tokens.len()));
            for written in written.into_iter().flatten() {
                let at = written.state as usize * dim;
                let row = self.hidden.row(first + written.tokens - 1);
                self.kept[at..at + dim].copy_from_slice(row);
            }
            first += span.tokens.len();
        }
    }
}

impl Decoder {
    /// Stores the head's keys and values for all rows, whose hidden states are in `normed`, then drops the rows without
    /// outputs. Without effect in a model without a head.
    pub(super) fn store_for_mtp(
        &mut self,
        config: &Config,
        weights: &Weights,
        batch: &Batch,
    ) -> Result<(), ForwardError> {
        let (Some(head), Some(mtp)) = (&weights.mtp, &mut self.mtp) else {
            return Ok(());
        };
        let rows = self.rows.queries.len();
        mtp.read(batch).map_err(ForwardError::BadBatch)?;
        mtp.keep(batch, self.scratch.normed.head(rows));
        self.join(config, (weights, head), batch);
        let attention = head.layer.attention.as_ref();
        if let Some(stored) = attention.and_then(|attention| attention.key_value.as_ref()) {
            let shape = &config.shapes[config.layers];
            self.scratch.set_shape(config.heads, shape);
            self.load_normed();
            self.store_keys_and_values(config, config.layers, stored);
        }
        if let Some(mtp) = &self.mtp {
            let normed = self.scratch.normed.head_mut(rows);
            normed.copy_from_slice(mtp.hidden.head(rows));
        }
        self.keep_wanted();
        Ok(())
    }

    /// Guesses of the head about the token after each span, which is one token: logits, `(spans, vocab)`.
    pub(crate) fn guess(
        &mut self,
        config: &Config,
        weights: &Weights,
        dims: &Dims,
        batch: &Batch,
    ) -> Result<&mut [f32], ForwardError> {
        let (Some(head), Some(mtp)) = (&weights.mtp, &mut self.mtp) else {
            return Err(ForwardError::BadBatch("the model has no MTP head"));
        };
        let is_single = |span: &Span| span.tokens.len() == 1 && span.want == Want::Last;
        if !batch.ranges().iter().all(is_single) {
            return Err(ForwardError::BadBatch("a guess follows one token"));
        }
        self.rows.read(batch, dims)?;
        mtp.read(batch).map_err(ForwardError::BadBatch)?;
        self.adapters.read(&self.rows);
        self.angles(config);
        self.join(config, (weights, head), batch);
        let next = &head.output_input;
        self.layer(config, config.layers, &head.layer, next, batch.pages());
        let projection = head.output.as_ref();
        let projection = projection.unwrap_or_else(|| weights.projection());
        self.logits(config, weights, projection)
    }

    /// Joins the rows' tokens, or the vectors in their place, and the hidden states before them to the stream, and prepares the
    /// input of the head's layer.
    fn join(&mut self, config: &Config, (weights, head): (&Weights, &MtpHead), batch: &Batch) {
        let tokens = batch.tokens();
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let Some(mtp) = &mut self.mtp else { return };
        let (isa, dim, eps, rows) = (self.isa, config.dim, config.norm_eps, tokens.len());
        let (kept, before, hidden) = (&mtp.kept[..], &mtp.before[..], &mtp.hidden);
        let table = head.embedding.as_ref().unwrap_or(&weights.embedding);
        let joined = mtp.joined.head_mut(rows);
        pool.rows(joined, 2 * dim, |row, joined| {
            let (embedding, state) = joined.split_at_mut(dim);
            match batch.vector(row) {
                Some(vector) => embedding.copy_from_slice(&vector[..dim]),
                None => table.row(tokens[row] as usize, embedding),
            }
            let norm = &head.embedding_norm;
            norm::apply_to_parts(norm, isa, eps, embedding, dim);
            let found = match before[row] {
                Before::Nothing => return state.fill(0.0),
                Before::Row(row) => hidden.row(row),
                Before::State(at) => &kept[at as usize * dim..][..dim],
            };
            norm::apply(&head.hidden_norm, isa, eps, found, state);
        });
        let activations = &mut scratch.activations;
        activations.load(isa, pool, joined, rows, 2 * dim);
        matmul(pool, &head.join, activations, scratch.stream.head_mut(rows));
        let stream = (scratch.stream.head_mut(rows), dim);
        let normed = (scratch.normed.head_mut(rows), dim);
        pool.rows2(stream, normed, |_, stream, normed| {
            let input = &head.layer.attention_input;
            norm::read_input(input, isa, eps, stream, normed);
        });
    }
}
