//! Partition of one attention call over the thread pool.
#![allow(unsafe_code)] // Workers write disjoint parts of the output; each block says which.

use super::workspace::AttentionWorkspace;
use super::{
    AttentionBounds, AttentionCall, AttentionScratch, KV_SPLIT_SLOTS, QueryRow, QueryTile,
    TASKS_PER_WORKER, TILE_QUERIES,
};
use crate::Pool;
use crate::pool::DisjointSlice;
use std::ops::Range;

/// Multiplications below which the caller works alone: about the cost of one pool barrier.
const ALONE_PRODUCTS: usize = 1 << 15;

/// Unit of work of a task; the results do not depend on the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkPartition {
    /// The caller computes everything.
    CallerOnly,
    /// A task is a query tile and a KV head.
    PerTile,
    /// A task is a query tile, a KV head and one of at most this many KV splits.
    PerSplit(usize),
}

impl AttentionCall<'_> {
    pub(super) fn check_shapes(&self, bounds: &AttentionBounds, out: usize) {
        let shape = self.kv.shape();
        let heads = self.params.heads;
        assert!(
            heads > 0 && heads.is_multiple_of(shape.kv_heads),
            "heads share kv heads evenly"
        );
        assert!(
            self.slots() <= KV_SPLIT_SLOTS,
            "a page has at most {KV_SPLIT_SLOTS} positions"
        );
        assert!(
            self.params.sinks.is_none_or(|sinks| sinks.len() == heads),
            "a sink for each head"
        );
        let fits = heads <= bounds.heads
            && heads / shape.kv_heads
                <= bounds
                    .heads
                    .div_ceil(bounds.kv_heads.max(1))
                    .max(TILE_QUERIES)
            && shape.head_dim == bounds.head_dim
            && shape.kind == bounds.kind
            && self.isa == bounds.isa
            && self.rows.len() <= bounds.rows_max;
        assert!(fits, "the scratch has no size: {bounds:?}");
        let wanted = self.rows.len() * heads * shape.head_dim;
        assert!(
            self.q.len() == wanted && out == wanted,
            "q and out have {wanted}"
        );
        for row in self.rows {
            assert!(row.position < row.end, "{row:?} sees itself");
            let pages = row.end.div_ceil(shape.page_tokens);
            let is_complete = row.pages.len() >= pages && row.pages.end <= self.tables.len();
            assert!(is_complete, "{row:?} needs {pages} pages");
        }
    }

    /// Computes all of `out`.
    pub(super) fn run(&self, pool: &mut Pool, scratch: &mut AttentionScratch, out: &mut [f32]) {
        self.cut_query_tiles(scratch);
        match self.choose_partition(pool.threads(), scratch) {
            WorkPartition::CallerOnly => self.run_tiles(pool, true, scratch, out),
            WorkPartition::PerTile => self.run_tiles(pool, false, scratch, out),
            WorkPartition::PerSplit(splits) => self.run_splits(pool, scratch, out, splits),
        }
    }

    /// Chooses the partition for the tiles in `scratch`.
    pub(super) fn choose_partition(
        &self,
        threads: usize,
        scratch: &AttentionScratch,
    ) -> WorkPartition {
        if threads == 1 || self.products() < ALONE_PRODUCTS {
            return WorkPartition::CallerOnly;
        }
        let tasks = scratch.tiles.len() * self.kv.shape().kv_heads;
        let splits = scratch
            .tiles
            .iter()
            .map(|tile| self.splits(&tile.rows).len());
        let splits = splits.max().unwrap_or(0);
        let partials = self.rows.len() * self.params.heads * splits * self.partial_len();
        let few = tasks < threads * TASKS_PER_WORKER;
        if few && splits > 1 && partials <= scratch.parts.len() {
            WorkPartition::PerSplit(splits)
        } else {
            WorkPartition::PerTile
        }
    }

    /// Runs one task per (query tile, KV head).
    fn run_tiles(
        &self,
        pool: &mut Pool,
        alone: bool,
        scratch: &mut AttentionScratch,
        out: &mut [f32],
    ) {
        let AttentionScratch {
            workspaces, tiles, ..
        } = scratch;
        let kv_heads = self.kv.shape().kv_heads;
        let out = DisjointSlice::new(out);
        pool.tasks_if(
            !alone,
            workspaces,
            tiles.len() * kv_heads,
            |workspace, task| {
                let (tile, head) = (&tiles[task / kv_heads], task % kv_heads);
                workspace.load_queries(self, tile, head);
                workspace.reset_merge();
                for split in self.splits(&tile.rows) {
                    workspace.compute_split(self, tile, head, (split, 1));
                    workspace.merge_computed(self, tile.rows.len() * self.group_size());
                }
                // SAFETY: no other task has this tile and head.
                unsafe { self.write_output(workspace, &tile.rows, head, &out) };
            },
        );
    }

    /// Runs one task per (query tile, KV head, KV split), and the merges as tasks of a second round.
    fn run_splits(
        &self,
        pool: &mut Pool,
        scratch: &mut AttentionScratch,
        out: &mut [f32],
        splits: usize,
    ) {
        let AttentionScratch {
            workspaces,
            tiles,
            parts,
            ..
        } = scratch;
        let (kv_heads, group) = (self.kv.shape().kv_heads, self.group_size());
        // Tasks are claimed in order, so a worker's next task is about this many splits ahead.
        let threads = pool.threads();
        let len = self.partial_len();
        // Range of the partial result of one query and KV split.
        let place = |row: usize, head: usize, split: usize| {
            let query = row * self.params.heads + head;
            (query * splits + split) * len..(query * splits + split + 1) * len
        };
        let partials = DisjointSlice::new(parts);
        pool.tasks(
            workspaces,
            tiles.len() * kv_heads * splits,
            |workspace, task| {
                let (tile, head) = (&tiles[task / splits / kv_heads], task / splits % kv_heads);
                let Some(split) = self.splits(&tile.rows).nth(task % splits) else {
                    return;
                };
                workspace.load_queries(self, tile, head);
                workspace.compute_split(self, tile, head, (split, threads));
                for query in 0..tile.rows.len() * group {
                    let (row, head) = (
                        tile.rows.start + query / group,
                        head * group + query % group,
                    );
                    // SAFETY: no other task has this tile, head and split.
                    workspace.store_partial(query, unsafe {
                        partials.part(place(row, head, task % splits))
                    });
                }
            },
        );
        let (partials, out) = (&*parts, DisjointSlice::new(out));
        pool.tasks(workspaces, tiles.len() * kv_heads, |workspace, task| {
            let (tile, head) = (&tiles[task / kv_heads].rows, task % kv_heads);
            workspace.reset_merge();
            for query in 0..tile.len() * group {
                let (row, head) = (tile.start + query / group, head * group + query % group);
                for split in 0..self.splits(tile).len() {
                    workspace.merge_stored(self, query, &partials[place(row, head, split)]);
                }
            }
            // SAFETY: no other task has this tile and head.
            unsafe { self.write_output(workspace, tile, head, &out) };
        });
    }

    /// Writes the merged results of a workspace.
    ///
    /// # Safety
    /// No other worker writes this tile's rows of this head at the same time.
    unsafe fn write_output(
        &self,
        workspace: &AttentionWorkspace,
        tile: &Range<usize>,
        head: usize,
        out: &DisjointSlice<'_, f32>,
    ) {
        let group = self.group_size();
        let sinks = self.params.sinks;
        let sinks = sinks.map(|sinks| &sinks[head * group..(head + 1) * group]);
        for row in tile.clone() {
            // SAFETY: guaranteed by the caller.
            let out = unsafe { out.part(self.query_range(row, head)) };
            let first = (row - tile.start) * group;
            let merged = workspace.merged();
            merged.write_heads(first, sinks, out, self.head_dim());
        }
    }

    /// Cuts runs of consecutive rows into query tiles.
    pub(super) fn cut_query_tiles(&self, scratch: &mut AttentionScratch) {
        let few_max = (TILE_QUERIES / self.group_size()).max(1);
        let (many_min, many_max) = self.amx_tile_rows(scratch.bounds());
        scratch.tiles.clear();
        let mut start = 0;
        while start < self.rows.len() {
            let end = self.run_end(start);
            let use_amx = end - start >= many_min;
            let rows_max = if use_amx { many_max } else { few_max };
            while start < end {
                let rows = start..(start + rows_max).min(end);
                start = rows.end;
                scratch.tiles.push(QueryTile { rows, use_amx });
            }
        }
    }

    /// The number of rows from which a run uses AMX, and the rows of a tile: more rows share packed keys, fewer
    /// rows make more tasks.
    #[cfg(target_arch = "x86_64")]
    fn amx_tile_rows(&self, bounds: &AttentionBounds) -> (usize, usize) {
        use super::amx::{AMX_ROWS_MIN, PAIR_QUERIES, QUERIES_MAX};
        if !bounds.uses_amx() {
            return (usize::MAX, 0);
        }
        let tasks = bounds.threads * TASKS_PER_WORKER;
        let queries = self.rows.len() * self.params.heads / tasks;
        let queries = queries.clamp(PAIR_QUERIES, QUERIES_MAX) / PAIR_QUERIES * PAIR_QUERIES;
        let least = AMX_ROWS_MIN.max(PAIR_QUERIES.div_ceil(self.group_size()));
        (least, (queries / self.group_size()).max(1))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn amx_tile_rows(&self, _: &AttentionBounds) -> (usize, usize) {
        (usize::MAX, 0)
    }

    /// The end of the run of one sequence that begins with row `start`: consecutive positions, with as many visible ones as
    /// before or one more.
    fn run_end(&self, start: usize) -> usize {
        let follows = |pair: &&[QueryRow]| {
            let more = pair[1].end.wrapping_sub(pair[0].end);
            pair[1].position == pair[0].position + 1 && more <= 1 && pair[1].pages == pair[0].pages
        };
        start + 1 + self.rows[start..].windows(2).take_while(follows).count()
    }
}
