//! Prints the rate of attention over a whole picture, dense and paged, in turn.
//!
//! `cargo bench -p kernels --bench dense`. The shape is that of so400m for 896 x 896 pixels: 16 heads of 72, 4096 rows, 256
//! queries at a time. `MILLRACE_ISA` selects one level. Arguments for another shape: `heads=N`, `head_dim=N`, `rows=N`,
//! `queries=N`, `rounds=N`.
#![allow(clippy::print_stdout)] // A bench reports by printing.

use kernels::{
    AttentionBounds, AttentionParams, AttentionScratch, DenseAttention, DenseShape, DenseSpan,
    ISA_VARIABLE, Isa, KvCache, KvKind, KvShape, KvSlot, Pool, QueryRow, attend,
};

const PAGE_ROWS: usize = 256;

/// Sizes of a picture.
struct Shape {
    heads: usize,
    head_dim: usize,
    rows: usize,
    queries: usize,
    rounds: usize,
}

fn main() {
    let mut shape = Shape {
        heads: 16,
        head_dim: 72,
        rows: 4096,
        queries: 256,
        rounds: 5,
    };
    for arg in std::env::args().skip(1).filter(|arg| arg != "--bench") {
        let (name, value) = arg.split_once('=').expect("NAME=N");
        let value = value.parse().expect("a number");
        match name {
            "heads" => shape.heads = value,
            "head_dim" => shape.head_dim = value,
            "rows" => shape.rows = value,
            "queries" => shape.queries = value,
            "rounds" => shape.rounds = value,
            other => panic!("{other}: not an argument"),
        }
    }
    let chosen = std::env::var_os(ISA_VARIABLE).map(|_| Isa::detect());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for isa in Isa::available().filter(|isa| chosen.map_or(*isa != Isa::scalar(), |c| c == *isa)) {
        for threads in [1, threads] {
            compare(&shape, isa, threads);
        }
    }
}

/// The best round of each side, in turn: other load only slows a round.
fn compare(shape: &Shape, isa: Isa, threads: usize) {
    let pool = &mut Pool::new(threads);
    let width = shape.heads * shape.head_dim;
    let (keys, values) = (noise(shape.rows * width, 1), noise(shape.rows * width, 2));
    let q = noise(shape.queries * width, 3);
    let mut out = vec![0.0; q.len()];
    let mut dense = DenseAttention::new(DenseShape {
        heads: shape.heads,
        head_dim: shape.head_dim,
        rows_max: shape.rows,
        queries_max: shape.queries,
        threads,
        isa,
    });
    dense.begin(shape.rows);
    let spans = [DenseSpan {
        queries: 0..shape.queries,
        keys: 0..shape.rows,
    }];
    let scale = (shape.head_dim as f32).powf(-0.5);
    let mut paged = Paged::new(shape, isa, pool, (&keys, &values));
    let (mut stores, mut rates) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..=shape.rounds {
        stores.push(seconds(|| dense.store(pool, 0..shape.rows, &keys, &values)));
        rates[0].push(seconds(|| {
            dense.attend(pool, &spans, scale, &q, &mut out);
        }));
        rates[1].push(seconds(|| paged.attend(pool, (scale, &q), &mut out)));
    }
    let operations = (4 * shape.rows * shape.queries * width) as f64;
    let [dense, paged] = rates.map(|seconds| operations / best(&seconds) / 1e9);
    println!(
        "{isa} {threads} threads, {} heads of {}, {} queries to {} keys: dense {dense:.0} GFLOP/s, paged {paged:.0}, ratio {:.2}; \
         storing all keys {:.1} ms",
        shape.heads,
        shape.head_dim,
        shape.queries,
        shape.rows,
        dense / paged,
        best(&stores) * 1e3
    );
}

/// The attention of text over the same keys.
struct Paged {
    isa: Isa,
    kv: KvCache,
    scratch: AttentionScratch,
    rows: Vec<QueryRow>,
    tables: Vec<u32>,
    heads: usize,
}

impl Paged {
    fn new(shape: &Shape, isa: Isa, pool: &mut Pool, (keys, values): (&[f32], &[f32])) -> Self {
        let pages = shape.rows.div_ceil(PAGE_ROWS);
        let (heads, head_dim) = (shape.heads, shape.head_dim);
        let shape_of_cache = KvShape {
            layers: 1,
            pages,
            page_tokens: PAGE_ROWS,
            kv_heads: heads,
            head_dim,
            kind: KvKind::F16,
        };
        let mut kv = KvCache::new(shape_of_cache).expect("room for a bench");
        let slots: Vec<KvSlot> = (0..shape.rows)
            .map(|at| KvSlot {
                page: (at / PAGE_ROWS) as u32,
                slot: at % PAGE_ROWS,
            })
            .collect();
        kv.store_rows(pool, 0, &slots, keys, values);
        let row = |position| QueryRow {
            position,
            end: shape.rows,
            pages: 0..pages,
        };
        Self {
            isa,
            kv,
            scratch: AttentionScratch::new(AttentionBounds {
                threads: pool.threads(),
                heads,
                kv_heads: heads,
                head_dim,
                rows_max: shape.queries,
                context_max: shape.rows,
                kind: KvKind::F16,
                isa,
            }),
            rows: (0..shape.queries).map(row).collect(),
            tables: (0..pages as u32).collect(),
            heads,
        }
    }

    fn attend(&mut self, pool: &mut Pool, (scale, q): (f32, &[f32]), out: &mut [f32]) {
        let params = AttentionParams {
            heads: self.heads,
            scale,
            softcap: None,
            window: None,
            sinks: None,
        };
        attend(
            self.isa,
            pool,
            &mut self.scratch,
            &self.kv,
            0,
            &params,
            &self.rows,
            &self.tables,
            q,
            out,
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn seconds(work: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn best(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

fn noise(n: usize, seed: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i + seed * 577) * 7919 % 10_007) as f32 / 5003.5 - 1.0)
        .collect()
}
