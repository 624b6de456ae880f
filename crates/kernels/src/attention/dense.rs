//! Attention of a picture's rows to ranges of its rows: keys and values of one layer, contiguous, one head layout.
//!
//! Nothing is paged and nothing is masked by position: a *span* of queries sees one range of keys, in any order and from
//! any side. Keys and values are packed once, when they are stored, and read by all queries. A part of the queries of one
//! head passes over the keys, one tile after another, with an online softmax (Milakov and Gimelshein 2018): the maximum, the
//! sum of weights and the weighted values of a query are corrected whenever a tile raises the maximum.
//!
//! A query's arithmetic depends on the query and on its range of keys alone: its bits are the same however queries are cut
//! into calls and spans, and for every number of threads (on one level). Tiles of keys begin at fixed rows.
//!
//! [`vectors`] computes in f32 over keys and values in f16, on every level; [`tiles`] with AMX in bf16, for any number of
//! queries. A value that is not finite may make every row not finite that shares a tile with it.
#![allow(unsafe_code)] // Workers write disjoint parts of buffers; each block says which.

mod reference;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod vectors;

use crate::memory::ZeroedBuffer;
use crate::pool::DisjointSlice;
use crate::{Isa, Pool};
use std::ops::Range;

/// Rows of keys and values that are stored together, and queries that read them together.
pub const DENSE_TILE: usize = 64;

/// Tasks of a thread, so that all threads end at about the same time.
const TASKS_PER_THREAD: usize = 8;

/// Capacity of a [`DenseAttention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseShape {
    /// Heads of queries, of keys and of values.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows of the largest picture.
    pub rows_max: usize,
    /// Queries of the largest call.
    pub queries_max: usize,
    /// Workers of the pool.
    pub threads: usize,
    /// Instruction set of the calls.
    pub isa: Isa,
}

/// Queries that see the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseSpan {
    /// Rows of a call's queries.
    pub queries: Range<usize>,
    /// Rows of the picture that these queries see, at least one.
    pub keys: Range<usize>,
}

/// Keys and values of one layer of a picture, and what queries need to read them.
pub struct DenseAttention {
    shape: DenseShape,
    /// Rows of the picture that is stored.
    rows: usize,
    /// Packed keys, `(heads, tiles)`.
    keys: ZeroedBuffer<u16>,
    /// Packed values, `(heads, tiles)`.
    values: ZeroedBuffer<u16>,
    /// One for each worker.
    workspaces: Vec<DenseWorkspace>,
    /// The spans of a call in parts of [`DenseShape::part_queries`]; at most `queries_max`.
    parts: Vec<DenseSpan>,
}

/// The buffers of one worker, by path.
enum DenseWorkspace {
    Vectors(Box<vectors::VectorWorkspace>),
    #[cfg(target_arch = "x86_64")]
    Tiles(Box<tiles::TileWorkspace>),
}

/// The inputs of one call.
struct DenseCall<'a> {
    shape: &'a DenseShape,
    /// Packed keys and values of all heads, in u16 of each head.
    keys: &'a [u16],
    values: &'a [u16],
    /// Multiplied into the scores.
    scale: f32,
    /// `(queries, heads, head_dim)`.
    q: &'a [f32],
}

impl DenseAttention {
    /// Allocates the memory, which stays untouched until it is used.
    pub fn new(shape: DenseShape) -> Self {
        let tiles = shape.heads * shape.rows_max.div_ceil(DENSE_TILE);
        let [keys, values] = shape.tile_lens();
        Self {
            shape,
            rows: 0,
            keys: ZeroedBuffer::new(tiles * keys),
            values: ZeroedBuffer::new(tiles * values),
            workspaces: (0..shape.threads)
                .map(|_| DenseWorkspace::new(&shape))
                .collect(),
            parts: Vec::with_capacity(shape.queries_max),
        }
    }

    /// The capacity.
    pub fn shape(&self) -> &DenseShape {
        &self.shape
    }

