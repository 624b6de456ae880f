//! Adapters in the forward pass: `scale * B (A x)` is added to a projection's output, for the rows that ask for it.
//!
//! Rows with different adapters are in one batch. In round `i`, each row's `i`-th adapter is added, in the order of the
//! adapters' numbers. The rows of a round are sorted by adapter, so that the pairs of all adapters of one rank are two
//! products of groups of rows ([`matmul_groups`]); [`ADAPTER_CHUNK_ROWS`] rows are multiplied at a time, which bounds the workspace.
//!
//! The arithmetic of a row depends on the row's own adapters only, and rows without adapters are not touched. Products use
//! vector instructions whatever the instruction set of the weights is: with tiles, a row's result would depend on the
//! number of rows.

use super::rows::Rows;
use super::scratch::Buffer;
use kernels::{Activations, Isa, Pool, RowGroup, add_assign, matmul_groups, scale};
use model::adapters::SEQUENCE_ADAPTERS_MAX;
use model::{Batch, Dims, ForwardError};
use weights::Config;
use weights::parameters::{Linear, RankGroup};

/// Rows that are multiplied with adapters at a time, which bounds the workspace.
pub const ADAPTER_CHUNK_ROWS: usize = 128;

/// Mark of a row that is not in the chunk.
const ABSENT: u32 = u32::MAX;

/// Adapters of the rows of a batch, and the workspace of their products, allocated once.
pub(super) struct AdapterPass {
    isa: Isa,
    /// Number of loaded adapters.
    count: usize,
    /// The first adapter of each row that has one, the second, and so on; sorted by adapter.
    rounds: [Vec<RowAdapter>; SEQUENCE_ADAPTERS_MAX],
    chosen: Vec<RowMatrix>,
    groups: Vec<RowGroup>,
    /// By row: its place in the chunk, or [`ABSENT`].
    places: Vec<u32>,
    work: Workspace,
}

/// An adapter of a row.
struct RowAdapter {
    adapter: usize,
    row: usize,
    scale: f32,
}

/// A row that is multiplied with a pair.
struct RowMatrix {
    matrix: usize,
    row: usize,
    /// Factor of the product.
    scale: f32,
}

struct Workspace {
    /// Inputs of a chunk (cols_max).
    input: Buffer,
    /// `A x` (rank_max).
    low: Buffer,
    /// `B (A x)` (cols_max).
    change: Buffer,
    activations: Activations,
}

impl AdapterPass {
    /// A pass for `count` adapters with ranks up to `rank_max`; both may be 0.
    pub(super) fn new(
        config: &Config,
        dims: &Dims,
        isa: Isa,
        (count, rank_max): (usize, usize),
    ) -> Self {
        let is_used = count > 0;
        let rows = if is_used { dims.rows_max } else { 0 };
        let cols = config.cols_max().max(config.kv_cols());
        let chunk = rows.min(ADAPTER_CHUNK_ROWS);
        Self {
            isa: isa.without_amx(),
            count,
            rounds: std::array::from_fn(|_| Vec::with_capacity(rows)),
            chosen: Vec::with_capacity(rows),
            groups: Vec::with_capacity(chunk),
            places: vec![ABSENT; rows],
            work: Workspace {
                input: Buffer::new(chunk, cols),
                low: Buffer::new(chunk, rank_max),
                change: Buffer::new(chunk, cols),
                activations: Activations::new(chunk, cols.max(rank_max)),
            },
        }
    }

    /// Number of loaded adapters.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        let work = &self.work;
        let cols = work.input.cols().max(work.low.cols());
        let buffers = [&work.input, &work.low, &work.change].map(Buffer::bytes);
        let activations = Activations::bytes(work.input.rows(), cols);
        buffers.iter().sum::<usize>() + activations
    }

    /// Rejects a batch that names an adapter that is not loaded.
    pub(super) fn check(&self, batch: &Batch) -> Result<(), ForwardError> {
        let mut sets = batch.ranges().iter().map(|span| &span.adapters);
        if sets.any(|set| set.last().is_some_and(|last| last >= self.count)) {
            Err(ForwardError::BadBatch("an adapter is not loaded"))
        } else {
            Ok(())
        }
    }

    /// Reads the adapters of the rows that are left.
    pub(super) fn read(&mut self, rows: &Rows) {
        if self.count == 0 {
            return;
        }
        self.rounds.iter_mut().for_each(Vec::clear);
        for (row, set) in rows.adapters.iter().enumerate() {
            for (round, (adapter, scale)) in self.rounds.iter_mut().zip(set.iter()) {
                round.push(RowAdapter {
                    adapter,
                    row,
                    scale,
                });
            }
        }
        for round in &mut self.rounds {
            round.sort_unstable_by_key(|used| (used.adapter, used.row));
        }
    }

    /// Adds to `out`, the projection of `x` (one row of inputs for each row that is left), what the rows' adapters change.
    pub(super) fn add(&mut self, pool: &mut Pool, linear: &Linear, x: &[f32], out: &mut [f32]) {
        let Some(adapters) = &linear.adapters else {
            return;
        };
        for round in 0..SEQUENCE_ADAPTERS_MAX {
            if self.rounds[round].is_empty() {
                return;
            }
            for group in &adapters.groups {
                self.chosen.clear();
                let used = self.rounds[round].iter();
                self.chosen.extend(used.filter_map(|used| {
                    let (matrix, factor) = group.matrix_of(used.adapter)?;
                    Some(RowMatrix {
                        matrix,
                        row: used.row,
                        scale: used.scale * factor,
                    })
                }));
                let chosen = std::mem::take(&mut self.chosen);
                for chunk in chosen.chunks(ADAPTER_CHUNK_ROWS) {
                    self.add_chunk(pool, group, chunk, x, out);
                }
                self.chosen = chosen;
            }
        }
    }

    /// Adds the products of one chunk of rows, each of which is there once.
    fn add_chunk(
        &mut self,
        pool: &mut Pool,
        group: &RankGroup,
        chunk: &[RowMatrix],
        x: &[f32],
        out: &mut [f32],
    ) {
        let (isa, rows, cols) = (self.isa, chunk.len(), group.down.cols());
        let (rank, outputs) = (group.down.rows(), group.up.rows());
        let Workspace {
            input,
            low,
            change,
            activations,
        } = &mut self.work;
        input.set_cols(cols);
        low.set_cols(rank);
        change.set_cols(outputs);
        self.groups.clear();
        for (at, used) in chunk.iter().enumerate() {
            self.places[used.row] = at as u32;
            match self.groups.last_mut() {
                Some(last) if last.matrix == used.matrix => last.rows.end = at + 1,
                _ => self.groups.push(RowGroup {
                    matrix: used.matrix,
                    rows: at..at + 1,
                }),
            }
        }
        pool.rows(input.head_mut(rows), cols, |at, input| {
            input.copy_from_slice(&x[chunk[at].row * cols..][..cols]);
        });
        activations.load(isa, pool, input.head(rows), rows, cols);
        let products = low.head_mut(rows);
        matmul_groups(pool, &group.down, &self.groups, activations, products);
        pool.rows(products, rank, |at, low| scale(isa, low, chunk[at].scale));
        activations.load(isa, pool, low.head(rows), rows, rank);
        let changes = change.head_mut(rows);
        matmul_groups(pool, &group.up, &self.groups, activations, changes);
        let places = &self.places;
        pool.rows(out, outputs, |row, out| {
            if places[row] != ABSENT {
                add_assign(isa, out, change.row(places[row] as usize));
            }
        });
        for used in chunk {
            self.places[used.row] = ABSENT;
        }
    }
}
