//! Images whose rows see each other: the pass over them, in units next to other sequences.

use super::{
    Part, alone, bench_of, encoder, image, losing_device_at, model, question, read, request,
};
use crate::support::{Asked, Bench, quiet_expected_panics};
use engine::EngineConfig;
use engine::fake::{EncoderLog, FakeEncoderConfig, FakeModel, Fault, FaultAt, FaultKind, LateLog};
use std::time::Duration;
use stream::{End, FailCode};

/// An encoder whose images have so many units in the pass over their rows.
fn blocks_of(block_units: usize) -> FakeEncoderConfig {
    FakeEncoderConfig {
        block_units,
        ..encoder(false, true)
    }
}

/// Asks for an image of 21 rows, which is encoded in one unit.
fn ask(bench: &Bench, seed: u64) -> Asked {
    bench.ask(request(bench, &question(image(seed, 21, 1)), 8), 1)
}

fn wanted(seed: u64) -> Vec<u32> {
    alone(&blocks_of(1), &question(image(seed, 21, 1)), &|_| {})
}

/// A step of a machine whose decodes take 10 ms, whose rows of prompts take 1 ms, and whose units take 40 ms. Returns the
/// tokens, and the step's milliseconds.
fn timed_step(bench: &mut Bench, log: &EncoderLog) -> (usize, u64) {
    let units = log.block_units();
    let report = bench.engine.step(bench.now);
    let decodes = u64::from(report.rows > report.rows_prefill);
    let ms = 10 * decodes + report.rows_prefill as u64 + 40 * (log.block_units() - units);
    bench.now += Duration::from_millis(ms);
    (report.tokens, ms)
}

/// Steps with so many streams from the first unit to the last of a block of 10: their number, and the longest one.
fn steps_of_a_block(target_ms: u64, streams: u32) -> (usize, u64) {
    let encoder = blocks_of(10);
    let config = EngineConfig {
        step_target: Some(Duration::from_millis(target_ms)),
        // Fewer than an image has.
        step_tokens: 16,
        sequences_max: 16,
        ..EngineConfig::default()
    };
    let mut bench = bench_of(FakeModel::new(model()), &encoder, config);
    let log = &encoder.log;
    // The first block shows how long a unit takes.
    let mut first = ask(&bench, 1);
    while log.block_units() < 10 {
        timed_step(&mut bench, log);
    }
    let streams: Vec<_> = (0..streams)
        .map(|i| bench.ask(bench.request(&[1 + i, 2, 3], 450), 1))
        .collect();
    (0..40).for_each(|_| _ = timed_step(&mut bench, log));
    let mut second = ask(&bench, 2);
    let (mut steps, mut longest) = (1, 0);
    while log.blocks_begun() < 2 {
        (_, longest) = timed_step(&mut bench, log);
    }
    while log.block_units() < 20 {
        let (tokens, ms) = timed_step(&mut bench, log);
        assert_eq!(tokens, streams.len(), "each stream gets a token");
        (steps, longest) = (steps + 1, longest.max(ms));
    }
    bench.run();
    assert_eq!(
        (read(&mut first).0, read(&mut second).0),
        (wanted(1), wanted(2))
    );
    (steps, longest)
}

/// Promise (Engine): rows of an image that see each other are computed in units, so that they delay no token of other streams
/// by more than a unit, or by what the step target leaves; `engine.step_tokens` is no bound of their number.
#[test]
fn block_gets_the_time_that_decodes_leave() {
    // (target, streams, steps, longest step), milliseconds; 10 units.
    let rows = [
        (100, 7, 5, 90),
        (60, 2, 10, 50),
        // 20 ms are left: a unit in two steps.
        (30, 2, 20, 50),
        // An eighth of the decodes' time is always left: a unit in 32 steps.
        (5, 2, 320, 50),
        // Without streams eight together, then as many as fit in the target.
        (200, 0, 2, 320),
        (500, 0, 1, 400),
    ];
    for (target, streams, steps, longest) in rows {
        let found = steps_of_a_block(target, streams);
        let label = format!("target {target} ms, {streams} streams: {found:?}");
        assert_eq!(found.1, longest, "{label}");
        assert!(found.0.abs_diff(steps) <= 1, "{label}");
    }
}

