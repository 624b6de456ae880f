//! Prints the time of attention per row, of row-wise operations, and of the pool's barrier.
//!
//! `cargo bench -p kernels --bench attention`. The shape is Llama-3.2-1B's: 32 heads, 8 KV heads, dim 64.
//! `MILLRACE_ISA` selects one level. Arguments for another shape: `heads=N`, `kv_heads=N`, `head_dim=N`,
//! `rows=N` of a prompt at once, `window=N`, `context=N` (the only one).
#![allow(clippy::print_stdout)] // A bench reports by printing.

use kernels::{
    AttentionBounds, AttentionParams, AttentionScratch, ISA_VARIABLE, Isa, KvCache, KvKind,
    KvShape, KvSlot, Pool, QueryRow, Window, attend, rms_norm, silu_mul, softcap,
};
use std::time::Duration;

/// The page size of the engine's default settings.
const PAGE_TOKENS: usize = 32;
const CONTEXT_MAX: usize = 16_384;
const LAYERS: usize = 4;
/// The first context fits the L2 cache, which isolates the time of arithmetic.
const CONTEXTS: [usize; 4] = [128, 512, 4096, CONTEXT_MAX];

/// Options of a run.
struct BenchOptions {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Rows of a prompt at once.
    rows: usize,
    window: Option<usize>,
    contexts: Vec<usize>,
}

impl BenchOptions {
    fn from_args() -> Self {
        let mut options = Self {
            heads: 32,
            kv_heads: 8,
            head_dim: 64,
            rows: 512,
            window: None,
            contexts: CONTEXTS.to_vec(),
        };
        for arg in std::env::args().skip(1).filter(|arg| arg != "--bench") {
            let (name, value) = arg.split_once('=').expect("NAME=N");
            let value = value.parse().expect("a number");
            match name {
                "heads" => options.heads = value,
                "kv_heads" => options.kv_heads = value,
                "head_dim" => options.head_dim = value,
                "rows" => options.rows = value,
                "window" => options.window = Some(value),
                "context" => options.contexts = vec![value.min(CONTEXT_MAX)],
                other => panic!("{other}: not an argument"),
            }
        }
        options
    }
}