    /// Bytes, when the largest picture was stored.
    pub fn bytes(&self) -> usize {
        let workspaces = self.workspaces.iter().map(DenseWorkspace::bytes);
        (self.keys.len() + self.values.len()) * size_of::<u16>()
            + workspaces.sum::<usize>()
            + self.parts.capacity() * size_of::<DenseSpan>()
    }

    /// Begins a layer of a picture of `rows` rows, whose keys and values are stored next.
    ///
    /// # Panics
    /// If these are more than `rows_max`.
    pub fn begin(&mut self, rows: usize) {
        assert!(
            rows <= self.shape.rows_max,
            "{rows} rows of {}",
            self.shape.rows_max
        );
        self.rows = rows;
    }

    /// Stores keys and values of some rows, `(rows, heads, head_dim)` each.
    ///
    /// # Panics
    /// If the rows are not whole tiles of the picture (only its last may be incomplete), or the shapes do not match.
    pub fn store(&mut self, pool: &mut Pool, rows: Range<usize>, keys: &[f32], values: &[f32]) {
        let shape = self.shape;
        let width = shape.heads * shape.head_dim;
        let is_whole = |row: usize| row.is_multiple_of(DENSE_TILE) || row == self.rows;
        assert!(
            is_whole(rows.start) && is_whole(rows.end) && rows.end <= self.rows,
            "{rows:?} are no whole tiles of {} rows",
            self.rows
        );
        assert!(
            keys.len() == rows.len() * width && values.len() == keys.len(),
            "(rows, heads, head_dim) keys and values"
        );
        let tiles = shape.rows_max.div_ceil(DENSE_TILE);
        let [key_len, value_len] = shape.tile_lens();
        let all_keys = DisjointSlice::new(&mut self.keys);
        let all_values = DisjointSlice::new(&mut self.values);
        let count = rows.len().div_ceil(DENSE_TILE);
        pool.guided(count * shape.heads, 1, |range| {
            for task in range {
                let (tile, head) = (task / shape.heads, task % shape.heads);
                let first = tile * DENSE_TILE;
                let part = first * width..rows.len().min(first + DENSE_TILE) * width;
                let at = head * tiles + rows.start / DENSE_TILE + tile;
                // SAFETY: each tile of a head belongs to one task.
                let to = unsafe {
                    (
                        all_keys.part(at * key_len..(at + 1) * key_len),
                        all_values.part(at * value_len..(at + 1) * value_len),
                    )
                };
                shape.pack(head, (&keys[part.clone()], &values[part]), to);
            }
        });
    }

    /// Computes the rows of `out` that spans name, of the shape of `q`: `(queries, heads, head_dim)`; the others stay.
    /// Scores are multiplied by `scale`.
    ///
    /// # Panics
    /// If the shapes do not match, the bounds are exceeded, spans overlap or descend, or a span's keys are none or beyond
    /// the picture.
    pub fn attend(
        &mut self,
        pool: &mut Pool,
        spans: &[DenseSpan],
        scale: f32,
        q: &[f32],
        out: &mut [f32],
    ) {
        let width = self.shape.heads * self.shape.head_dim;
        let queries = q.len() / width.max(1);
        assert!(
            q.len() == out.len() && q.len() == queries * width && queries <= self.shape.queries_max,
            "(queries, heads, head_dim) queries, as many results, at most {}",
            self.shape.queries_max
        );
        self.cut(spans, queries);
        let call = DenseCall {
            shape: &self.shape,
            keys: &self.keys,
            values: &self.values,
            scale,
            q,
        };
        let (parts, out) = (&self.parts, DisjointSlice::new(out));
        // Heads come last: consecutive tasks read the same keys.
        let tasks = parts.len() * self.shape.heads;
        pool.tasks(&mut self.workspaces, tasks, |workspace, task| {
            let (head, part) = (task / parts.len(), &parts[task % parts.len()]);
            match workspace {
                DenseWorkspace::Vectors(workspace) => workspace.attend(&call, part, head),
                #[cfg(target_arch = "x86_64")]
                DenseWorkspace::Tiles(workspace) => workspace.attend(&call, part, head),
            }
            for (number, query) in part.queries.clone().enumerate() {
                // SAFETY: a head of a query belongs to one task.
                let out = unsafe { out.part(call.place(query, head)) };
                match workspace {
                    DenseWorkspace::Vectors(workspace) => workspace.write(number, out),
                    #[cfg(target_arch = "x86_64")]
                    DenseWorkspace::Tiles(workspace) => workspace.write(number, out),
                }
            }
        });
    }

