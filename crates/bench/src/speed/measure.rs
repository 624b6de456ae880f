//! A measurement run: limits, load, then rounds of all tests.

use super::cost::ModelCost;
use super::model_runner::{CHUNK_TOKENS, ModelRunner, STATES_EACH};
use super::options::{SpeedError, SpeedOptions};
use super::report::{MemoryUse, SpeedReport, SpeedRow};
use super::speed_test::SpeedTest;
use super::test_plan::TestPlan;
use crate::Summary;
use crate::clock::timed;
use crate::limits::Limits;
use crate::process::Process;
use cpu::{LoadOptions, Model, PAGE_TOKENS, PAGES_MAX};
use kernels::{Isa, KvKind, Pool};
use weights::config::Config;
use weights::gguf::Gguf;

/// Measures the machine, then the model in `gguf` with all tests of `options`. Each round runs all tests once,
/// so that drift of the machine affects all tests.
///
/// # Errors
/// Options out of bounds, an unsupported file, or lack of memory or threads.
pub fn measure(gguf: Gguf, isa: Isa, options: &SpeedOptions) -> Result<SpeedReport, SpeedError> {
    let config = Config::from_gguf(&gguf, None).map_err(SpeedError::of)?;
    let architecture = config.architecture.name();
    let cost = ModelCost::of(&gguf, config, options.kv);
    let plan = TestPlan::of(options, &cost)?;
    let mut pool = Pool::try_new(options.threads).map_err(SpeedError::of)?;
    let threads = pool.threads();
    let limits = Limits::measure(isa, &mut pool, cost.weight_bytes).map_err(SpeedError::of)?;
    let before = Process::Own.resident_bytes();
    let load_options = load_options(&plan, options.kv);
    let (model, load) = timed(|| Model::load(gguf, isa, pool, &load_options, &mut |_| {}));
    let model = model.map_err(SpeedError::of)?;
    let bytes = model.bytes();
    let loaded = Process::Own.resident_bytes();
    let mut runner = ModelRunner::new(model, &plan)?;
    let seconds = run_rounds(&mut runner, &plan, options.rounds)?;
    let measured = plan.tests.iter().zip(seconds);
    Ok(SpeedReport {
        architecture,
        isa: isa.name(),
        threads,
        kv: options.kv.name(),
        rounds: options.rounds,
        quantized: cost.quantized,
        weight_bytes: cost.weight_bytes,
        limits,
        load_ms: load.as_secs_f64() * 1e3,
        memory: MemoryUse {
            weights: bytes.weights as u64,
            kv: (bytes.kv + bytes.states) as u64,
            scratch: bytes.scratch as u64,
            resident_before_load: before,
            resident_after_load: loaded,
            resident: Process::Own.resident_bytes(),
        },
        rows: measured
            .map(|(&test, mut seconds)| speed_row(test, &cost, &limits, &mut seconds))
            .collect(),
        left_out: plan.left_out,
    })
}

/// Options with just enough memory for the largest test.
fn load_options(plan: &TestPlan, kv: KvKind) -> LoadOptions {
    let batch = plan.max_of(SpeedTest::batch);
    LoadOptions {
        context_max: Some(plan.max_of(SpeedTest::positions)),
        page_tokens: PAGE_TOKENS,
        pages: plan
            .max_of(|test| test.batch() * test.pages_each())
            .min(PAGES_MAX),
        kv,
        states: STATES_EACH * batch,
        rows_max: plan
            .max_of(SpeedTest::positions)
            .min(CHUNK_TOKENS)
            .max(batch),
        logit_rows_max: batch,
        mtp: false,
    }
}

/// Seconds of each test, one value per round.
fn run_rounds(
    runner: &mut ModelRunner,
    plan: &TestPlan,
    rounds: usize,
) -> Result<Vec<Vec<f64>>, SpeedError> {
    let mut seconds = vec![Vec::with_capacity(rounds); plan.tests.len()];
    for _ in 0..rounds {
        for (&test, seconds) in plan.tests.iter().zip(&mut seconds) {
            runner.warm_up(test)?;
            let (done, time) = timed(|| runner.run_test(test));
            done?;
            seconds.push(time.as_secs_f64());
        }
    }
    Ok(seconds)
}

fn speed_row(test: SpeedTest, cost: &ModelCost, limits: &Limits, seconds: &mut [f64]) -> SpeedRow {
    let work = cost.test_work(test);
    let time = Summary::of(seconds);
    let ops_max = if cost.quantized {
        limits.int8_ops
    } else {
        limits.f32_ops
    };
    let (bytes, ops) = (work.bytes / time.p50, work.ops / time.p50);
    SpeedRow {
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
