//! The pass over a block, in units: rows that see each other.
//!
//! Between two units nothing is kept but the rows of the stream, and the keys and values in their pages. The first unit of a
//! layer stores the keys and values of all rows; then each unit takes a chunk of the rows through the rest of the layer. After the
//! last layer that stores, nothing is left to compute. A chunk has at most [`CHUNK_ROWS_MAX`] rows, as many as take some fifty
//! milliseconds of two cores, or as fit the workspace: neither the size of a block nor that of the model makes a unit long.
//! Consecutive chunks of a layer are computed together where the caller has time for them: the weights are read once.

use super::rows::Rows;
use super::scratch::Buffer;
use super::{BlockInput, Config, Decoder, Dims, ForwardError, Weights};
use crate::norm;
use model::{AdapterSet, Batch};
use std::ops::Range;
use weights::parameters::Layer;

/// Products of a unit, by which the rows of a chunk are chosen.
const UNIT_PRODUCTS: usize = 12_000_000_000;

/// Products of a cost of 1.
const COST_PRODUCTS: usize = 1_000_000;

/// More rows are no chunk. A step of decodes takes the longer the larger the model is, and so does a chunk of so many rows: in a
/// model of thirty layers about a tenth of the time of seven decodes.
const CHUNK_ROWS_MAX: usize = 48;

/// Fewer rows are no chunk: each reads all weights of the layer.
const CHUNK_ROWS_MIN: usize = 16;

/// No pass is under way.
const NO_BLOCK: ForwardError = ForwardError::BadBatch("no block is under way");

/// The pass that is under way.
pub(super) struct BlockPass {
    /// Positions of the rows; empty: none is under way.
    positions: Range<usize>,
    /// Page table of the sequence.
    pages: Vec<u32>,
    adapters: AdapterSet,
    /// The residual stream of the rows (dim). Grows to the largest block.
    stream: Buffer,
    chunk_rows: usize,
    /// The next unit.
    unit: usize,
}

impl BlockPass {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            positions: 0..0,
            pages: Vec::new(),
            adapters: AdapterSet::NONE,
            stream: Buffer::new(0, config.dim),
            chunk_rows: 1,
            unit: 0,
        }
    }

    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        self.stream.bytes() + size_of_val(&self.pages[..])
    }

    fn rows(&self) -> usize {
        self.positions.len()
    }

    /// Chunks of each layer.
    fn chunks(&self) -> usize {
        self.rows().div_ceil(self.chunk_rows)
    }

    /// Layer and first chunk of the next unit.
    fn place(&self) -> (usize, usize) {
        (self.unit / self.chunks(), self.unit % self.chunks())
    }

    /// Chunks of the next units of a layer that are computed together: at most `units_max`, and no more rows than the
    /// workspace has.
    fn next_chunks(&self, dims: &Dims, units_max: usize) -> Range<usize> {
        let (_, first) = self.place();
        let fit = (dims.rows_max / self.chunk_rows).min(units_max).max(1);
        first..(first + fit).min(self.chunks())
    }

    /// Rows of chunks, counted from the first of the block.
    fn rows_of(&self, chunks: Range<usize>) -> Range<usize> {
        chunks.start * self.chunk_rows..(chunks.end * self.chunk_rows).min(self.rows())
    }
}

/// Products of a row's keys and values in a layer.
fn stored_products(config: &Config, index: usize) -> usize {
    2 * config.dim * config.shapes[index].kv_cols()
}

/// Products of a row in the rest of a layer, in a block that ends at position `end`.
fn row_products(config: &Config, index: usize, end: usize) -> usize {
    let shape = &config.shapes[index];
    let width = 2 * config.heads * shape.head_dim;
    let experts = config
        .experts
        .map_or(0, |experts| 3 * config.dim * experts.hidden * experts.used);
    width * (config.dim + end) + 3 * config.dim * shape.hidden + experts
}

/// Rows of a chunk at most, of a block that ends at position `end`.
fn chunk_rows(config: &Config, dims: &Dims, end: usize) -> usize {
    let layers = 0..config.shapes.len();
    let products = layers
        .map(|index| stored_products(config, index) + row_products(config, index, end))
        .max();
    let rows = UNIT_PRODUCTS / products.unwrap_or(1).max(1) / CHUNK_ROWS_MIN * CHUNK_ROWS_MIN;
    rows.clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX)
        .min(dims.rows_max)
}

impl Decoder {
    /// Begins the pass over a block. Returns the number of units.
    pub(crate) fn begin_block(
        &mut self,
        config: &Config,
        dims: &Dims,
        batch: &Batch,
    ) -> Result<usize, ForwardError> {
        self.block.positions = 0..0;
        let span = self.rows.check_block(batch, dims)?;
        self.adapters.check(batch)?;
        let (block, rows) = (&mut self.block, span.tokens.len());
        block.pages.clear();
        block
            .pages
            .extend_from_slice(&batch.pages()[span.pages.clone()]);
        block.adapters = span.adapters;
        if block.stream.rows() < rows {
            block.stream = Buffer::new(rows, config.dim);
        }
        for row in 0..rows {
            let vector = batch.vector(row).ok_or(NO_BLOCK)?;
            let stream = block.stream.rows_mut(row..row + 1);
            stream.copy_from_slice(&vector[..config.dim]);
        }
        block.positions = span.position..span.position + rows;
        // Chunks of equal length: the longest of as many is the shortest so.
        let chunks = rows.div_ceil(chunk_rows(config, dims, block.positions.end));
        block.chunk_rows = rows.div_ceil(chunks);
        block.unit = 0;
        Ok(self.last_stored_layer * block.chunks() + 1)
    }

