//! Messages, orders, reads and expiry of attempts.

use super::super::{ENDED_KEPT_MAX, ENDED_WAIT, GATEWAY_SILENCE, REPORT_AFTER};
use super::calls::{GATEWAY, apply, case, order, read, started, step};
use super::engine_process::{Case, EngineProcess, decode, epoch, sampled};
use crate::messages::{Attempt, OrderKind, Run, RunReply, TokenBatch};
use crate::names::InstanceId;
use engine::{Phase, RequestUpdate};
use std::time::Duration;
use stream::End;

#[test]
fn each_step_is_one_message_with_tokens_and_progress() {
    let mut process = started(3, 0);
    let (mut sent, mut phases) = ([0; 3], Vec::new());
    for _ in 0..20 {
        let messages = step(&mut process);
        assert!(messages.len() <= 1, "one gateway, one message");
        for batch in messages {
            phases.extend(batch.progress().iter().map(|progress| progress.phase));
            for run in batch.runs() {
                let sent = &mut sent[run.key.choice as usize];
                assert_eq!(run.key.first, *sent);
                assert_eq!(run.top.len(), run.tokens.len() * 2);
                *sent += run.tokens.len() as u32;
            }
        }
    }
    assert!(sent.iter().all(|&sent| sent >= 15), "{sent:?}");
    phases.dedup();
    assert_eq!(phases.last(), Some(&Phase::Running));
}

#[test]
fn gateways_get_messages_of_their_own() {
    let mut process = started(1, 0);
    let other = InstanceId(8);
    let run = process.run_of(&case(1, 0), other, 1);
    assert_eq!(process.submit(run), Some(RunReply::Accepted));
    for _ in 0..5 {
        process.step();
    }
    let messages = process.messages();
    let gateways: Vec<_> = messages.iter().map(|(gateway, _)| *gateway).collect();
    assert_eq!(gateways, [GATEWAY, other]);
    for (_, bytes) in messages {
        assert_eq!(decode(&bytes).runs().count(), 1);
    }
}

#[test]
fn orders_are_applied_once_and_in_order() {
    let mut process = started(1, 0);
    step(&mut process);
    apply(
        &mut process,
        &[order(2, OrderKind::Pause), order(0, OrderKind::Cancel)],
    );
    let before = step(&mut process);
    assert_eq!(
        before[0].progress().first().map_or(0, |p| p.orders_applied),
        0
    );
    apply(&mut process, &[order(1, OrderKind::Pause)]);
    let after = step(&mut process);
    assert_eq!(after[0].progress()[0].orders_applied, 1);
    apply(
        &mut process,
        &[order(1, OrderKind::Pause), order(2, OrderKind::Resume)],
    );
    apply(
        &mut process,
        &[order(1, OrderKind::Pause), order(1, OrderKind::Cancel)],
    );
    for _ in 0..3 {
        step(&mut process);
    }
    assert_eq!(
        process.engine.stats().running(),
        1,
        "it was resumed, not paused again"
    );
    apply(&mut process, &[order(3, OrderKind::Cancel)]);
    let ends: Vec<_> = (0..3).flat_map(|_| step(&mut process)).collect();
    let ends: Vec<_> = ends.iter().flat_map(TokenBatch::ends).collect();
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].end, End::Cancelled);
}

#[test]
fn engine_waits_for_credit_and_takes_it_in_advance() {
    let mut process = started(1, 5);
    let count = |process: &mut EngineProcess, steps: usize| -> usize {
        let batches: Vec<_> = (0..steps).flat_map(|_| step(process)).collect();
        let runs = batches.iter().flat_map(TokenBatch::runs);
        runs.map(|run| run.tokens.len()).sum()
    };
    assert_eq!(count(&mut process, 30), 5);
    let credit = |accepted| OrderKind::Credit {
        choice: 0,
        accepted,
    };
    apply(&mut process, &[order(0, credit(20))]);
    assert_eq!(count(&mut process, 60), 20, "5 beyond 20");
    apply(&mut process, &[order(0, credit(3))]);
    let elsewhere = OrderKind::Credit {
        choice: 9,
        accepted: 99,
    };
    apply(&mut process, &[order(0, elsewhere)]);
    assert_eq!(count(&mut process, 30), 0, "credit only grows");
}

#[test]
fn injected_tokens_come_with_the_progress_that_counts_them() {
    let mut process = started(2, 0);
    while step(&mut process)
        .iter()
        .all(|batch| batch.runs().count() < 2)
    {}
    let update = RequestUpdate {
        temperature: Some(0.3),
        inject: vec![104, 105, 104, 105],
        ..RequestUpdate::default()
    };
    apply(
        &mut process,
        &[order(1, OrderKind::Update(Box::new(update)))],
    );
    for _ in 0..10 {
        for batch in step(&mut process) {
            let injected = batch.runs().filter(|run| {
                let ids: Vec<u32> = run.tokens.iter().map(|token| token.id).collect();
                ids.windows(4).any(|ids| ids == [104, 105, 104, 105])
            });
            if injected.count() == 2 {
                let progress = batch.progress()[0];
                assert_eq!((progress.updates_applied, progress.orders_applied), (1, 1));
                return;
            }
        }
    }
    panic!("the update was not applied");
}