fn main() {
    let options = BenchOptions::from_args();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in 1..=threads {
        meeting(threads);
    }
    let chosen = std::env::var_os(ISA_VARIABLE).map(|_| Isa::detect());
    let levels = || Isa::available().filter(move |isa| chosen.is_none_or(|chosen| chosen == *isa));
    for isa in levels() {
        row_wise(isa);
    }
    for kind in KvKind::ALL {
        let kv = filled(&options, &mut Pool::new(threads), kind);
        for isa in levels() {
            for threads in 1..=threads {
                for context in options.contexts.iter().copied() {
                    decode(&options, isa, threads, &kv, context);
                    prefill(&options, isa, threads, &kv, context);
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn timed(runs: usize, mut work: impl FnMut()) -> Duration {
    work();
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = std::time::Instant::now();
        (0..runs).for_each(|_| work());
        best = best.min(start.elapsed() / runs as u32);
    }
    best
}

fn meeting(threads: usize) {
    let mut pool = Pool::new(threads);
    let time = timed(20_000, || {
        pool.run(|worker| {
            std::hint::black_box(worker);
        });
    });
    println!("pool: {threads} threads meet in {} ns", time.as_nanos());
}

/// One row of 8192 on one thread.
fn row_wise(isa: Isa) {
    const WIDTH: usize = 8192;
    let (y, weight, mut x) = (noise(WIDTH), noise(WIDTH), noise(WIDTH));
    let mut out = vec![0.0; WIDTH];
    let norm = timed(1000, || rms_norm(isa, &y, &weight, 1e-5, &mut out));
    let silu = timed(1000, || silu_mul(isa, &mut x, &y));
    let mut x = noise(WIDTH);
    let cap = timed(1000, || softcap(isa, &mut x, 30.0));
    let ns = |time: Duration| time.as_nanos();
    println!(
        "{isa} row of {WIDTH}: rms_norm {} ns, silu_mul {} ns, softcap {} ns",
        ns(norm),
        ns(silu),
        ns(cap)
    );
}

/// A cache with noise in all pages.
fn filled(options: &BenchOptions, pool: &mut Pool, kind: KvKind) -> KvCache {
    let shape = KvShape {
        layers: LAYERS,
        pages: CONTEXT_MAX / PAGE_TOKENS,
        page_tokens: PAGE_TOKENS,
        kv_heads: options.kv_heads,
        head_dim: options.head_dim,
        kind,
    };
    let mut kv = KvCache::new(shape).expect("room for a bench");
    let slots: Vec<KvSlot> = (0..CONTEXT_MAX)
        .map(|at| KvSlot {
            page: (at / PAGE_TOKENS) as u32,
            slot: at % PAGE_TOKENS,
        })
        .collect();
    let noise = noise(CONTEXT_MAX * options.kv_heads * options.head_dim);
    for layer in 0..LAYERS {
        kv.store_rows(pool, layer, &slots, &noise, &noise);
    }
    let rows = options.rows;
    let some = rows * options.kv_heads * options.head_dim;
    let time = timed(5, || {
        kv.store_rows(pool, 0, &slots[..rows], &noise[..some], &noise[..some]);
    });
    println!("{kind}, store {rows} rows: {} us", time.as_micros());
    kv
}

fn noise(n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| (i * 7919 % 10_007) as f32 / 5003.5 - 1.0)
        .collect()
}

/// One row at the end of `context` positions.
fn decode(options: &BenchOptions, isa: Isa, threads: usize, kv: &KvCache, context: usize) {
    let rows = [QueryRow {
        position: context - 1,
        end: context,
        pages: 0..CONTEXT_MAX / PAGE_TOKENS,
    }];
    let time = run(options, isa, threads, kv, &rows, 20);
    let bytes = kv.bytes() / (LAYERS * CONTEXT_MAX) * context;
    let kind = kv.shape().kind;
    let rate = bytes as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{kind} {isa} {threads} threads, decode at {context}: {} us ({rate:.1} GB/s)",
        time.as_micros()
    );
}

/// The last rows of `context` positions.
fn prefill(options: &BenchOptions, isa: Isa, threads: usize, kv: &KvCache, context: usize) {
    let count = options.rows;
    if context < count || isa == Isa::scalar() && context > count {
        return;
    }
    let rows: Vec<QueryRow> = (context - count..context)
        .map(|position| QueryRow {
            position,
            end: position + 1,
            pages: 0..CONTEXT_MAX / PAGE_TOKENS,
        })
        .collect();
    let time = run(options, isa, threads, kv, &rows, 1);
    let seen: usize = rows
        .iter()
        .map(|row| (row.position + 1).min(options.window.unwrap_or(CONTEXT_MAX)))
        .sum();
    let rate = (seen * options.heads * options.head_dim * 4) as f64 / time.as_secs_f64() / 1e9;
    let row = time.as_secs_f64() * 1e6 / count as f64;
    let kind = kv.shape().kind;
    println!(
        "{kind} {isa} {threads} threads, prefill of {count} to {context}: {row:.1} us a row ({rate:.0} GFLOP/s)"
    );
}

fn run(
    options: &BenchOptions,
    isa: Isa,
    threads: usize,
    kv: &KvCache,
    rows: &[QueryRow],
    runs: usize,
) -> Duration {
    let mut pool = Pool::new(threads);
    let mut scratch = AttentionScratch::new(AttentionBounds {
        threads,
        heads: options.heads,
        kv_heads: options.kv_heads,
        head_dim: options.head_dim,
        rows_max: options.rows,
        context_max: CONTEXT_MAX,
        kind: kv.shape().kind,
        isa,
    });
    let params = AttentionParams {
        heads: options.heads,
        scale: (options.head_dim as f32).powf(-0.5),
        softcap: None,
        window: options.window.map(Window::last),
        sinks: None,
    };
    let tables: Vec<u32> = (0..(CONTEXT_MAX / PAGE_TOKENS) as u32).collect();
    let q = noise(rows.len() * options.heads * options.head_dim);
    let mut out = vec![0.0; q.len()];
    let mut layer = 0;
    timed(runs, || {
        layer = (layer + 1) % LAYERS;
        attend(
            isa,
            &mut pool,
            &mut scratch,
            kv,
            layer,
            &params,
            rows,
            &tables,
            &q,
            &mut out,
        );
    })
}