    /// Cuts the spans into parts.
    fn cut(&mut self, spans: &[DenseSpan], queries: usize) {
        self.parts.clear();
        let mut end = 0;
        for DenseSpan {
            queries: some,
            keys,
        } in spans
        {
            assert!(
                some.start >= end && some.end <= queries,
                "spans ascend within {queries} queries: {some:?}"
            );
            assert!(
                keys.start < keys.end && keys.end <= self.rows,
                "keys {keys:?} of {} rows",
                self.rows
            );
            end = some.end.max(some.start);
            let step = self.shape.part_queries();
            let parts = some.clone().step_by(step).map(|first| DenseSpan {
                queries: first..some.end.min(first + step),
                keys: keys.clone(),
            });
            self.parts.extend(parts);
        }
    }
}

impl DenseShape {
    /// Queries of a part: with vectors more read a tile of keys, if enough tasks are left for all threads.
    fn part_queries(&self) -> usize {
        let tasks = self.heads * (self.queries_max / vectors::PART_QUERIES);
        if self.isa.has_tiles() || tasks < TASKS_PER_THREAD * self.threads {
            DENSE_TILE
        } else {
            vectors::PART_QUERIES
        }
    }

    /// Elements of the keys and of the values of one tile of one head.
    fn tile_lens(&self) -> [usize; 2] {
        #[cfg(target_arch = "x86_64")]
        if self.isa.has_tiles() {
            return tiles::tile_lens(self.head_dim);
        }
        vectors::tile_lens(self.head_dim)
    }

    /// Packs the keys and values of a head in up to [`DENSE_TILE`] rows; missing rows are zero.
    fn pack(&self, head: usize, (keys, values): (&[f32], &[f32]), to: (&mut [u16], &mut [u16])) {
        let rows = |all| HeadRows {
            all,
            width: self.heads * self.head_dim,
            head: head * self.head_dim..(head + 1) * self.head_dim,
        };
        let from = (rows(keys), rows(values));
        #[cfg(target_arch = "x86_64")]
        if let Some(permission) = self.isa.tiles() {
            return tiles::pack(&permission, from, to);
        }
        vectors::pack(from, to);
    }
}

/// One head of consecutive rows.
#[derive(Clone)]
struct HeadRows<'a> {
    all: &'a [f32],
    /// Floats of a row.
    width: usize,
    /// Keys or values of the head.
    head: Range<usize>,
}

impl<'a> HeadRows<'a> {
    fn iter(&self) -> impl Iterator<Item = &'a [f32]> {
        let head = self.head.clone();
        let rows = self.all.chunks_exact(self.width);
        rows.map(move |row| &row[head.clone()])
    }
}

impl DenseCall<'_> {
    /// A head of a query, in `q` and in the results.
    fn place(&self, query: usize, head: usize) -> Range<usize> {
        let DenseShape {
            heads, head_dim, ..
        } = *self.shape;
        let start = (query * heads + head) * head_dim;
        start..start + head_dim
    }

    /// Packed keys and values of a head.
    fn head(&self, head: usize) -> (&[u16], &[u16]) {
        let part = |all| {
            let len = <[u16]>::len(all) / self.shape.heads;
            &all[head * len..(head + 1) * len]
        };
        (part(self.keys), part(self.values))
    }
}

impl DenseWorkspace {
    fn new(shape: &DenseShape) -> Self {
        #[cfg(target_arch = "x86_64")]
        if shape.isa.has_tiles() {
            return Self::Tiles(Box::new(tiles::TileWorkspace::new(shape)));
        }
        Self::Vectors(Box::new(vectors::VectorWorkspace::new(shape)))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Vectors(workspace) => workspace.bytes(),
            #[cfg(target_arch = "x86_64")]
            Self::Tiles(workspace) => workspace.bytes(),
        }
    }
}
