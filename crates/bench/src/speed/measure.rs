//! A measurement run: limits, load, then rounds of all tests on a model with allocated and filled KV pages.

use super::cost::ModelCost;
use super::report::{KernelUse, MemoryUse, SpeedReport, SpeedRow};
use super::test_plan::{SpeedError, SpeedOptions, SpeedTest, TestPlan};
use crate::Summary;
use crate::limits::Limits;
use crate::process::{Process, timed};
use cpu::{LoadOptions, Model, ModelBytes, PAGE_TOKENS, PAGES_MAX};
use kernels::{Isa, KvKind, Pool};
use model::{Ahead, Batch, DRAWN, DrawRule, Draws, Forward, ForwardError, SpanStates, Want};
use std::ops::Range;
use weights::LoadError;
use weights::config::Config;
use weights::gguf::Gguf;

/// Measures the machine, then the model in `gguf` with all tests of `options`. Each round runs all tests once,
/// so that drift of the machine affects all tests.
///
/// # Errors
/// Options out of bounds, an unsupported file, or lack of memory or threads.
pub fn measure(gguf: Gguf, isa: Isa, options: &SpeedOptions) -> Result<SpeedReport, SpeedError> {
    let (cost, plan) = examined(&gguf, options)?;
    let mut pool = Pool::try_new(options.threads).map_err(SpeedError::of)?;
    let threads = pool.threads();
    let limits = Limits::measure(isa, &mut pool, cost.weight_bytes).map_err(SpeedError::of)?;
    let load_options = load_options(&plan, options.kv);
    let load = || {
        let model = Model::load(gguf, isa, pool, &load_options, &mut |_| {})?;
        let bytes = model.bytes();
        Ok::<_, LoadError>((model, bytes))
    };
    let name = isa.name().to_owned();
    let no_clock = |_: &mut Model, _: &Batch| Ok(None);
    measure_loaded(
        (cost, plan),
        (name, threads, limits),
        options,
        load,
        no_clock,
    )
}

/// A device that models are loaded to.
#[derive(Clone, Debug)]
pub struct SpeedDevice {
    /// Name of the device.
    pub name: String,
    /// Bytes that it reads per second.
    pub read: f64,
}

/// Measures the model in `gguf` as [`measure`] does, on a device to which `load` loads it. `time_step` computes a batch and returns the
/// times of its kernels, if the device has a clock.
///
/// # Errors
/// As for [`measure`]; those of `load` and `time_step`.
pub fn measure_on_device<M: Forward, E: std::error::Error>(
    gguf: Gguf,
    device: SpeedDevice,
    options: &SpeedOptions,
    load: impl FnOnce(Gguf, &LoadOptions) -> Result<(M, ModelBytes), E>,
    time_step: impl Fn(&mut M, &Batch) -> Result<Option<Vec<KernelUse>>, ForwardError>,
) -> Result<SpeedReport, SpeedError> {
    let (cost, plan) = examined(&gguf, options)?;
    let limits = Limits::of_device(device.read);
    let load_options = load_options(&plan, options.kv);
    let on = (device.name, 0, limits);
    let load = || load(gguf, &load_options);
    measure_loaded((cost, plan), on, options, load, time_step)
}

fn examined(gguf: &Gguf, options: &SpeedOptions) -> Result<(ModelCost, TestPlan), SpeedError> {
    let config = Config::from_gguf(gguf, None).map_err(SpeedError::of)?;
    let cost = ModelCost::of(gguf, config, options.kv);
    let plan = TestPlan::of(options, &cost)?;
    Ok((cost, plan))
}

