//! After warm-up the pool, attention and the cache allocate nothing.

use kernels::{
    AttentionBounds, AttentionParams, AttentionScratch, Isa, KvCache, KvKind, KvShape, KvSlot,
    Pool, QueryRow, attend,
};
use std::sync::atomic::{AtomicU64, Ordering};
use testing::heap::count_thread_in;

/// Allocations of the test's thread and of the pool's.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

const PAGES: usize = 128;
const HEADS: usize = 8;
const HEAD_DIM: usize = 32;

struct World {
    isa: Isa,
    kv: KvCache,
    pool: Pool,
    scratch: AttentionScratch,
    tables: Vec<u32>,
    q: Vec<f32>,
    out: Vec<f32>,
}

impl World {
    fn new(isa: Isa, threads: usize, kind: KvKind) -> Self {
        let shape = KvShape {
            layers: 1,
            pages: PAGES,
            page_tokens: 16,
            kv_heads: 1,
            head_dim: HEAD_DIM,
            kind,
        };
        let bounds = AttentionBounds {
            threads,
            heads: HEADS,
            kv_heads: 1,
            head_dim: HEAD_DIM,
            rows_max: 256,
            context_max: PAGES * 16,
            kind,
            isa,
        };
        Self {
            isa,
            kv: KvCache::new(shape).expect("small"),
            pool: Pool::new(threads),
            scratch: AttentionScratch::new(bounds),
            tables: (0..PAGES as u32).collect(),
            q: vec![0.5; 256 * HEADS * HEAD_DIM],
            out: vec![0.0; 256 * HEADS * HEAD_DIM],
        }
    }

    /// The kernels of one model step: stores, attention, and row-wise operations.
    fn step(&mut self, rows: &[QueryRow], slots: &[KvSlot]) {
        let stored = &self.q[..slots.len() * HEAD_DIM];
        self.kv.store_rows(&mut self.pool, 0, slots, stored, stored);
        self.kv.copy_page(0, 1);
        let n = rows.len() * HEADS * HEAD_DIM;
        let params = AttentionParams {
            heads: HEADS,
            scale: 0.1,
            softcap: Some(9.0),
            window: None,
            sinks: None,
        };
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let (tables, q, out) = (&self.tables, &self.q[..n], &mut self.out[..n]);
        attend(
            self.isa, pool, scratch, &self.kv, 0, &params, rows, tables, q, out,
        );
        pool.rows(out, HEAD_DIM, |_, row| {
            kernels::softcap(Isa::best(), row, 3.0);
        });
        pool.ranges(1000, 16, |range| assert!(!range.is_empty()));
    }
}

#[test]
fn attention_step_allocates_nothing() {
    let kinds = KvKind::ALL.into_iter().cycle();
    let plans = [1, 2, 4].into_iter().zip(kinds);
    let levels = [Isa::best(), Isa::fastest()];
    for (isa, (threads, kind)) in levels
        .into_iter()
        .flat_map(|isa| plans.clone().map(move |plan| (isa, plan)))
    {
        let mut world = World::new(isa, threads, kind);
        let row = |position| QueryRow {
            position,
            end: position + 1,
            pages: 0..PAGES,
        };
        let prefill: Vec<QueryRow> = (0..256).map(row).collect();
        let decode = [row(2000), row(3)];
        let slots: Vec<KvSlot> = (0..256)
            .map(|at| KvSlot {
                page: at / 16,
                slot: at as usize % 16,
            })
            .collect();
        // Warm-up: the standard library initializes state when a thread first sleeps on a lock.
        world.step(&prefill, &slots);
        world.pool.run(|_| count_thread_in(&ALLOCATIONS));
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..50 {
            world.step(&prefill, &slots);
            world.step(&decode, &slots[..2]);
        }
        assert_eq!(
            ALLOCATIONS.load(Ordering::Relaxed),
            before,
            "{isa}, {kind}, {threads} threads"
        );
    }
}
