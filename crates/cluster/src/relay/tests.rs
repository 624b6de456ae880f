//! Promise (Cluster): the feed reports a request that moves to another engine.
//! Also held by `gateway/src/streams/transitions.rs`.

mod bench;
mod embedding;
mod permits;

use super::*;
use crate::messages::{Attempt, OrderKind, Rejection, RequestProgress, Run, RunReply, TokenBatch};
use ::engine::Phase;
use bench::*;
use std::time::Duration;
use stream::{End, FailCode, Stop};

#[test]
fn request_moves_with_its_tokens_when_its_engine_dies() {
    let mut bench = bench();
    bench.show(&[A]);
    let mut reader = bench.submit();
    let (engine, run) = bench.sent().expect("placed");
    assert_eq!((engine, run.attempt), (A, 1));
    assert_eq!(run.request, b"record");
    assert!(run.choices[0].ids.is_empty());
    bench.answer(A, &run, RunReply::Accepted);
    bench.tokens(A, &run, 0, &[5, 6]);
    bench.show(&[B]);
    let (engine, again) = bench.sent().expect("placed again");
    assert_eq!(bench.told.moves(), 0, "not before the engine has it");
    assert_eq!((engine, again.attempt), (B, 2));
    assert_eq!(again.choices[0].ids, [5, 6]);
    bench.tokens(A, &run, 2, &[9]);
    bench.tokens(B, &again, 2, &[7]);
    bench.end(B, &again, 3, End::Stop(Stop::Eos));
    assert_eq!(bench.told.moves(), 1);
    assert_eq!(
        read(&mut reader),
        (vec![5, 6, 7], Some(End::Stop(Stop::Eos)))
    );
    assert_eq!(bench.relay.counters().stale, 1, "the dead engine's token");
}

#[test]
fn stale_attempts_are_ordered_to_be_forgotten() {
    let mut bench = bench();
    bench.show(&[A]);
    let (_reader, run) = bench.running();
    let stale = Run { attempt: 0, ..run };
    bench.tokens(A, &stale, 0, &[5]);
    let orders = bench.orders();
    let forget = orders.iter().find(|order| order.kind == OrderKind::Forget);
    let forgotten = forget.map(|order| (order.handle, order.attempt));
    assert_eq!(forgotten, Some((stale.handle, 0)));
}

#[test]
fn engine_that_reports_an_ended_request_is_ordered_again_to_forget_it() {
    let mut bench = bench();
    bench.show(&[A]);
    let (mut reader, run) = bench.running();
    bench.tokens(A, &run, 0, &[5]);
    bench.cancel_all();
    let forgets = |bench: &mut Bench| {
        let orders = bench.orders().into_iter();
        orders
            .filter(|order| order.kind == OrderKind::Forget)
            .count()
    };
    assert_eq!(forgets(&mut bench), 1);
    assert_eq!(read(&mut reader), (vec![5], Some(End::Cancelled)));
    assert!(bench.relay.is_empty() && !bench.relay.needs_ticks());
    assert_eq!(forgets(&mut bench), 0, "once");
    // The order did not arrive.
    bench.tokens(A, &run, 1, &[6]);
    bench.tokens(A, &run, 2, &[7]);
    assert!(bench.relay.needs_ticks());
    assert_eq!(forgets(&mut bench), 1);
}

#[test]
fn request_with_which_engines_die_fails() {
    let mut bench = bench();
    let mut reader = bench.submit();
    for crash in 1..=3 {
        bench.show(&[A]);
        assert_eq!(bench.placed().attempt, crash);
        bench.show(&[]);
        assert!(bench.sent().is_none());
    }
    let crashed = Some(End::Failed(FailCode::CrashedEngines));
    assert_eq!(read(&mut reader), (vec![], crashed));
}

#[test]
fn tokens_between_deaths_show_that_the_request_is_harmless() {
    let mut bench = bench();
    let mut reader = bench.submit();
    for crash in 0..6 {
        bench.show(&[A]);
        let run = bench.placed();
        bench.tokens(A, &run, crash, &[crash + 1]);
        bench.show(&[]);
        assert!(bench.sent().is_none());
    }
    assert_eq!(read(&mut reader), (vec![1, 2, 3, 4, 5, 6], None));
}

#[test]
fn request_that_an_engine_gives_up_is_placed_elsewhere() {
    for end in [End::Failed(FailCode::Shutdown), End::Lost, End::Cancelled] {
        let mut bench = bench();
        bench.show(&[A, B]);
        let mut reader = bench.submit();
        let (first, run) = bench.sent().expect("placed");
        bench.answer(first, &run, RunReply::Accepted);
        bench.tokens(first, &run, 0, &[5]);
        bench.end(first, &run, 1, end);
        let (second, again) = bench.sent().expect("placed again");
        assert!(second != first && again.choices[0].ids == [5]);
        assert_eq!(read(&mut reader), (vec![5], None));
    }
}

#[test]
fn other_tokens_than_before_end_the_request() {
    let mut bench = bench();
    bench.show(&[A]);
    let (mut reader, run) = bench.running();
    bench.tokens(A, &run, 0, &[5, 6]);
    bench.tokens(A, &run, 1, &[6, 7]);
    assert_eq!(read(&mut reader), (vec![5, 6, 7], None), "an equal overlap");
    bench.tokens(A, &run, 2, &[8]);
    assert_eq!(read(&mut reader), (vec![], Some(End::Lost)));
    assert_eq!(bench.relay.counters().diverged, 1);
    assert!(bench.relay.is_empty());
}

