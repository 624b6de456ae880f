//! When encodings are computed: in steps with decodes, once for equal inputs, within their bound.

use super::{Part, alone, bench, bench_of, encoder, image, model, question, read, request};
use crate::support::{Asked, Bench};
use engine::fake::{EncoderLog, FakeEncoderConfig, FakeModel, LateLog};
use engine::{Account, EngineConfig, Request, Terms};
use std::time::Duration;

/// Asks for an image.
fn ask(bench: &Bench, seed: u64, units: usize) -> Asked {
    bench.ask(request(bench, &question(image(seed, 9, units)), 8), 1)
}

/// A step of a machine whose decodes take 10 ms and whose units take 40 ms for a cost of 1. Returns the tokens, and the step's milliseconds.
fn timed_step(bench: &mut Bench, log: &EncoderLog) -> (usize, u64) {
    let cost = log.cost();
    let report = bench.engine.step(bench.now);
    let decodes = u64::from(report.rows > report.rows_prefill);
    let ms = 10 * decodes + 40 * (log.cost() - cost);
    bench.now += Duration::from_millis(ms);
    (report.tokens, ms)
}

/// Steps with so many streams until an image of 10 units is encoded: their number, and the longest one.
fn steps_of_an_image(target_ms: u64, streams: u32) -> (usize, u64) {
    let found = steps_of_costs(target_ms, streams, &[1]);
    // Each unit took 40 ms, and the decodes are not part of it.
    assert_eq!(found.2, [120_000_000, 400_000_000]);
    (found.0, found.1)
}

/// As [`steps_of_an_image`], for units of these costs; also the times of an encoding of 3 and of one of 10 units, in ns.
fn steps_of_costs(target_ms: u64, streams: u32, costs: &'static [u64]) -> (usize, u64, [u64; 2]) {
    let encoder = FakeEncoderConfig {
        costs,
        ..encoder(false, false)
    };
    let config = EngineConfig {
        step_target: Some(Duration::from_millis(target_ms)),
        ..EngineConfig::default()
    };
    let mut bench = bench_of(FakeModel::new(model()), &encoder, config);
    let log = &encoder.log;
    bench.step();
    let streams: Vec<_> = (0..streams)
        .map(|i| bench.ask(bench.request(&[1 + i, 2, 3], 480), 1))
        .collect();
    (0..20).for_each(|_| _ = timed_step(&mut bench, log));
    let first = ask(&bench, 1, 3);
    while log.finished() == 0 {
        timed_step(&mut bench, log);
    }
    (0..20).for_each(|_| _ = timed_step(&mut bench, log));
    let second = ask(&bench, 2, 10);
    let (mut steps, mut longest) = (0, 0);
    while log.finished() == 1 {
        let (tokens, ms) = timed_step(&mut bench, log);
        assert_eq!(tokens, streams.len(), "each stream gets a token");
        (steps, longest) = (steps + 1, longest.max(ms));
    }
    timed_step(&mut bench, log);
    bench.run();
    let times = [&first, &second].map(|asked| asked.progress.encode_ns());
    assert_eq!(bench.handle.stats().encode_ns(), times.iter().sum::<u64>());
    (steps, longest, times)
}

/// Promise (Engine): an image that is encoded while streams run delays no token by more than a unit of its encoding, or by
/// what the step target leaves.
#[test]
fn encoding_gets_the_time_that_decodes_leave() {
    // (target, streams, steps, longest step), milliseconds; 10 units.
    let rows = [
        (100, 7, 5, 90),
        (60, 2, 10, 50),
        // 20 ms are left: a unit in two steps.
        (30, 2, 20, 50),
        // An eighth of the decodes' time is always left: a unit in 32 steps.
        (5, 2, 320, 50),
        // Without streams, as many as fit in the target.
        (200, 0, 2, 200),
    ];
    for (target, streams, steps, longest) in rows {
        let found = steps_of_an_image(target, streams);
        let label = format!("target {target} ms, {streams} streams: {found:?}");
        assert_eq!(found.1, longest, "{label}");
        assert!(found.0.abs_diff(steps) <= 1, "{label}");
    }
}

/// A tower's stages take from 3 to 60 ms for a unit. After many short ones, the long ones are not as many in a step.
#[test]
fn units_of_other_costs_fit_the_target_too() {
    let (steps, longest, times) = steps_of_costs(100, 2, &[1, 1, 1, 1, 2]);
    assert!((90..=100).contains(&longest), "{longest} ms");
    // Ten units of a cost of 12.
    assert_eq!(times[1], 480_000_000);
    assert!(steps <= 8, "{steps}");
}

#[test]
fn requests_with_equal_images_share_one_encoding() {
    let (mut bench, log) = bench();
    let mut asked: Vec<_> = (0..4).map(|_| ask(&bench, 1, 6)).collect();
    bench.run();
    assert_eq!((log.begun(), log.units()), (1, 6));
    let wanted = alone(&encoder(false, false), &question(image(1, 9, 6)), &|_| {});
    for asked in &mut asked {
        assert_eq!(read(asked).0, wanted);
    }
    let paying = asked.iter().filter(|a| a.progress.encode_ns() > 0);
    assert_eq!(paying.count(), 1);
}

