//! Prints the speed of matmuls beside the read bandwidth of the machine: `cargo bench -p kernels --bench
//! matmul`.
//!
//! For each tensor format and number of rows: the median time of a matmul, bytes of packed weights read per
//! second, operations (two per product) per second, the bytes as a share of the read bandwidth measured in the
//! same run over as many bytes; operations per second in the fastest call, which on a busy machine shows
//! what the kernel can do, and their share of the int8 products that registers allow, measured beside. Arguments: formats by name (default: a selection), `threads=N`, `rows=1,8`, `mib=N`
//! (weights per format), `shape=ROWSxCOLS`, `rounds=N`. `MILLRACE_ISA` selects the level.
#![allow(missing_docs, clippy::print_stdout, reason = "a program that prints")]

use kernels::probe::{Arithmetic, arithmetic};
use kernels::{Activations, Format, Isa, Matrix, Pool, matmul, quantize};
use std::hint::black_box;
use std::time::Instant;

/// Timed rounds over all matrices of a format, and of the read bandwidth.
const ROUNDS: usize = 5;
/// Rounds of int8 products in a timed call: some 60 microseconds.
const PEAK_ROUNDS: u64 = 40_000;
/// Timed calls for the speed of int8 products.
const PEAK_CALLS: usize = 50;

fn main() {
    let options = BenchOptions::from_args();
    let isa = Isa::from_env().unwrap_or_else(|error| panic!("{error}"));
    let mut pool = Pool::new(options.threads);
    let (rows, cols) = options.shape;
    println!(
        "{isa}, {} threads, {rows} x {cols}, {} MiB each",
        options.threads, options.mib
    );
    let bandwidth = read_bandwidth(&mut pool, options.mib << 20);
    println!("read bandwidth {:.1} GB/s", bandwidth / 1e9);
    println!(
        "{:>6} {:>5} {:>9} {:>8} {:>9} {:>6} {:>9} {:>6}",
        "format", "rows", "us", "GB/s", "GOP/s", "bus", "best", "int8"
    );
    for &format in &options.formats {
        let (matrices, weights_per_us) = pack(isa, &mut pool, format, &options);
        println!(
            "{:>6} packed, {weights_per_us:.0} weights/us",
            format!("{format:?}")
        );
        for &batch in &options.batches {
            let mut peak = int8_peak(isa, &mut pool);
            let (seconds, best) = time(isa, &mut pool, &matrices, (batch, options.rounds));
            peak = peak.max(int8_peak(isa, &mut pool));
            let bytes = matrices[0].bytes() as f64 / seconds;
            let operations = 2e-9 * (rows * cols * batch) as f64;
            println!(
                "{:>6} {batch:>5} {:>9.1} {:>7.2} {:>8.1} {:>4.0}% {:>10.1} {:>5.1}%",
                format!("{format:?}"),
                seconds * 1e6,
                bytes / 1e9,
                operations / seconds,
                100.0 * bytes / bandwidth,
                operations / best,
                100.0 * operations / best / peak,
            );
        }
    }
}

struct BenchOptions {
    formats: Vec<Format>,
    batches: Vec<usize>,
    threads: usize,
    mib: usize,
    shape: (usize, usize),
    rounds: usize,
}

impl BenchOptions {
    fn from_args() -> Self {
        use Format::{BF16, F16, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0};
        let mut options = Self {
            formats: Vec::new(),
            batches: vec![1, 8, 32, 512],
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            mib: 256,
            shape: (8192, 2048),
            rounds: ROUNDS,
        };
        for arg in std::env::args().skip(1).filter(|arg| arg != "--bench") {
            let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text}: a number"));
            match arg.split_once('=') {
                Some(("threads", n)) => options.threads = number(n),
                Some(("mib", n)) => options.mib = number(n),
                Some(("rounds", n)) => options.rounds = number(n),
                Some(("rows", list)) => options.batches = list.split(',').map(number).collect(),
                Some(("shape", shape)) => {
                    let (rows, cols) = shape.split_once('x').expect("shape=ROWSxCOLS");
                    options.shape = (number(rows), number(cols));
                }
                _ => options.formats.push(format_named(&arg)),
            }
        }
        if options.formats.is_empty() {
            options.formats = vec![Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, BF16, F16];
        }
        options
    }
}