#[test]
fn missing_tokens_are_read() {
    let mut bench = bench();
    bench.show(&[A]);
    let (mut reader, run) = bench.running();
    bench.tokens(A, &run, 2, &[7]);
    bench.now += Duration::from_millis(1);
    let actions = bench.relay.poll(bench.now);
    let read_request = actions.iter().find_map(|action| match action {
        Action::Read { request, .. } => Some(request.clone()),
        _ => None,
    });
    let read_request = read_request.expect("a read");
    assert_eq!(read_request.entries[0].have, [0]);
    let mut batch = token_batch(A, &run, (0, 0), &[5, 6, 7]);
    let progress = RequestProgress {
        handle: run.handle,
        attempt: 1,
        phase: Phase::Running,
        prompt_done: 3,
        cached_tokens: 0,
        updates_applied: 0,
        orders_applied: 0,
    };
    batch.push_progress(progress).unwrap();
    bench.relay.on_tokens(&batch, true, bench.now);
    assert_eq!(read(&mut reader).0, [5, 6, 7]);
    let actions = bench.relay.poll(bench.now);
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Read { .. }))
    );
}

#[test]
fn request_that_the_engine_does_not_have_is_placed_again() {
    let mut bench = bench();
    bench.show(&[A, B]);
    let _reader = bench.submit();
    let (first, run) = bench.sent().expect("placed");
    bench.answer(first, &run, RunReply::Accepted);
    let mut batch = TokenBatch::new(first);
    let (handle, attempt) = (run.handle, run.attempt);
    batch.push_unknown(Attempt { handle, attempt }).unwrap();
    bench.relay.on_tokens(&batch, true, bench.now);
    let (second, again) = bench.sent().expect("placed again");
    assert_ne!(second, first);
    assert_eq!(again.attempt, 2);
}

#[test]
fn rejected_request_goes_to_another_engine_and_an_invalid_one_fails() {
    let reply = |code| RunReply::Rejected {
        code,
        message: String::new(),
    };
    let mut bench = bench();
    bench.show(&[A, B]);
    let mut reader = bench.submit();
    let (first, run) = bench.sent().expect("placed");
    bench.answer(first, &run, reply(Rejection::Full));
    let (second, run) = bench.sent().expect("placed again");
    assert_ne!(second, first);
    bench.answer(second, &run, reply(Rejection::Full));
    assert!(bench.sent().is_none(), "all engines are full");
    let (third, run) = bench.sent().expect("asked again");
    bench.answer(third, &run, reply(Rejection::Invalid));
    let failed = Some(End::Failed(FailCode::Inference));
    assert_eq!(read(&mut reader), (vec![], failed));
}

#[test]
fn no_engine_counts_as_dead_while_this_process_is_disconnected() {
    let mut bench = bench();
    bench.show(&[A, B]);
    let _reader = bench.submit();
    let (engine, run) = bench.sent().expect("placed");
    bench.answer(engine, &run, RunReply::Accepted);
    bench.relay.set_connected(false, bench.now);
    bench.show(&[]);
    bench.now += Duration::from_secs(30);
    assert!(bench.relay.poll(bench.now).is_empty());
    bench.relay.set_connected(true, bench.now);
    let actions = bench.relay.poll(bench.now);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Read { .. })),
        "what is missing"
    );
    bench.now += Duration::from_secs(1);
    assert!(bench.sent().is_none(), "heartbeats may still come");
    let other = if engine == A { B } else { A };
    bench.show(&[other]);
    bench.now += Duration::from_secs(1);
    let (moved, again) = bench.sent().expect("placed again");
    assert_eq!((moved, again.attempt), (other, 2));
}

#[test]
fn request_without_an_engine_waits_and_fails_in_the_end() {
    let mut bench = bench();
    let mut reader = bench.submit();
    bench.relay.poll(bench.now);
    bench.now += Duration::from_secs(59);
    assert!(bench.sent().is_none());
    assert_eq!(read(&mut reader).1, None);
    bench.now += Duration::from_secs(1);
    assert!(bench.sent().is_none());
    assert_eq!(read(&mut reader).1, Some(End::Failed(FailCode::NoEngine)));
}

#[test]
fn engine_that_does_not_answer_costs_a_request_none_of_its_wait() {
    let mut bench = bench();
    bench.show(&[A, B]);
    let mut reader = bench.submit();
    let (first, run) = bench.sent().expect("placed");
    bench.now += RelayConfig::default().unplaced_max;
    let name = (run.handle, run.attempt);
    let outcome = SubmitOutcome::Unanswered;
    bench.relay.on_submitted(first, name, &outcome, bench.now);
    let (second, _) = bench.sent().expect("placed again");
    assert_ne!(second, first);
    assert_eq!(read(&mut reader).1, None);
}

#[test]
fn engine_that_nobody_listens_for_loses_its_silent_requests() {
    let silence = RelayConfig::default().silence;
    let mut bench = bench();
    bench.show(&[A]);
    let (_reader, run) = bench.running();
    bench.show(&[A, B]);
    bench.relay.on_no_engine(A, bench.now);
    assert!(bench.sent().is_none(), "heard a moment ago");
    bench.now += silence;
    bench.relay.on_no_engine(A, bench.now);
    let (engine, again) = bench.sent().expect("placed again");
    assert_eq!((engine, again.attempt), (B, run.attempt + 1));
    bench.answer(B, &again, RunReply::Accepted);
    bench.relay.set_connected(false, bench.now);
    bench.relay.set_connected(true, bench.now);
    bench.now += silence;
    bench.relay.on_no_engine(B, bench.now);
    assert!(bench.sent().is_none(), "the engine may not be back yet");
}