#[test]
fn cancelled_request_takes_its_encoding_along_unless_another_waits_for_it() {
    for is_shared in [false, true] {
        let (mut bench, log) = bench();
        let first = ask(&bench, 1, 30);
        let mut second = is_shared.then(|| ask(&bench, 1, 30));
        let mut other = ask(&bench, 2, 3);
        // Without decodes a step has time for many units, but the first one is not measured yet.
        bench.steps(2);
        assert_eq!((log.begun(), log.finished()), (1, 0));
        bench.handle.cancel(first.id);
        bench.run();
        bench.assert_empty();
        assert_eq!(log.begun(), 2, "shared: {is_shared}");
        assert_eq!(log.finished(), 1 + u64::from(is_shared));
        assert_eq!(read(&mut other).0.len(), 8);
        if let Some(second) = &mut second {
            assert_eq!(read(second).0.len(), 8);
        }
    }
}

#[test]
fn encodings_of_two_accounts_take_turns() {
    let (mut bench, _) = bench();
    let of_account = |bench: &Bench, id, seed| {
        let terms = Terms {
            account: Account { id, weight: 1 },
            ..Terms::default()
        };
        let request = Request {
            terms,
            ..request(bench, &question(image(seed, 9, 50)), 4)
        };
        bench.ask(request, 1)
    };
    let mut many: Vec<_> = (0..10).map(|seed| of_account(&bench, 1, seed)).collect();
    bench.steps(3);
    let mut one = of_account(&bench, 2, 99);
    bench.run_until(|bench| bench.handle.stats().encodings() >= 4);
    bench.steps(8);
    assert_eq!(
        read(&mut one).0.len(),
        4,
        "not behind all of the other account"
    );
    let done = many
        .iter_mut()
        .map(|asked| usize::from(read(asked).1.is_some()));
    assert!(done.sum::<usize>() < 8);
    bench.run();
}

#[test]
fn prompt_advances_beside_an_encoding() {
    let (mut bench, log) = bench();
    let image = ask(&bench, 1, 2000);
    bench.steps(3);
    let mut text = bench.ask(bench.request(&[1; 300], 4), 1);
    bench.run_until(|_| text.progress.first_token_ns() > 0);
    assert_eq!(log.finished(), 0, "the text is answered first");
    bench.run();
    assert_eq!(read(&mut text).0.len(), 4);
    assert!(image.progress.first_token_ns() > text.progress.first_token_ns());
}

#[test]
fn cache_of_encodings_is_bounded_and_dropped_rows_are_computed_again() {
    let encoder = encoder(false, false);
    // Rows of three elements: two images of nine rows.
    let config = EngineConfig {
        encodings_bytes_max: 2 * 9 * 3 * 4,
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let mut bench = bench_of(FakeModel::new(model()), &encoder, config);
    let mut one = |seed| {
        let mut asked = ask(&bench, seed, 1);
        bench.run();
        let wanted = alone(&encoder, &question(image(seed, 9, 1)), &|_| {});
        assert_eq!(read(&mut asked).0, wanted);
        let stats = bench.handle.stats();
        assert!(stats.encoding_bytes() <= 216);
        [
            stats.encodings(),
            stats.encoding_hits(),
            stats.encodings_dropped(),
        ]
    };
    assert_eq!(one(1), [1, 0, 0]);
    assert_eq!(one(2), [2, 0, 0]);
    assert_eq!(one(1), [2, 1, 0]);
    assert_eq!(one(3), [3, 1, 1], "the second was used least recently");
    assert_eq!(one(1), [3, 2, 1]);
    assert_eq!(one(2), [4, 2, 2]);
    // Many images at once, each larger than half of the bound.
    let parts: Vec<_> = (10..16)
        .flat_map(|seed| [Part::Image(image(seed, 17, 2)), Part::Text(vec![1; 5])])
        .collect();
    let mut asked: Vec<_> = (0..5)
        .map(|_| bench.ask(request(&bench, &parts, 8), 1))
        .collect();
    bench.run();
    let wanted = alone(&encoder, &parts, &|_| {});
    for asked in &mut asked {
        assert_eq!(read(asked).0, wanted);
    }
    let bytes = bench.handle.stats().encoding_bytes();
    assert!(bytes <= 216 + 17 * 12, "{bytes} bytes: one encoding more");
}

#[test]
fn model_that_runs_ahead_lands_before_an_encoding() {
    let encoder = encoder(false, false);
    let log = LateLog::default();
    let late = FakeModel::new(model()).late(log.clone());
    let mut bench = bench_of(late, &encoder, EngineConfig::default());
    let mut stream = bench.ask(bench.request(&[1, 2, 3], 100), 1);
    bench.steps(10);
    assert!(log.started_ahead() > 0);
    let mut asked = ask(&bench, 1, 5);
    bench.run();
    assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    let wanted = alone(&encoder, &question(image(1, 9, 5)), &|_| {});
    assert_eq!(read(&mut asked).0, wanted);
    assert_eq!(read(&mut stream).0.len(), 100);
}

/// The log of the encoder is of this encoder alone.
#[test]
fn log_counts_what_an_encoder_does() {
    let (mut bench, log) = bench();
    let _asked = ask(&bench, 1, 4);
    bench.run();
    let counts = |log: &EncoderLog| (log.begun(), log.units(), log.finished());
    assert_eq!(counts(&log), (1, 4, 1));
}
