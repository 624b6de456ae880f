//! Random engines, models and requests of the simulation.

use super::caller::{Caller, IMAGE_ROWS_MAX, POISON_ERROR, POISON_NAN, POISON_PANIC, StopAfter};
use crate::media::{grid_of, key_of};
use crate::support::{Answer, Bench, Random};
use engine::fake::{
    EncoderLog, FakeConfig, FakeEncoderConfig, FakeModel, Fault, FaultAt, FaultKind, LateLog,
};
use engine::{EngineConfig, MediaInput, Request, Speculation};
use model::Dims;
use std::sync::Arc;
use std::time::Duration;

/// Probability that answers repeat themselves.
pub(crate) const HABIT: f32 = 0.7;

/// States for as many sequences as a caller has choices.
const STATES_LEAST: usize = 8;

/// Sizes of a small engine.
pub(crate) fn dims(pages: usize) -> Dims {
    Dims {
        vocab: 64,
        context_max: 96,
        page_tokens: 4,
        pages,
        rows_max: 24,
        logit_rows_max: 12,
    }
}

/// A model that fails sometimes, and for poison tokens.
fn model(random: &mut Random) -> FakeConfig {
    let fault = |at, kind| Fault { at, kind };
    let mut faults = vec![
        fault(FaultAt::Token(POISON_ERROR), FaultKind::NotFinite),
        fault(FaultAt::Token(POISON_PANIC), FaultKind::Panic),
        fault(FaultAt::Token(POISON_NAN), FaultKind::NotANumber),
    ];
    for _ in 0..30 {
        let kinds = [FaultKind::Error, FaultKind::Panic];
        // Even calls only: the next try succeeds, so that nobody may fail of these.
        let call = FaultAt::Call(2 * random.below(750));
        faults.push(fault(call, kinds[random.below(2) as usize]));
        let guess = FaultAt::Guess(random.below(5000));
        faults.push(fault(guess, kinds[random.below(2) as usize]));
    }
    FakeConfig {
        // From "one long sequence at a time" to plenty.
        dims: dims(24 + random.below(60) as usize),
        eos: 0,
        eos_probability: 0.01,
        tokens: 1..61,
        habit: HABIT,
        faults,
    }
}

/// A smaller model that often gives the model's token, and fails sometimes.
fn draft(random: &mut Random) -> FakeConfig {
    let kinds = [FaultKind::Error, FaultKind::Panic, FaultKind::NotANumber];
    let faults = (0..4).map(|_| Fault {
        at: FaultAt::Call(random.below(1500)),
        kind: kinds[random.below(3) as usize],
    });
    FakeConfig {
        faults: faults.collect(),
        dims: dims(10 + random.below(60) as usize),
        tokens: 1..61,
        habit: 1.0,
        ..FakeConfig::default()
    }
}

/// An engine, sometimes with a draft model. `recurrent`: of a model with states, few or many. `late`: of a model that runs
/// ahead, without draft tokens in half of the engines that would have some.
/// `kind`: of the encoder.
pub(crate) fn bench(
    random: &mut Random,
    (recurrent, kind): (bool, u64),
    late: Option<LateLog>,
) -> Bench {
    let model = if recurrent {
        let states = STATES_LEAST + random.below(40) as usize;
        FakeModel::recurrent(model(random), states)
    } else {
        FakeModel::new(model(random))
    };
    let model = model.predicting().encoding(encoder(kind));
    let mut config = config(random);
    if kind.is_multiple_of(5) {
        // Two small images, or less than a large one.
        config.encodings_bytes_max = 100;
    }
    let model = Box::new(match late {
        Some(log) => {
            if config.draft_tokens.is_multiple_of(2) {
                config.speculation = Speculation::Off;
            }
            model.late(log)
        }
        None => model,
    });
    match config.speculation {
        Speculation::Draft => {
            let draft = Box::new(FakeModel::new(draft(random)));
            Bench::with_draft(model, draft, config)
        }
        _ => Bench::with(model, config),
    }
}

/// An engine without a prefix cache, for one request at a time.
pub(crate) fn solo(model: FakeConfig, recurrent: bool, kind: u64) -> Bench {
    let config = EngineConfig {
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let model = if recurrent {
        FakeModel::recurrent(model, 64)
    } else {
        FakeModel::new(model)
    };
    Bench::with(Box::new(model.encoding(encoder(kind))), config)
}

/// An encoder whose rows are as tokens, have positions on axes, or see each other.
fn encoder(kind: u64) -> FakeEncoderConfig {
    FakeEncoderConfig {
        rows_max: IMAGE_ROWS_MAX,
        axes: kind % 4 == 1 || kind % 4 == 3,
        // Up to 5 units, of which a step may have few.
        block_units: if kind % 4 >= 2 {
            1 + kind as usize % 5
        } else {
            0
        },
        costs: if kind.is_multiple_of(4) {
            &[1]
        } else {
            &[3, 1, 7]
        },
        log: EncoderLog::default(),
    }
}

/// Bounds from tight to wide.
fn config(random: &mut Random) -> EngineConfig {
    EngineConfig {
        inbox_max: 8 + random.below(20) as usize,
        queued_tokens_max: 500 + random.below(2000) as usize,
        sequences_max: 3 + random.below(20) as usize,
        step_tokens: 2 + random.below(30) as usize,
        prefix_cache: random.chance(80),
        accounts_max: random.below(3) as usize,
        ageing: Duration::from_millis(1 + random.below(300)),
        step_target: random
            .chance(70)
            .then_some(Duration::from_micros(1 + random.below(2000))),
        slow_consumer: Duration::from_millis(5),
        speculation: [
            Speculation::Off,
            Speculation::PromptLookup,
            Speculation::Draft,
            Speculation::Mtp,
        ][random.below(4) as usize],
        draft_tokens: 1 + random.below(10) as usize,
        ..EngineConfig::default()
    }
}

/// Submits a caller's request; returns the readers of its choices.
pub(crate) fn request(bench: &Bench, caller: &Caller) -> (Request, Vec<Answer>) {
    let mut request = Request {
        sampling: caller.sampling.clone(),
        deadline: caller.deadline.map(|after| bench.now + after),
        credit_window: caller.credit_window,
        adapters: caller.adapters,
        terms: caller.terms,
        ..bench.request(&caller.prompt, caller.max_tokens)
    };
    request.media = caller
        .images
        .iter()
        .map(|(at, input)| MediaInput {
            key: key_of(input),
            rows: *at..at + input.rows,
            grid: grid_of(input.rows),
            input: Arc::new(*input),
        })
        .collect();
    let choice = |_| {
        let answer = bench.choice(&mut request);
        if let (Some(stop), Some(choice)) = (caller.stop, request.choices.last_mut()) {
            choice.terminator = Some(Box::new(StopAfter(stop)));
        }
        answer
    };
    let answers = (0..caller.choices).map(choice).collect();
    (request, answers)
}
