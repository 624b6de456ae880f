//! The run: limits, load, then all tests, round after round.

use super::cost::Cost;
use super::desk::{CHUNK_ROWS, Desk};
use super::options::{SpeedError, Wish};
use super::report::{Memory, Report, Row};
use super::rows::Rows;
use super::test::Test;
use crate::Summary;
use crate::clock::timed;
use crate::limits::Limits;
use crate::process::Process;
use kernels::{Isa, KvKind, Pool};
use model::config::Config;
use model::gguf::Gguf;
use model::{LoadOptions, Model, PAGE_TOKENS, PAGES_MAX};

/// Measures the machine, then the model in `gguf` under every test of `wish`. Each round runs all
/// tests once, so that a machine that drifts does so for all of them.
///
/// # Errors
/// A wish out of bounds, a file that does not run here, a system that gives no memory or threads.
pub fn measure(gguf: Gguf, isa: Isa, wish: &Wish) -> Result<Report, SpeedError> {
    let config = Config::from_gguf(&gguf, None).map_err(SpeedError::of)?;
    let architecture = config.architecture.name();
    let cost = Cost::of(&gguf, config, wish.kv);
    let rows = Rows::of(wish, &cost)?;
    let mut pool = Pool::try_new(wish.threads).map_err(SpeedError::of)?;
    let threads = pool.threads();
    let limits = Limits::measure(isa, &mut pool, cost.weight_bytes).map_err(SpeedError::of)?;
    let before = Process::Own.resident_bytes();
    let options = options(&rows, wish.kv);
    let (model, load) = timed(|| Model::load(gguf, isa, pool, &options, &mut |_| {}));
    let model = model.map_err(SpeedError::of)?;
    let bytes = model.bytes();
    let loaded = Process::Own.resident_bytes();
    let mut desk = Desk::new(model, &rows)?;
    let seconds = rounds(&mut desk, &rows, wish.rounds)?;
    let measured = rows.tests.iter().zip(seconds);
    Ok(Report {
        architecture,
        isa: isa.name(),
        threads,
        kv: wish.kv.name(),
        rounds: wish.rounds,
        quantized: cost.quantized,
        weight_bytes: cost.weight_bytes,
        limits,
        load_ms: load.as_secs_f64() * 1e3,
        memory: Memory {
            weights: bytes.weights as u64,
            kv: bytes.kv as u64,
            scratch: bytes.scratch as u64,
            resident_before_load: before,
            resident_after_load: loaded,
            resident: Process::Own.resident_bytes(),
        },
        rows: measured
            .map(|(&test, mut seconds)| row(test, &cost, &limits, &mut seconds))
            .collect(),
        left_out: rows.left_out,
    })
}

/// As much memory as the largest test needs, and no more.
fn options(rows: &Rows, kv: KvKind) -> LoadOptions {
    let batch = rows.most(Test::batch);
    LoadOptions {
        context_max: Some(rows.most(Test::positions)),
        page_tokens: PAGE_TOKENS,
        pages: rows
            .most(|test| test.batch() * test.pages_each())
            .min(PAGES_MAX),
        kv,
        rows_max: rows.most(Test::positions).min(CHUNK_ROWS).max(batch),
        logit_rows_max: batch,
    }
}

/// Seconds of each test, one per round.
fn rounds(desk: &mut Desk, rows: &Rows, rounds: usize) -> Result<Vec<Vec<f64>>, SpeedError> {
    let mut seconds = vec![Vec::with_capacity(rounds); rows.tests.len()];
    for _ in 0..rounds {
        for (&test, seconds) in rows.tests.iter().zip(&mut seconds) {
            desk.warm(test)?;
            let (done, time) = timed(|| desk.run(test));
            done?;
            seconds.push(time.as_secs_f64());
        }
    }
    Ok(seconds)
}

fn row(test: Test, cost: &Cost, limits: &Limits, seconds: &mut [f64]) -> Row {
    let work = cost.work(test);
    let time = Summary::of(seconds);
    let ops_max = if cost.quantized {
        limits.int8_ops
    } else {
        limits.f32_ops
    };
    let (bytes, ops) = (work.bytes / time.p50, work.ops / time.p50);
    Row {
        test: test.to_string(),
        tokens: test.tokens(),
        tokens_per_s: test.tokens() as f64 / time.p50,
        tokens_per_s_least: test.tokens() as f64 / time.max,
        tokens_per_s_most: test.tokens() as f64 / time.min,
        bytes_per_s: bytes,
        bandwidth_share: bytes / limits.read(),
        ops_per_s: ops,
        peak_share: ops / ops_max,
    }
}
