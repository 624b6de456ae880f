//! Encodings that fail, and the ends of their requests and of the other ones.

use super::{
    Part, alone, bench, bench_of, encoder, image, losing_device_at, model, question, read, request,
};
use crate::support::{Bench, quiet_expected_panics};
use engine::fake::{EncodeFault, FakeInput, FakeModel, LateLog};
use engine::{EngineConfig, Request};
use std::sync::Arc;
use stream::{End, FailCode};

/// Promise (Engine): an encoding that fails, panics or gives numbers that are not finite ends its request alone, before a
/// token.
#[test]
fn failed_encoding_ends_its_request_alone() {
    quiet_expected_panics();
    let faults = [
        (EncodeFault::Refused, FailCode::Inference),
        (EncodeFault::TooFew, FailCode::Inference),
        (EncodeFault::NotFinite, FailCode::NotFinite),
        (EncodeFault::NotANumber, FailCode::NotFinite),
        (EncodeFault::Panic, FailCode::Panic),
    ];
    for (fault, code) in faults {
        let (mut bench, _) = bench();
        let sound = image(1, 9, 3);
        let faulty = FakeInput {
            fault: Some(fault),
            ..sound
        };
        let mut stream = bench.ask(bench.request(&[1, 2, 3], 60), 1);
        bench.steps(5);
        let mut failing = bench.ask(request(&bench, &question(faulty), 8), 2);
        // An equal key, and an input that can be encoded.
        let mut waiting = bench.ask(request(&bench, &question(sound), 8), 1);
        let mut other = bench.ask(request(&bench, &question(image(2, 5, 2)), 8), 1);
        bench.run();
        bench.assert_empty();
        for answer in &mut failing.answers {
            assert_eq!(answer.seen(), (0, Some(End::Failed(code))), "{fault:?}");
        }
        let wanted = alone(&encoder(false, false), &question(sound), &|_| {});
        assert_eq!(read(&mut waiting).0, wanted, "{fault:?}");
        assert_eq!(read(&mut other).0.len(), 8);
        assert_eq!(read(&mut stream).0.len(), 60);
        let stats = bench.handle.stats();
        assert_eq!((stats.encodings_failed(), stats.encodings()), (1, 2));
    }
}

#[test]
fn input_of_another_encoder_fails_its_request() {
    let (mut bench, _) = bench();
    let mut foreign = request(&bench, &question(image(1, 9, 1)), 8);
    foreign.media[0].input = Arc::new("no image");
    let mut foreign = bench.ask(foreign, 1);
    bench.run();
    let end = Some(End::Failed(FailCode::Inference));
    assert_eq!(foreign.answers[0].seen(), (0, end));
}

#[test]
fn failed_device_costs_no_token_of_a_prompt_with_images() {
    let encoder = encoder(false, false);
    let parts = [
        Part::Text(vec![1; 9]),
        Part::Image(image(1, 30, 4)),
        Part::Text(vec![2; 9]),
        Part::Image(image(2, 20, 4)),
        Part::Text(vec![3; 9]),
    ];
    let wanted = alone(&encoder, &parts, &|_| {});
    for ahead in [false, true] {
        for call in 0..12 {
            let settings = EngineConfig {
                step_tokens: 10,
                ..EngineConfig::default()
            };
            let mut bench = bench_of(losing_device_at(call, ahead), &encoder, settings);
            let mut asked = bench.ask(request(&bench, &parts, 8), 1);
            bench.run();
            assert_eq!(read(&mut asked).0, wanted, "call {call}, ahead: {ahead}");
            assert_eq!(bench.handle.stats().device_faults(), 1);
        }
    }
}

