//! How one call is spread over the pool.
#![allow(unsafe_code)] // Workers write disjoint parts of the output; each block says which.

use super::call::{Call, Tile};
use super::desk::Desk;
use super::params::{QueryRow, KV_SPLIT_SLOTS};
use super::scratch::{AttentionBounds, AttentionScratch, TASKS_PER_WORKER, TILE_QUERIES};
use crate::Pool;
use crate::pool::Disjoint;
use std::ops::Range;

/// Multiplications below which the caller works alone: about what a meeting of the threads costs.
const ALONE_PRODUCTS: usize = 1 << 15;

/// Who does what; the results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The caller does everything.
    Alone,
    /// A task is a tile and a kv head.
    Tiles,
    /// A task is a tile, a kv head and one of at most this many spans.
    Spans(usize),
}

impl Call<'_> {
    pub(super) fn check(&self, bounds: &AttentionBounds, out: usize) {
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
        assert!(fits, "the scratch has no room: {bounds:?}");
        let wanted = self.rows.len() * heads * shape.head_dim;
        assert!(
            self.q.len() == wanted && out == wanted,
            "q and out have {wanted}"
        );
        for row in self.rows {
            let pages = row.position / shape.page_tokens + 1;
            let whole = row.pages.len() >= pages && row.pages.end <= self.tables.len();
            assert!(whole, "{row:?} needs {pages} pages");
        }
    }

    /// Computes everything into `out`.
    pub(super) fn spread(&self, pool: &mut Pool, scratch: &mut AttentionScratch, out: &mut [f32]) {
        self.cut_tiles(scratch);
        match self.way(pool.threads(), scratch) {
            Way::Alone => self.by_tiles(pool, true, scratch, out),
            Way::Tiles => self.by_tiles(pool, false, scratch, out),
            Way::Spans(spans) => self.by_spans(pool, scratch, out, spans),
        }
    }

    /// How the work of the cut tiles is shared out.
    pub(super) fn way(&self, threads: usize, scratch: &AttentionScratch) -> Way {
        if threads == 1 || self.products() < ALONE_PRODUCTS {
            return Way::Alone;
        }
        let tasks = scratch.tiles.len() * self.kv.shape().kv_heads;
        let spans = scratch
            .tiles
            .iter()
            .map(|tile| self.spans(&tile.rows).len());
        let spans = spans.max().unwrap_or(0);
        let laid = self.rows.len() * self.params.heads * spans * self.laid_len();
        let few = tasks < threads * TASKS_PER_WORKER;
        if few && spans > 1 && laid <= scratch.parts.len() {
            Way::Spans(spans)
        } else {
            Way::Tiles
        }
    }

    /// Each (tile, kv head) is one task.
    fn by_tiles(
        &self,
        pool: &mut Pool,
        alone: bool,
        scratch: &mut AttentionScratch,
        out: &mut [f32],
    ) {
        let AttentionScratch { desks, tiles, .. } = scratch;
        let kv_heads = self.kv.shape().kv_heads;
        let out = Disjoint::new(out);
        pool.tasks_if(!alone, desks, tiles.len() * kv_heads, |desk, task| {
            let (tile, head) = (&tiles[task / kv_heads], task % kv_heads);
            desk.take(self, tile, head);
            desk.start_fold();
            for span in self.spans(&tile.rows) {
                desk.work(self, tile, head, (span, 1));
                desk.fold_worked(self, tile.rows.len() * self.group());
            }
            // SAFETY: no other task has this tile and head.
            unsafe { self.give(desk, &tile.rows, head, &out) };
        });
    }

    /// Each (tile, kv head, span) is one task, and the folds are tasks of a second round.
    fn by_spans(
        &self,
        pool: &mut Pool,
        scratch: &mut AttentionScratch,
        out: &mut [f32],
        spans: usize,
    ) {
        let AttentionScratch {
            desks,
            tiles,
            parts,
            ..
        } = scratch;
        let (kv_heads, group) = (self.kv.shape().kv_heads, self.group());
        // Tasks are taken in order, so a worker's next is about this far.
        let threads = pool.threads();
        let len = self.laid_len();
        // Where one query's spans are laid down.
        let place = |row: usize, head: usize, span: usize| {
            let query = row * self.params.heads + head;
            (query * spans + span) * len..(query * spans + span + 1) * len
        };
        let laid = Disjoint::new(parts);
        pool.tasks(desks, tiles.len() * kv_heads * spans, |desk, task| {
            let (tile, head) = (&tiles[task / spans / kv_heads], task / spans % kv_heads);
            let Some(span) = self.spans(&tile.rows).nth(task % spans) else {
                return;
            };
            desk.take(self, tile, head);
            desk.work(self, tile, head, (span, threads));
            for query in 0..tile.rows.len() * group {
                let (row, head) = (
                    tile.rows.start + query / group,
                    head * group + query % group,
                );
                // SAFETY: no other task has this tile, head and span.
                desk.lay(query, unsafe { laid.part(place(row, head, task % spans)) });
            }
        });
        let (laid, out) = (&*parts, Disjoint::new(out));
        pool.tasks(desks, tiles.len() * kv_heads, |desk, task| {
            let (tile, head) = (&tiles[task / kv_heads].rows, task % kv_heads);
            desk.start_fold();
            for query in 0..tile.len() * group {
                let (row, head) = (tile.start + query / group, head * group + query % group);
                for span in 0..self.spans(tile).len() {
                    desk.fold_laid(self, query, &laid[place(row, head, span)]);
                }
            }
            // SAFETY: no other task has this tile and head.
            unsafe { self.give(desk, tile, head, &out) };
        });
    }

    /// Writes what a desk folded.
    ///
    /// # Safety
    /// No other worker writes this tile's rows of this head at the same time.
    unsafe fn give(&self, desk: &Desk, tile: &Range<usize>, head: usize, out: &Disjoint<'_, f32>) {
        for row in tile.clone() {
            // SAFETY: the caller's promise.
            let out = unsafe { out.part(self.place(row, head)) };
            desk.give((row - tile.start) * self.group(), out, self.head_dim());
        }
    }

    /// Cuts runs of consecutive rows into as many as share a desk.
    pub(super) fn cut_tiles(&self, scratch: &mut AttentionScratch) {
        let few_max = (TILE_QUERIES / self.group()).max(1);
        let (many_min, many_max) = self.many_rows(scratch.bounds());
        scratch.tiles.clear();
        let mut start = 0;
        while start < self.rows.len() {
            let end = self.run_end(start);
            let many = end - start >= many_min;
            let rows_max = if many { many_max } else { few_max };
            while start < end {
                let rows = start..(start + rows_max).min(end);
                start = rows.end;
                scratch.tiles.push(Tile { rows, many });
            }
        }
    }

    /// From how many rows on a run is taken with the processor's tiles, and how many at a time: more share
    /// what is taken apart, fewer make tasks for everybody.
    #[cfg(target_arch = "x86_64")]
    fn many_rows(&self, bounds: &AttentionBounds) -> (usize, usize) {
        use super::tiled::{PAIR_QUERIES, QUERIES_MAX, ROWS_MIN};
        if !bounds.tiled() {
            return (usize::MAX, 0);
        }
        let tasks = bounds.threads * TASKS_PER_WORKER;
        let queries = self.rows.len() * self.params.heads / tasks;
        let queries = queries.clamp(PAIR_QUERIES, QUERIES_MAX) / PAIR_QUERIES * PAIR_QUERIES;
        let least = ROWS_MIN.max(PAIR_QUERIES.div_ceil(self.group()));
        (least, (queries / self.group()).max(1))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn many_rows(&self, _: &AttentionBounds) -> (usize, usize) {
        (usize::MAX, 0)
    }

    /// The end of the run of consecutive positions of one sequence that begins with a row.
    fn run_end(&self, start: usize) -> usize {
        let follows = |pair: &&[QueryRow]| {
            pair[1].position == pair[0].position + 1 && pair[1].pages == pair[0].pages
        };
        start + 1 + self.rows[start..].windows(2).take_while(follows).count()
    }
}
