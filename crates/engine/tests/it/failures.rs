//! Failing forward passes: the culprit ends, other requests are unchanged.
//!
//! Promise (Engine): a device that fails is opened again, at most twice in ten minutes, and streams continue from
//! their tokens, none lost and none repeated; otherwise started requests end with `FailCode::Device`.
//! Also held by `engine/src/engine.rs`, `engine/tests/it/ahead.rs ::
//! streams_continue_after_a_device_failed_in_flight`.

use crate::support::{Bench, bench, model};
use engine::EngineConfig;
use engine::fake::{FakeConfig, FakeModel, Fault, FaultAt, FaultKind};
use model::DeviceFault;
use std::time::Duration;
use stream::{End, FailCode};

#[test]
fn failed_forward_pass_ends_the_culprit_alone() {
    crate::support::quiet_expected_panics();
    let reference: Vec<_> = (0..6)
        .map(|i| bench().answer(bench().request(&[i + 1, 9], 10)).ids())
        .collect();
    for (kind, code) in [
        (FaultKind::Error, FailCode::Inference),
        (FaultKind::NotFinite, FailCode::NotFinite),
        (FaultKind::NotANumber, FailCode::NotFinite),
        (FaultKind::Panic, FailCode::Panic),
    ] {
        let at = FaultAt::Token(63);
        let mut bench = Bench::new(
            FakeConfig {
                faults: vec![Fault { at, kind }],
                ..model()
            },
            EngineConfig::default(),
        );
        let mut good: Vec<_> = (0..6)
            .map(|i| bench.ask(bench.request(&[i + 1, 9], 10), 1))
            .collect();
        bench.step();
        let mut culprit = bench.ask(bench.request(&[5, 63, 7], 10), 2);
        bench.run();
        for answer in &mut culprit.answers {
            answer.read();
            assert_eq!(
                (answer.tokens.len(), answer.end),
                (0, Some(End::Failed(code))),
                "{kind:?}"
            );
        }
        for (asked, expected) in good.iter_mut().zip(&reference) {
            assert_eq!(asked.answers[0].seen(), (10, Some(End::Length)), "{kind:?}");
            assert_eq!(&asked.answers[0].ids(), expected, "{kind:?}");
        }
        bench.assert_empty();
    }
}

#[test]
fn passing_fault_ends_no_request() {
    crate::support::quiet_expected_panics();
    for kind in [FaultKind::Error, FaultKind::Panic] {
        let at = FaultAt::Call(3);
        let mut bench = Bench::new(
            FakeConfig {
                faults: vec![Fault { at, kind }],
                ..model()
            },
            EngineConfig::default(),
        );
        let answer = bench.answer(bench.request(&[1, 2], 10));
        assert_eq!((answer.tokens.len(), answer.end), (10, Some(End::Length)));
        assert_eq!(bench.handle.stats().retries(), 1);
    }
}

const DEVICE_FAULTS: [DeviceFault; 3] = [
    DeviceFault::OutOfMemory,
    DeviceFault::Lost,
    DeviceFault::Failed,
];

/// A bench whose device fails in these calls, and can be opened again so many times.
fn failing_device(fault: DeviceFault, calls: &[u64], recoveries: usize, states: usize) -> Bench {
    let kind = FaultKind::Device(fault);
    let at = |&call: &u64| Fault {
        at: FaultAt::Call(call),
        kind,
    };
    let config = FakeConfig {
        faults: calls.iter().map(at).collect(),
        ..model()
    };
    let model = if states > 0 {
        FakeModel::recurrent(config, states)
    } else {
        FakeModel::new(config)
    };
    let model = model.with_recoveries(recoveries);
    Bench::with(Box::new(model), EngineConfig::default())
}

#[test]
fn streams_continue_on_a_device_that_is_opened_again() {
    for states in [0, 30] {
        let calm = |prompt: &[u32]| {
            let mut bench = failing_device(DeviceFault::Lost, &[], 0, states);
            bench.answer(bench.request(prompt, 12)).ids()
        };
        let prompts: Vec<_> = (0..6).map(|i| vec![i % 3 + 1; 9]).collect();
        let reference: Vec<_> = prompts.iter().map(|prompt| calm(prompt)).collect();
        for fault in DEVICE_FAULTS {
            let mut bench = failing_device(fault, &[4, 7], 2, states);
            let ask = |prompt: &Vec<u32>| bench.ask(bench.request(prompt, 12), 1);
            let mut asked: Vec<_> = prompts.iter().map(ask).collect();
            bench.run();
            for (asked, expected) in asked.iter_mut().zip(&reference) {
                assert_eq!(asked.answers[0].seen(), (12, Some(End::Length)), "{fault}");
                assert_eq!(&asked.answers[0].ids(), expected, "{fault}");
            }
            let stats = bench.handle.stats();
            assert_eq!((stats.device_faults(), stats.retries()), (2, 0), "{fault}");
            assert_eq!(stats.device_lost(), 0, "{fault}");
            bench.assert_empty();
            // The pages of the prefix cache were lost, too.
            let again = bench.answer(bench.request(&prompts[0], 12));
            assert_eq!(again.ids(), reference[0], "{fault}");
        }
    }
}

#[test]
fn device_that_cannot_be_opened_ends_started_requests() {
    for fault in DEVICE_FAULTS {
        let mut bench = failing_device(fault, &[4], 0, 0);
        let mut asked = bench.ask(bench.request(&[1, 2], 12), 2);
        bench.run();
        let failed = Some(End::Failed(FailCode::Device));
        for answer in &mut asked.answers {
            assert_eq!(answer.seen(), (4, failed), "{fault}");
        }
        assert_eq!(bench.handle.stats().device_lost(), 1, "{fault}");
        // Each later request tries the device again, until it was tried too often.
        for _ in 0..5 {
            let later = bench.answer(bench.request(&[3], 12));
            assert_eq!((later.tokens.len(), later.end), (0, failed), "{fault}");
        }
        bench.assert_empty();
    }
}

#[test]
fn device_that_fails_three_times_in_ten_minutes_is_not_opened_again() {
    let mut bench = failing_device(DeviceFault::Failed, &[3, 5, 7], 9, 0);
    let answer = bench.answer(bench.request(&[1, 2], 12));
    let failed = Some(End::Failed(FailCode::Device));
    assert_eq!((answer.tokens.len(), answer.end), (5, failed));
    let soon = bench.answer(bench.request(&[1, 2], 12));
    assert_eq!(soon.end, failed);
    assert_eq!(bench.handle.stats().device_lost(), 1);
    bench.now += Duration::from_mins(10);
    let later = bench.answer(bench.request(&[1, 2], 12));
    assert_eq!((later.tokens.len(), later.end), (12, Some(End::Length)));
    let stats = bench.handle.stats();
    assert_eq!((stats.device_faults(), stats.device_lost()), (5, 0));
}