#[test]
fn silent_attempts_report_again() {
    let mut process = started(1, 0);
    apply(&mut process, &[order(1, OrderKind::Pause)]);
    for _ in 0..5 {
        step(&mut process);
    }
    assert!(process.messages().is_empty());
    process.now += REPORT_AFTER;
    let messages = process.messages();
    let progress = decode(&messages[0].1).progress()[0];
    assert_eq!(
        (progress.phase, progress.orders_applied),
        (Phase::Paused, 1)
    );
    assert!(process.messages().is_empty());
}

#[test]
fn reads_answer_what_was_sent_and_name_unknown_attempts() {
    let mut process = started(2, 0);
    let mut sent = 0;
    for _ in 0..30 {
        for batch in step(&mut process) {
            let runs = batch.runs().filter(|run| run.key.choice == 1);
            sent += runs.map(|run| run.tokens.len()).sum::<usize>();
        }
    }
    // This step's tokens are not sent, so no read has them.
    process.step();
    let answer = read(&mut process, &[(1, 1, 3), (1, 2, 0), (9, 1, 0)]);
    let first = answer.runs().find(|run| run.key.choice == 1).unwrap();
    assert_eq!(first.key.first, 3);
    let runs = answer.runs().filter(|run| run.key.choice == 1);
    assert_eq!(runs.map(|run| run.tokens.len()).sum::<usize>(), sent - 3);
    let unknown = [(1, 2), (9, 1)].map(|(handle, attempt)| Attempt { handle, attempt });
    assert_eq!(answer.unknown(), unknown);
    assert_eq!(answer.progress().len(), 1);
    let beyond = read(&mut process, &[(1, 1, u32::MAX)]);
    assert_eq!(beyond.runs().count(), 0);
}

#[test]
fn ended_attempts_are_kept_until_forgotten() {
    let mut process = started(1, 0);
    apply(&mut process, &[order(1, OrderKind::Cancel)]);
    step(&mut process);
    assert_eq!((process.attempts.open(), process.attempts.len()), (0, 1));
    let answer = read(&mut process, &[(1, 1, 0)]);
    assert_eq!(answer.ends()[0].end, End::Cancelled);
    let now = process.now;
    process
        .attempts
        .hear(GATEWAY, now + ENDED_WAIT - GATEWAY_SILENCE / 2);
    process
        .attempts
        .expire(now + ENDED_WAIT - Duration::from_secs(1));
    assert_eq!(process.attempts.len(), 1);
    process.attempts.expire(now + ENDED_WAIT);
    assert!(process.attempts.is_empty());
    let mut process = started(1, 0);
    apply(&mut process, &[order(0, OrderKind::Forget)]);
    assert!(process.attempts.is_empty());
    process.run_until_idle();
    assert_eq!(process.engine.stats().endings().cancelled, 1);
}

#[test]
fn ended_attempts_are_bounded() {
    let mut process = EngineProcess::new(epoch(), 16);
    let mut case = case(1, 0);
    case.params.max_tokens = Some(1);
    case.params.sampling.min_tokens = 1;
    let run = process.run_of(&case, GATEWAY, 1);
    for handle in 0..ENDED_KEPT_MAX as u64 + 20 {
        let run = Run {
            handle,
            ..run.clone()
        };
        assert_eq!(process.submit(run), Some(RunReply::Accepted));
        process.run_until_idle();
        process.messages();
    }
    process.attempts.expire(process.now);
    assert_eq!(process.attempts.len(), ENDED_KEPT_MAX);
    let answer = read(&mut process, &[(0, 1, 0), (ENDED_KEPT_MAX as u64, 1, 0)]);
    assert_eq!(answer.unknown()[0].handle, 0, "the oldest went first");
    assert_eq!(answer.ends().len(), 1);
}

#[test]
fn long_reads_fill_one_message_and_go_on_from_there() {
    let mut process = EngineProcess::new(epoch(), 16);
    let mut params = sampled(300);
    params.sampling.top_logprobs = 20;
    params.sampling.min_tokens = 300;
    let case = Case {
        label: "alternatives",
        params,
        n: 2,
        credit_window: 0,
    };
    let handles = 1..=40_u64;
    for handle in handles.clone() {
        let run = process.run_of(&case, GATEWAY, handle);
        assert_eq!(process.submit(run), Some(RunReply::Accepted));
        process.run_until_idle();
        // 2 * 300 * 21 entries of up to 9 bytes, for each request.
        process.messages();
    }
    let mut have = vec![0; handles.clone().count()];
    let mut rounds = 0;
    while have.iter().any(|&have| have < 300) {
        let entries: Vec<_> = handles
            .clone()
            .zip(&have)
            .map(|(h, &n)| (h, 1, n))
            .collect();
        let answer = read(&mut process, &entries);
        assert_eq!(
            answer.progress().len(),
            have.len(),
            "every entry is answered"
        );
        let mut reached = [vec![0; have.len()], vec![0; have.len()]];
        for run in answer.runs() {
            let reached = &mut reached[run.key.choice as usize][run.key.handle as usize - 1];
            *reached = (*reached).max(run.key.first + run.tokens.len() as u32);
        }
        for (at, have) in have.iter_mut().enumerate() {
            *have = (*have).max(reached[0][at].min(reached[1][at]));
        }
        rounds += 1;
        assert!(rounds < 100, "no progress");
    }
    assert!(rounds > 2, "one message has no room for all");
}