#[test]
fn device_that_fails_in_each_encoding_is_opened_twice() {
    for ahead in [false, true] {
        let encoder = encoder(false, false);
        let plain = FakeModel::new(model());
        let log = LateLog::default();
        let plain = if ahead {
            plain.late(log.clone())
        } else {
            plain
        };
        let mut bench = bench_of(plain, &encoder, EngineConfig::default());
        let faulty = FakeInput {
            fault: Some(EncodeFault::Device),
            ..image(1, 9, 2)
        };
        let mut asked = bench.ask(request(&bench, &question(faulty), 8), 1);
        bench.run();
        let end = Some(End::Failed(FailCode::Device));
        assert_eq!(asked.answers[0].seen(), (0, end));
        assert_eq!(bench.handle.stats().device_faults(), 3);
        // The next request finds a device that is open, or opens it.
        bench.now += std::time::Duration::from_mins(11);
        let mut next = bench.ask(request(&bench, &question(image(2, 9, 2)), 8), 1);
        bench.run();
        assert_eq!(read(&mut next).0.len(), 8, "ahead: {ahead}");
        assert!(log.misuse().is_empty(), "{:?}", log.misuse());
    }
}

#[test]
fn preemption_within_an_image_costs_no_token() {
    let encoder = encoder(false, false);
    let parts = |seed| {
        [
            Part::Text(vec![1; 6]),
            Part::Image(image(seed, 30, 3)),
            Part::Text(vec![2; 3]),
        ]
    };
    let mut preemptions = 0;
    for steps in 0..20 {
        let mut config = model();
        // One of the two and a half of the other.
        config.dims.pages = 18;
        let settings = EngineConfig {
            step_tokens: 4,
            encodings_bytes_max: 0,
            ..EngineConfig::default()
        };
        let mut bench = bench_of(FakeModel::new(config), &encoder, settings);
        let text = |bench: &Bench| bench.ask(bench.request(&[7, 8], 60), 1);
        let mut stream = text(&bench);
        bench.steps(steps);
        let mut asked = bench.ask(request(&bench, &parts(5), 8), 1);
        bench.steps(4);
        bench.handle.pause(asked.id);
        let mut second = text(&bench);
        bench.steps(30);
        bench.handle.resume(asked.id);
        bench.run();
        assert_eq!(read(&mut stream).0.len(), 60);
        assert_eq!(read(&mut second).0.len(), 60);
        let wanted = alone(&encoder, &parts(5), &|_| {});
        assert_eq!(read(&mut asked).0, wanted, "after {steps} steps");
        preemptions += asked.progress.preemptions();
    }
    assert!(preemptions > 0);
}

#[test]
fn paused_and_resumed_requests_are_encoded_to_the_end() {
    let (mut bench, log) = bench();
    let mut first = bench.ask(request(&bench, &question(image(1, 9, 400)), 8), 1);
    bench.steps(3);
    bench.handle.pause(first.id);
    bench.steps(3);
    let units = log.units();
    bench.steps(3);
    assert_eq!(
        log.units(),
        units,
        "nothing is encoded for a paused request"
    );
    let mut second = bench.ask(request(&bench, &question(image(2, 9, 3)), 8), 1);
    bench.run_until(|bench| bench.handle.stats().encodings() > 0);
    bench.handle.resume(first.id);
    bench.run();
    assert_eq!(read(&mut first).0.len(), 8);
    assert_eq!(read(&mut second).0.len(), 8);
}

#[test]
fn resumed_answer_continues_behind_its_images() {
    let encoder = encoder(true, false);
    let parts = question(image(4, 12, 2));
    let wanted = alone(&encoder, &parts, &|_| {});
    for answered in 1..8 {
        let mut bench = bench_of(FakeModel::new(model()), &encoder, EngineConfig::default());
        let mut longer = parts.to_vec();
        longer.push(Part::Text(wanted[..answered].to_vec()));
        let base = request(&bench, &longer, 8 - answered);
        let resumed = Request {
            sampling: engine::SamplingParams {
                answered: answered as u32,
                ..base.sampling.clone()
            },
            ..base
        };
        let answer = bench.answer(resumed);
        assert_eq!(answer.ids(), wanted[answered..]);
    }
}
