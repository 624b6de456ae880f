//! Admission of requests, attempts that replace each other, and the end of all of them.
//!
//! Promise (Limits of keys over gateways): 50,000 garbled requests, invented gateways and repeated attempts leave an
//! engine with bounded submissions, attempts and names of gateways.
//! Also held by `cluster/src/executor/submission.rs`.

use super::super::{Admission, GATEWAY_SILENCE, STARTING_MAX};
use super::calls::{GATEWAY, case, code, read, started, step};
use super::engine_process::{EngineProcess, KEY, epoch, identity};
use crate::messages::{
    ASSEMBLY_BYTES_MAX, Assembled, Order, OrderKind, PartAssembly, Rejection, Run, RunReply,
    TokenBatch,
};
use crate::names::InstanceId;
use engine::Phase;
use std::collections::VecDeque;
use std::time::Duration;
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

/// A submission holds its request until it is done, also one whose entry was replaced or forgotten meanwhile.
#[test]
fn submissions_of_replaced_and_forgotten_attempts_count() {
    let mut process = EngineProcess::new(epoch(), 4);
    let run = process.run_of(&case(1, 0), GATEWAY, 1);
    let now = process.now;
    let mut started = Vec::new();
    for attempt in 1..2 * STARTING_MAX as u32 {
        let run = Run {
            attempt,
            ..run.clone()
        };
        match process.attempts.admit(Box::new(run), "x".into(), now) {
            Admission::Start(run) => started.push(*run),
            Admission::Answer(reply) => assert_eq!(code(Some(reply)), Rejection::Full),
            Admission::Wait => panic!("a later attempt waits"),
        }
        let forget = Order {
            handle: 1,
            attempt,
            sequence: 0,
            kind: OrderKind::Forget,
        };
        if attempt % 2 == 0 {
            process.attempts.apply_orders(GATEWAY, &[forget], now);
        }
    }
    assert_eq!(started.len(), STARTING_MAX);
    for run in started {
        process.settle(run);
    }
    let again = Run {
        attempt: u32::MAX,
        ..run
    };
    assert_eq!(process.submit(again), Some(RunReply::Accepted));
}

/// A message that no gateway of the cluster sent. `draw` gives numbers below its argument.
fn garbled(good: &Run, number: u32, draw: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut run = good.clone();
    match number % 3 {
        // Another gateway, request and attempt, with a record that is none.
        0 => {
            (run.gateway, run.handle) = (InstanceId(draw(1 << 30) as u64), draw(3) as u64);
            run.attempt = number;
            run.request = b"{}".to_vec();
        }
        // Later attempts of one request.
        1 => run.attempt = number,
        _ => {}
    }
    let mut bytes = run.encode_parts().unwrap().remove(0);
    if number % 3 == 2 {
        for _ in 0..=draw(3) {
            let at = draw(bytes.len());
            bytes[at] ^= 1 << draw(8);
        }
        bytes.truncate(bytes.len() - draw(2) * draw(20));
    }
    bytes
}

/// What an engine keeps of messages that no gateway of the cluster sent does not grow with their number.
#[test]
fn state_is_bounded_under_garbled_messages() {
    let mut process = EngineProcess::new(epoch(), 4);
    let good = process.run_of(&case(1, 0), GATEWAY, 1);
    let mut parts = PartAssembly::default();
    let mut under_way = VecDeque::new();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let (mut admitted, mut gateways_max) = (0, 0);
    for number in 0..50_000_u32 {
        process.now += Duration::from_millis(1);
        let now = process.now;
        let message = garbled(&good, number, &mut draw);
        if let Ok(Assembled::Run(run)) = parts.push(&message, now)
            && let Admission::Start(run) = process.attempts.admit(run, "x".into(), now)
        {
            admitted += 1;
            under_way.push_back(*run);
        }
        // The work of two threads, which is slower than the messages.
        if number % 8 == 0
            && let Some(run) = under_way.pop_front()
        {
            process.settle(run);
        }
        if number % 1000 == 0 {
            process.attempts.expire(now);
        }
        gateways_max = gateways_max.max(process.attempts.heard.len());
        assert!(under_way.len() <= STARTING_MAX, "{}", under_way.len());
        assert_eq!(process.attempts.starting.count(), under_way.len());
        assert!(process.attempts.len() <= STARTING_MAX + 8);
        assert!(parts.bytes() <= ASSEMBLY_BYTES_MAX);
    }
    assert!(admitted > 5_000, "{admitted}");
    assert!(gateways_max <= STARTING_MAX + 8, "{gateways_max}");
    for run in under_way {
        process.settle(run);
    }
    process.attempts.expire(process.now);
    assert!(process.attempts.heard.len() <= 1);
}

/// Promise (Cluster): an engine drops the requests of a gateway that is silent for 10 s, and those that a gateway
/// orders it to forget, also when an order is lost.
/// Also held by `cluster/src/relay/tests.rs :: engine_that_reports_an_ended_request_is_ordered_again_to_forget_it`,
/// `cluster/src/relay/simulation`.
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