/// Timed steps until the condition holds.
fn timed_until(bench: &mut Bench, log: &EncoderLog, holds: impl Fn(&Bench) -> bool) {
    while !holds(bench) {
        timed_step(bench, log);
    }
}

/// A bench with two streams and an image whose block of 50 units has had `units`, one in each step.
fn amid_a_block(model: FakeModel, units: u64) -> (Bench, EncoderLog, Vec<Asked>, Asked) {
    let encoder = blocks_of(50);
    let config = EngineConfig {
        step_target: Some(Duration::from_millis(60)),
        step_tokens: 8,
        sequences_max: 8,
        ..EngineConfig::default()
    };
    let mut bench = bench_of(model, &encoder, config);
    let streams = (0..2)
        .map(|i| bench.ask(bench.request(&[1 + i, 2, 3], 300), 1))
        .collect();
    (0..10).for_each(|_| _ = timed_step(&mut bench, &encoder.log));
    let asked = ask(&bench, 1);
    let log = &encoder.log;
    timed_until(&mut bench, log, |_| log.block_units() >= units);
    assert!(encoder.log.block_units() < 50);
    (bench, encoder.log, streams, asked)
}

fn plain() -> FakeModel {
    FakeModel::new(model())
}

/// Promise (Engine): pages of a block that is not finished are in no prefix.
#[test]
fn pages_of_an_unfinished_block_are_not_found() {
    for units in [1, 10, 30] {
        let (mut bench, log, _streams, mut first) = amid_a_block(plain(), units);
        let mut second = ask(&bench, 1);
        timed_until(&mut bench, &log, |_| second.progress.started_ns() > 0);
        assert!(log.block_units() < 50, "the first is not finished");
        // The text before the image has one full page.
        assert!(second.progress.cached_tokens() <= 4);
        bench.run();
        assert_eq!(read(&mut first).0, wanted(1));
        assert_eq!(read(&mut second).0, wanted(1));
        let mut third = ask(&bench, 1);
        bench.run();
        assert_eq!(read(&mut third).0, wanted(1));
        assert_eq!(third.progress.cached_tokens(), 28);
    }
}

#[test]
fn canceled_paused_and_preempted_blocks_leave_nothing_behind() {
    for units in [1, 25, 49] {
        let (mut bench, log, mut streams, asked) = amid_a_block(plain(), units);
        bench.handle.cancel(asked.id);
        let mut other = ask(&bench, 2);
        bench.run();
        bench.assert_empty();
        assert_eq!(log.blocks_begun(), 2);
        assert_eq!(read(&mut other).0, wanted(2));
        assert!(streams.iter_mut().all(|stream| read(stream).0.len() == 300));

        // A pause keeps the pass where no other block comes between.
        for with_other in [false, true] {
            let (mut bench, log, _streams, mut asked) = amid_a_block(plain(), units);
            bench.handle.pause(asked.id);
            bench.steps(3);
            let at = log.block_units();
            let other = with_other.then(|| ask(&bench, 2));
            bench.steps(5);
            assert!(with_other || log.block_units() == at, "paused");
            bench.run_until(|_| {
                other
                    .as_ref()
                    .is_none_or(|o| o.progress.first_token_ns() > 0)
            });
            bench.handle.resume(asked.id);
            bench.run();
            assert_eq!(read(&mut asked).0, wanted(1));
            assert_eq!(log.blocks_begun(), if with_other { 3 } else { 1 });
        }
    }
}

