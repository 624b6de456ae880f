//! Failing forward passes: the culprit ends, other requests are unchanged.

use crate::support::{Bench, bench, model};
use engine::EngineConfig;
use engine::fake::{FakeConfig, Fault, FaultAt, FaultKind};
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
