//! Admission of requests, attempts that replace each other, and the end of all of them.

use super::super::{Admission, GATEWAY_SILENCE, STARTING_MAX};
use super::calls::{GATEWAY, case, code, read, started, step};
use super::engine_process::{EngineProcess, KEY, epoch, identity};
use crate::messages::{Rejection, Run, RunReply, TokenBatch};
use crate::names::InstanceId;
use engine::Phase;
use stream::{End, FailCode};

#[test]
fn repeated_requests_get_the_same_answer_and_run_once() {
    let mut process = EngineProcess::new(epoch(), 4);
    let run = process.run_of(&case(1, 0), GATEWAY, 1);
    let (admit, now) = (|text: &str| text.to_owned(), process.now);
    let first = process
        .attempts
        .admit(Box::new(run.clone()), admit("a"), now);
    assert!(matches!(first, Admission::Start(_)));
    let second = process
        .attempts
        .admit(Box::new(run.clone()), admit("b"), now);
    assert_eq!(second, Admission::Wait);
    let settled = process.settle(run.clone());
    assert_eq!(settled.answers, ["a", "b"]);
    assert_eq!(settled.reply, RunReply::Accepted);
    assert_eq!(process.submit(run), Some(RunReply::Accepted));
    step(&mut process);
    assert_eq!(process.models[0].handle.engine.stats().running(), 1);
}

#[test]
fn later_attempt_cancels_the_earlier_one() {
    let mut process = started(1, 0);
    step(&mut process);
    let mut later = process.run_of(&case(1, 0), GATEWAY, 1);
    later.attempt = 3;
    assert_eq!(process.submit(later), Some(RunReply::Accepted));
    let mut earlier = process.run_of(&case(1, 0), GATEWAY, 1);
    earlier.attempt = 2;
    assert_eq!(process.submit(earlier), None, "no answer");
    for _ in 0..3 {
        for batch in step(&mut process) {
            assert!(batch.runs().all(|run| run.key.attempt == 3));
        }
    }
    assert_eq!(process.engine.stats().running(), 1);
    // A submission that was overtaken is dropped.
    let mut fourth = process.run_of(&case(1, 0), GATEWAY, 1);
    fourth.attempt = 4;
    let mut fifth = fourth.clone();
    fifth.attempt = 5;
    let now = process.now;
    for run in [&fourth, &fifth] {
        let admitted = process
            .attempts
            .admit(Box::new(run.clone()), "x".into(), now);
        assert!(matches!(admitted, Admission::Start(_)));
    }
    assert!(process.settle(fourth).answers.is_empty());
    assert_eq!(process.settle(fifth).answers, ["x"]);
    step(&mut process);
    assert_eq!(process.engine.stats().running(), 1);
}

#[test]
fn requests_that_cannot_run_are_rejected_with_a_code() {
    let mut process = EngineProcess::new(epoch(), 4);
    let good = process.run_of(&case(1, 0), GATEWAY, 1);
    type Change = fn(&mut Run);
    let rows: [(Rejection, Change); 5] = [
        (Rejection::UnknownModel, |run| {
            run.model_key = "other".into();
        }),
        (Rejection::OtherContent, |run| {
            run.identity.arithmetic = "tiles".into();
        }),
        (Rejection::Invalid, |run| run.request = b"{}".to_vec()),
        (Rejection::Invalid, |run| run.choices.clear()),
        (Rejection::Invalid, |run| run.choices[0].ids = vec![1 << 30]),
    ];
    for (expected, change) in rows {
        let mut run = good.clone();
        change(&mut run);
        assert_eq!(code(process.submit(run)), expected);
        assert!(process.attempts.is_empty());
    }
    process.attempts.leave();
    assert_eq!(code(process.submit(good)), Rejection::Leaving);
    assert_eq!(
        (KEY, identity()),
        ("model", process.models[0].identity.clone())
    );
}

#[test]
fn submissions_under_way_are_bounded() {
    let mut process = EngineProcess::new(epoch(), 4);
    let run = process.run_of(&case(1, 0), GATEWAY, 1);
    let now = process.now;
    for handle in 0..=STARTING_MAX as u64 {
        let run = Run {
            handle,
            ..run.clone()
        };
        let admitted = process.attempts.admit(Box::new(run), "x".into(), now);
        match admitted {
            Admission::Start(_) => assert!(handle < STARTING_MAX as u64),
            Admission::Answer(reply) => assert_eq!(code(Some(reply)), Rejection::Full),
            Admission::Wait => panic!("a new request waits"),
        }
    }
    assert_eq!(process.attempts.len(), STARTING_MAX);
    let answer = read(&mut process, &[(0, 1, 0)]);
    assert_eq!(answer.progress()[0].phase, Phase::Queued);
}

#[test]
fn attempts_of_silent_gateways_are_cancelled() {
    let mut process = started(1, 0);
    step(&mut process);
    let now = process.now;
    process.attempts.hear(GATEWAY, now + GATEWAY_SILENCE / 2);
    process.attempts.hear(InstanceId(99), now + GATEWAY_SILENCE);
    process.attempts.expire(now + GATEWAY_SILENCE);
    assert_eq!(process.attempts.open(), 1);
    process.attempts.expire(now + GATEWAY_SILENCE * 2);
    assert!(process.attempts.is_empty());
    process.run_until_idle();
    assert_eq!(process.engine.stats().endings().cancelled, 1);
}

#[test]
fn engine_that_shuts_down_gives_its_requests_back() {
    let mut process = started(2, 0);
    for _ in 0..10 {
        step(&mut process);
    }
    process.attempts.leave();
    let now = process.now;
    process.models[0].handle.engine.shutdown(now);
    let batches: Vec<_> = (0..3).flat_map(|_| step(&mut process)).collect();
    let ends: Vec<_> = batches.iter().flat_map(TokenBatch::ends).collect();
    let shutdown = End::Failed(FailCode::Shutdown);
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|end| end.end == shutdown), "{ends:?}");
    assert_eq!(process.attempts.open(), 0);
}