#[test]
fn preemption_within_a_block_costs_no_token() {
    let mut preemptions = 0;
    for steps in 0..30 {
        let encoder = blocks_of(9);
        let mut config = model();
        config.dims.pages = 18;
        let settings = EngineConfig {
            step_tokens: 4,
            sequences_max: 4,
            encodings_bytes_max: 0,
            step_target: Some(Duration::from_millis(60)),
            ..EngineConfig::default()
        };
        let mut bench = bench_of(FakeModel::new(config), &encoder, settings);
        let text = |bench: &Bench| bench.ask(bench.request(&[7, 8], 60), 1);
        let mut stream = text(&bench);
        let log = &encoder.log;
        (0..steps).for_each(|_| _ = timed_step(&mut bench, log));
        let mut asked = ask(&bench, 5);
        timed_until(&mut bench, log, |_| log.block_units() > 2);
        bench.handle.pause(asked.id);
        let mut second = text(&bench);
        bench.steps(30);
        bench.handle.resume(asked.id);
        bench.run();
        assert_eq!(read(&mut stream).0.len(), 60);
        assert_eq!(read(&mut second).0.len(), 60);
        assert_eq!(read(&mut asked).0, wanted(5), "after {steps} steps");
        preemptions += asked.progress.preemptions();
    }
    assert!(preemptions > 0);
}

#[test]
fn model_that_runs_ahead_lands_before_a_block() {
    let log = LateLog::default();
    let (mut bench, _, mut streams, mut asked) = amid_a_block(plain().late(log.clone()), 20);
    bench.run();
    assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    assert!(log.started_ahead() > 0);
    assert_eq!(read(&mut asked).0, wanted(1));
    assert!(streams.iter_mut().all(|stream| read(stream).0.len() == 300));
}

/// Promise (Engine): a unit of a block that fails or panics is tried again, and then ends its request alone.
#[test]
fn failed_unit_is_tried_once_more() {
    quiet_expected_panics();
    let kinds = [
        (FaultKind::Error, FailCode::Inference),
        (FaultKind::NotFinite, FailCode::NotFinite),
        (FaultKind::Panic, FailCode::Panic),
    ];
    for (kind, code) in kinds {
        for times in [1, 2] {
            // The block begins, and has six calls of eight units each.
            for first in 1..8 {
                let encoder = blocks_of(48);
                let mut config = model();
                let at = |call| Fault {
                    at: FaultAt::Call(call),
                    kind,
                };
                config.faults = (first..first + times).map(at).collect();
                let settings = EngineConfig::default();
                let mut bench = bench_of(FakeModel::new(config), &encoder, settings);
                let mut asked = ask(&bench, 1);
                bench.run();
                bench.assert_empty();
                let mut other = ask(&bench, 2);
                bench.run();
                assert_eq!(read(&mut other).0, wanted(2));
                let label = format!("{kind:?} from call {first} on");
                assert_eq!(bench.handle.stats().retries(), times, "{label}");
                if times == 1 {
                    assert_eq!(read(&mut asked).0, wanted(1), "{label}");
                } else {
                    let end = Some(End::Failed(code));
                    assert_eq!(asked.answers[0].seen(), (0, end), "{label}");
                }
            }
        }
    }
}

#[test]
fn failed_device_costs_no_token_of_a_block() {
    let parts = [
        Part::Text(vec![1; 9]),
        Part::Image(image(1, 30, 1)),
        Part::Image(image(2, 20, 1)),
        Part::Text(vec![3; 9]),
    ];
    let wanted = alone(&blocks_of(24), &parts, &|_| {});
    for ahead in [false, true] {
        for call in 0..15 {
            let mut bench = bench_of(
                losing_device_at(call, ahead),
                &blocks_of(24),
                EngineConfig::default(),
            );
            let mut asked = bench.ask(request(&bench, &parts, 8), 1);
            bench.run();
            assert_eq!(read(&mut asked).0, wanted, "call {call}, ahead: {ahead}");
            assert_eq!(bench.handle.stats().device_faults(), 1);
        }
    }
}

#[test]
fn prompt_may_end_with_a_block() {
    for rows in [1, 2, 21, 40] {
        for choices in [1, 3] {
            let parts = [Part::Text(vec![1; 7]), Part::Image(image(3, rows, 2))];
            let wanted = alone(&blocks_of(4), &parts, &|_| {});
            let mut bench = bench_of(plain(), &blocks_of(2), EngineConfig::default());
            for _ in 0..2 {
                let mut asked = bench.ask(request(&bench, &parts, 8), choices);
                bench.run();
                for answer in &mut asked.answers {
                    answer.read();
                    assert_eq!(answer.ids(), wanted, "{rows} rows");
                }
            }
        }
    }
}
