//! Prints the time of a recurrent layer's convolution and scan per token, in a prompt and for one token.
//!
//! `cargo bench -p kernels --bench recurrent`. The shapes are layers of Qwen 3.5 9B and of Mamba-2 2.7B. `MILLRACE_ISA`
//! selects one level. Arguments: `rows=N` of a prompt at once, `threads=N`.
#![allow(clippy::print_stdout)] // A bench reports by printing.

use kernels::{
    Convolution, ISA_VARIABLE, Isa, Pool, ScanPlan, ScanRows, ScanRule, ScanShape, StateShape,
    StateStore, causal_conv, scan,
};
use std::time::{Duration, Instant};

const TAPS: usize = 4;
/// Repetitions, of which the fastest counts.
const ROUNDS: usize = 7;

const DELTA: ScanShape = ScanShape {
    key_heads: 16,
    value_heads: 32,
    key_dim: 128,
    value_dim: 128,
    grouped: false,
    rule: ScanRule::Delta,
};
const LINEAR: ScanShape = ScanShape {
    key_heads: 1,
    value_heads: 80,
    key_dim: 128,
    value_dim: 64,
    grouped: true,
    rule: ScanRule::Linear,
};

fn main() {
    let (mut rows, mut threads) = (512, 1);
    for arg in std::env::args().skip(1).filter(|arg| arg != "--bench") {
        let (name, value) = arg.split_once('=').expect("NAME=N");
        let value = value.parse().expect("a number");
        match name {
            "rows" => rows = value,
            "threads" => threads = value,
            other => panic!("{other}: not an argument"),
        }
    }
    for isa in levels() {
        for (name, shape) in [("delta", DELTA), ("mamba-2", LINEAR)] {
            for rows in [rows, 1] {
                let (convolved, scanned) = time(isa, &shape, rows, threads);
                let micros = |time: Duration| time.as_secs_f64() * 1e6 / rows as f64;
                // A state entry is multiplied by a decay and by two or three vectors.
                let products = match shape.rule {
                    ScanRule::Delta => 4,
                    ScanRule::Linear => 3,
                };
                let operations = (products * shape.state_len() * rows) as f64;
                println!(
                    "{isa} {name:8} {rows:4} rows, {threads} threads: convolution {:7.2} us, scan {:7.2} us a token, \
                     {:5.1} products/ns",
                    micros(convolved),
                    micros(scanned),
                    operations / scanned.as_secs_f64() / 1e9
                );
            }
        }
    }
}

/// The level that was asked for, or all.
fn levels() -> Vec<Isa> {
    match std::env::var_os(ISA_VARIABLE) {
        Some(_) => vec![Isa::detect()],
        None => Isa::available().collect(),
    }
}

/// The shortest times of a convolution and of a scan.
#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn time(isa: Isa, shape: &ScanShape, rows: usize, threads: usize) -> (Duration, Duration) {
    let mut pool = Pool::new(threads);
    let mut store = StateStore::new(
        StateShape {
            layers: 1,
            conv_rows: TAPS - 1,
            conv_cols: shape.cols(),
            scan_len: shape.state_len(),
        },
        2,
    );
    let mut plan = ScanPlan::new(2, rows);
    plan.push(rows, None, std::iter::once((rows, 0)))
        .expect("a plan");
    let x = noise(rows * shape.cols(), 0.1);
    let taps = noise(TAPS * shape.cols(), 0.5);
    let gates: Vec<f32> = noise(rows * 2 * shape.value_heads, 1.0)
        .iter()
        .map(|gate| gate.abs() * 0.9)
        .collect();
    let (mut mixed, mut out) = (vec![0.0; x.len()], vec![0.0; rows * shape.value_cols()]);
    let (mut convolved, mut scanned) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let convolution = Convolution {
            taps: &taps,
            bias: None,
            silu: true,
        };
        let states = (&mut store, 0);
        causal_conv(isa, &mut pool, &plan, states, convolution, &x, &mut mixed);
        convolved = convolved.min(start.elapsed());
        let input = ScanRows {
            mixed: &mixed,
            gates: &gates,
        };
        let start = Instant::now();
        scan(
            isa,
            &mut pool,
            &plan,
            (&mut store, 0),
            shape,
            input,
            &mut out,
        );
        scanned = scanned.min(start.elapsed());
    }
    (convolved, scanned)
}

fn noise(len: usize, scale: f32) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * scale)
        .collect()
}