/// Loads the model, and runs all tests on what has this name, number of threads, and limits.
fn measure_loaded<M: Forward, E: std::fmt::Display>(
    (cost, plan): (ModelCost, TestPlan),
    (isa, threads, limits): (String, usize, Limits),
    options: &SpeedOptions,
    load: impl FnOnce() -> Result<(M, ModelBytes), E>,
    time_step: impl Fn(&mut M, &Batch) -> Result<Option<Vec<KernelUse>>, ForwardError>,
) -> Result<SpeedReport, SpeedError> {
    let before = Process::Own.resident_bytes();
    let (model, time) = timed(load);
    let (model, bytes) = model.map_err(SpeedError::of)?;
    let loaded = Process::Own.resident_bytes();
    let mut runner = ModelRunner::new(model, &plan)?;
    let seconds = run_rounds(&mut runner, &plan, options.rounds)?;
    let mut rows = Vec::with_capacity(plan.tests.len());
    for (&test, mut seconds) in plan.tests.iter().zip(seconds) {
        let row = speed_row(test, &cost, &limits, &mut seconds);
        // The kernels of a step that runs ahead are those of the test before.
        let kernels = if test.is_ahead() {
            None
        } else {
            runner.fill_step(test);
            time_step(&mut runner.model, &runner.batch).map_err(SpeedError::of)?
        };
        rows.push(SpeedRow { kernels, ..row });
    }
    Ok(SpeedReport {
        architecture: cost.architecture(),
        isa,
        threads,
        kv: options.kv.name(),
        rounds: options.rounds,
        quantized: cost.quantized,
        weight_bytes: cost.weight_bytes,
        limits,
        load_ms: time.as_secs_f64() * 1e3,
        memory: MemoryUse {
            weights: bytes.weights as u64,
            kv: (bytes.kv + bytes.states) as u64,
            scratch: bytes.scratch as u64,
            resident_before_load: before,
            resident_after_load: loaded,
            resident: Process::Own.resident_bytes(),
        },
        rows,
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
fn run_rounds<M: Forward>(
    runner: &mut ModelRunner<M>,
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
        peak_share: (ops_max > 0.0).then(|| ops / ops_max),
        kernels: None,
    }
}

/// Tokens of one forward pass; longer prompts are split into chunks.
pub(super) const CHUNK_TOKENS: usize = 512;
/// States of a sequence of a model with recurrent layers: one is read, and one is written.
pub(super) const STATES_EACH: usize = 2;
/// Token ids used in tests; every vocabulary has as many.
const IDS: usize = 256;

/// A model and the batch of its forward passes.
pub(super) struct ModelRunner<M> {
    model: M,
    batch: Batch,
    /// One for each sequence of a test that runs ahead.
    draws: Draws,
    ids: usize,
}

impl<M: Forward> ModelRunner<M> {
    /// Creates a runner for a model with pages for the largest test of `plan`, and fills all pages.
    pub(super) fn new(mut model: M, plan: &TestPlan) -> Result<Self, SpeedError> {
        let ids = model.dims().vocab.min(IDS);
        let filled = plan.max_of(SpeedTest::positions).min(CHUNK_TOKENS);
        let mut batch = Batch::default();
        let tokens: Vec<u32> = (0..filled).map(|i| token_id(i, ids)).collect();
        let sample = filled.div_ceil(PAGE_TOKENS);
        batch.push(&tokens, 0, &page_range(0, sample), Want::Last);
        batch.set_states(Some(SpanStates::alternating(0, 0, 0)));
        model.forward(&batch).map_err(SpeedError::of)?;
        // Speed does not depend on the values of keys and values, but it does depend on whether their memory
        // was ever written.
        for page in sample..model.dims().pages {
            model.copy_page((page % sample) as u32, page as u32);
        }
        let draws = Draws::default();
        Ok(Self {
            model,
            batch,
            draws,
            ids,
        })
    }

    /// One step before the measurement, so that code and scratch memory are warm.
    pub(super) fn warm_up(&mut self, test: SpeedTest) -> Result<(), SpeedError> {
        match test {
            SpeedTest::Prompt { tokens, context } => {
                self.run_prompt(tokens.min(CHUNK_TOKENS), context)
            }
            SpeedTest::Decode { .. } => self.run_decode(1, test),
        }
    }

    /// The measured work of a test.
    pub(super) fn run_test(&mut self, test: SpeedTest) -> Result<(), SpeedError> {
        match test {
            SpeedTest::Prompt { tokens, context } => self.run_prompt(tokens, context),
            SpeedTest::Decode { tokens, .. } => self.run_decode(tokens, test),
        }
    }

    /// Makes the batch of a test's first step.
    fn fill_step(&mut self, test: SpeedTest) {
        match test {
            SpeedTest::Prompt { tokens, context } => {
                self.fill_chunk(0..tokens.min(CHUNK_TOKENS), context, 0, Want::Last);
            }
            SpeedTest::Decode { .. } => self.fill_decode((0, 1), test, false),
        }
    }

    /// Makes the batch of so many tokens of a prompt.
    fn fill_chunk(&mut self, tokens: Range<usize>, context: usize, turn: usize, want: Want) {
        let table = page_range(0, (context + tokens.end).div_ceil(PAGE_TOKENS));
        let ids: Vec<u32> = tokens.clone().map(|i| token_id(i, self.ids)).collect();
        let position = context + tokens.start;
        self.batch.clear();
        self.batch.push(&ids, position, &table, want);
        let states = SpanStates::alternating(0, turn, position);
        self.batch.set_states(Some(states));
    }

    fn run_prompt(&mut self, tokens: usize, context: usize) -> Result<(), SpeedError> {
        let (mut done, mut turn) = (0, 0);
        while done < tokens {
            let count = (tokens - done).min(CHUNK_TOKENS);
            let last = done + count == tokens;
            let want = if last { Want::Last } else { Want::None };
            self.fill_chunk(done..done + count, context, turn, want);
            turn += 1;
            self.model.forward(&self.batch).map_err(SpeedError::of)?;
            done += count;
        }
        Ok(())
    }

    fn run_decode(&mut self, steps: usize, test: SpeedTest) -> Result<(), SpeedError> {
        let ahead = test.is_ahead();
        self.draws.clear();
        for row in 0..test.batch() {
            self.draws.push(row, Some(DrawRule::GREEDY));
        }
        for step in 0..steps {
            self.fill_decode((step, steps), test, ahead && step > 0);
            if ahead {
                self.step_ahead(step > 0)?;
            } else {
                self.model.forward(&self.batch).map_err(SpeedError::of)?;
            }
        }
        if ahead && steps > 0 {
            let drawn = queue_of(&mut self.model)?.drawn();
            drawn.map_err(SpeedError::of)?;
        }
        Ok(())
    }

    /// Starts the batch, waits for the tokens of the one before, and has those of this one drawn, as the engine does.
    fn step_ahead(&mut self, is_later: bool) -> Result<(), SpeedError> {
        let queue = queue_of(&mut self.model)?;
        queue.start(&self.batch).map_err(SpeedError::of)?;
        if is_later {
            queue.drawn().map_err(SpeedError::of)?;
        }
        queue.draw(&self.draws).map_err(SpeedError::of)
    }

    /// Makes the batch of a step of a test's sequences, each of which has pages for all steps; `drawn`: of tokens that the batch before
    /// draws.
    fn fill_decode(&mut self, (step, steps): (usize, usize), test: SpeedTest, drawn: bool) {
        let (batch, context) = (test.batch(), test.context());
        let each = (context + steps).div_ceil(PAGE_TOKENS);
        self.batch.clear();
        for i in 0..batch {
            let id = if drawn {
                DRAWN | i as u32
            } else {
                token_id(i + step, self.ids)
            };
            let table = page_range(i * each, each);
            self.batch.push(&[id], context + step, &table, Want::Last);
            let states = SpanStates::alternating(i, step, context + step);
            self.batch.set_states(Some(states));
        }
    }
}

fn queue_of<M: Forward>(model: &mut M) -> Result<&mut dyn Ahead, SpeedError> {
    let why = "this model does not run ahead: it computes a step when the tokens of the last one are known";
    model.ahead().ok_or_else(|| SpeedError(why.to_owned()))
}

fn token_id(i: usize, ids: usize) -> u32 {
    (i * 37 % ids) as u32
}

fn page_range(first: usize, count: usize) -> Vec<u32> {
    (first..first + count).map(|page| page as u32).collect()
}