    /// As [`model::AdvanceBlock::next_cost`].
    pub(crate) fn next_block_cost(&self, config: &Config, dims: &Dims, units_max: usize) -> u64 {
        let block = &self.block;
        if block.positions.is_empty() {
            return 1;
        }
        let (index, number) = block.place();
        let mut products = 0;
        if number == 0 {
            products += block.rows() * stored_products(config, index);
        }
        if index < self.last_stored_layer {
            let rows = block.rows_of(block.next_chunks(dims, units_max)).len();
            products += rows * row_products(config, index, block.positions.end);
        }
        products.div_ceil(COST_PRODUCTS).max(1) as u64
    }

    /// As [`model::AdvanceBlock::advance_block`].
    pub(crate) fn advance_block(
        &mut self,
        config: &Config,
        weights: &Weights,
        dims: &Dims,
        units_max: usize,
    ) -> Result<usize, ForwardError> {
        if self.block.positions.is_empty() {
            return Err(NO_BLOCK);
        }
        let (index, number) = self.block.place();
        let chunks = self.block.next_chunks(dims, units_max);
        let rows = self.block.rows_of(chunks.clone());
        let layer = &weights.layers[index];
        self.scratch.set_shape(config.heads, &config.shapes[index]);
        let stores = number == 0;
        if stores {
            let all = self.block.rows();
            for first in (0..all).step_by(rows.len()) {
                let rows = first..(first + rows.len()).min(all);
                self.read_rows(config, dims, (index, layer), rows);
                let attention = layer.attention.as_ref();
                if let Some(stored) = attention.and_then(|layer| layer.key_value.as_ref()) {
                    self.load_normed();
                    self.store_keys_and_values(config, index, stored);
                }
            }
        }
        if index == self.last_stored_layer {
            self.block.positions = 0..0;
            return Ok(0);
        }
        if !stores || rows.len() < self.block.rows() {
            self.read_rows(config, dims, (index, layer), rows.clone());
        }
        self.advance_rows(config, (index, layer));
        let stream = self.scratch.stream.head(rows.len());
        self.block.stream.rows_mut(rows).copy_from_slice(stream);
        self.block.unit += chunks.len();
        Ok(self.last_stored_layer * self.block.chunks() + 1 - self.block.unit)
    }

    /// Reads rows, counted from the first of the block: stream, angles, and the input of the layer's attention.
    fn read_rows(
        &mut self,
        config: &Config,
        dims: &Dims,
        (index, layer): (usize, &Layer),
        chunk: Range<usize>,
    ) {
        let block = &self.block;
        let first = block.positions.start;
        let positions = first + chunk.start..first + chunk.end;
        let sight = config.sees_block(index).then_some(block.positions.end);
        self.rows
            .read_chunk(positions, sight, (&block.pages, block.adapters), dims);
        self.adapters.read(&self.rows);
        self.angles(config);
        let (isa, dim, eps) = (self.isa, config.dim, config.norm_eps);
        let from = &self.block.stream;
        let stream = self.scratch.stream.head_mut(chunk.len());
        let normed = self.scratch.normed.head_mut(chunk.len());
        self.pool
            .rows2((stream, dim), (normed, dim), |row, stream, normed| {
                stream.copy_from_slice(from.row(chunk.start + row));
                norm::read_input(&layer.attention_input, isa, eps, stream, normed);
            });
    }

    /// Takes the rows that were read through the rest of a layer.
    fn advance_rows(&mut self, config: &Config, (index, layer): (usize, &Layer)) {
        if let Some(attention) = &layer.attention {
            self.load_normed();
            let pages = std::mem::take(&mut self.block.pages);
            self.attention(config, index, attention, &pages);
            self.block.pages = pages;
            let post = layer.attention_post_norm.as_ref();
            self.add_update(config, post, None, &layer.hidden_input);
        }
        // The input of the next layer is read from the stream.
        self.feed(config, index, layer, &BlockInput::Stream);
    }
}

impl Rows {
    /// Reads rows of a block: each sees the positions up to `sight`, or up to its own.
    fn read_chunk(
        &mut self,
        positions: Range<usize>,
        sight: Option<usize>,
        (pages, adapters): (&[u32], AdapterSet),
        dims: &Dims,
    ) {
        self.clear();
        for position in positions {
            let end = sight.unwrap_or(position + 1);
            self.push_row(position, end, (pages, 0..pages.len()), dims.page_tokens);
            self.adapters.push(adapters);
        }
    }
}