fn format_named(name: &str) -> Format {
    use Format::*;
    [
        F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS,
        MXFP4,
    ]
    .into_iter()
    .find(|format| format!("{format:?}").eq_ignore_ascii_case(name))
    .unwrap_or_else(|| panic!("no format {name}"))
}

/// Packs as many equal matrices as make up the requested bytes, so that none stays in a cache; returns the
/// packing speed in weights per microsecond, too.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn pack(isa: Isa, pool: &mut Pool, format: Format, options: &BenchOptions) -> (Vec<Matrix>, f64) {
    let (rows, cols) = options.shape;
    let weights: Vec<f32> = (0..rows * cols)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761) as i32 as f32 * 1e-11)
        .collect();
    let raw = quantize(format, &weights);
    let count = (options.mib << 20).div_ceil(raw.len()).max(1);
    let mut fastest_us = f64::INFINITY;
    let mut packed = |_| {
        let start = Instant::now();
        let matrix = Matrix::pack(isa, pool, format, rows, cols, &raw).expect("the sizes agree");
        fastest_us = fastest_us.min(start.elapsed().as_secs_f64() * 1e6);
        matrix
    };
    let matrices = (0..count).map(&mut packed).collect();
    (matrices, (rows * cols) as f64 / fastest_us)
}

/// Seconds of one matmul of `batch` rows in `rounds` rounds over the matrices: median and minimum.
fn time(
    isa: Isa,
    pool: &mut Pool,
    matrices: &[Matrix],
    (batch, rounds): (usize, usize),
) -> (f64, f64) {
    let (rows, cols) = (matrices[0].rows(), matrices[0].cols());
    let x: Vec<f32> = (0..batch * cols).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut activations = Activations::new(batch, cols);
    activations.load(isa, pool, &x, batch, cols);
    let mut out = kernels::ZeroedBuffer::new(batch * rows);
    let some = if batch > 64 {
        &matrices[..matrices.len().min(4)]
    } else {
        matrices
    };
    let mut next = some.iter().cycle();
    spread(some.len() * rounds, || {
        matmul(pool, next.next().expect("a cycle"), &activations, &mut out);
        black_box(&mut out);
    })
}

/// Billions of operations per second of all workers together, with int8 products of registers: the fastest call.
fn int8_peak(isa: Isa, pool: &mut Pool) -> f64 {
    let operations = arithmetic(isa, Arithmetic::Int8, 1) * PEAK_ROUNDS * pool.threads() as u64;
    let (_, best) = spread(PEAK_CALLS, || {
        pool.run(|_| {
            arithmetic(isa, Arithmetic::Int8, PEAK_ROUNDS);
        });
    });
    1e-9 * operations as f64 / best
}

/// Bytes per second that all workers read together.
fn read_bandwidth(pool: &mut Pool, bytes: usize) -> f64 {
    let words = vec![1u64; bytes / 8];
    let sum = |part: &[u64]| {
        let mut sums = [0u64; 32];
        for chunk in part.chunks_exact(32) {
            sums.iter_mut()
                .zip(chunk)
                .for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        black_box(sums);
    };
    bytes as f64
        / spread(ROUNDS, || {
            pool.ranges(words.len(), 32, |range| sum(&words[range]));
        })
        .0
}

/// Seconds of `work`: the median of `times` runs and the minimum.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn spread(times: usize, mut work: impl FnMut()) -> (f64, f64) {
    work();
    let mut seconds: Vec<f64> = (0..times)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    (seconds[times / 2], seconds[0])
}
