//! Each early end of a stream, and the resources that it frees.

use crate::support::{Bench, bench, model};
use engine::{
    Constraint, EngineConfig, Next, Phase, Rejected, Request, SamplingParams, StopCondition,
};
use std::time::Duration;
use stream::{End, FailCode, Stop};

fn long() -> Vec<u32> {
    (0..100).map(|i| 1 + i % 50).collect()
}

#[test]
fn cancel_stops_a_decode_within_one_step() {
    let mut bench = bench();
    let mut asked = bench.ask(bench.request(&[1, 2], 50), 1);
    bench.step();
    bench.step();
    bench.handle.cancel(asked.id);
    assert_eq!(bench.step().rows, 0);
    assert_eq!(asked.answers[0].seen(), (2, Some(End::Cancelled)));
    bench.assert_empty();
    bench.handle.cancel(asked.id);
    bench.run();
}

#[test]
fn cancel_stops_a_prefill_between_chunks() {
    let mut bench = bench();
    let mut asked = bench.ask(bench.request(&long(), 5), 2);
    bench.step();
    bench.handle.cancel(asked.id);
    assert_eq!(bench.step().rows, 0);
    assert_eq!(asked.answers[0].seen(), (0, Some(End::Cancelled)));
    assert_eq!(
        (asked.progress.prompt_done(), asked.progress.phase()),
        (16, Phase::Ended)
    );
    bench.assert_empty();
}

#[test]
fn cancel_ends_a_queued_request() {
    let mut bench = bench();
    let mut asked = bench.ask(bench.request(&[1], 5), 1);
    bench.handle.cancel(asked.id);
    assert_eq!(bench.step().rows, 0);
    assert_eq!(asked.answers[0].seen(), (0, Some(End::Cancelled)));
    bench.assert_empty();
}

#[test]
fn late_cancel_does_not_reach_the_next_request_of_the_slot() {
    let mut bench = bench();
    let mut first = bench.ask(bench.request(&[1], 1), 1);
    bench.run();
    let mut second = bench.ask(bench.request(&[1], 3), 1);
    bench.handle.cancel(first.id);
    bench.handle.cancel(engine::RequestId(u64::MAX));
    bench.run();
    assert_eq!(first.answers[0].seen(), (1, Some(End::Length)));
    assert_eq!(second.answers[0].seen(), (3, Some(End::Length)));
}

#[test]
fn dropped_reader_ends_its_choice_alone() {
    let mut bench = bench();
    let mut asked = bench.ask(bench.request(&[1, 2], 20), 2);
    bench.step();
    asked.answers[0].reader = None;
    bench.run();
    asked.answers[1].read();
    assert_eq!(asked.answers[1].end, Some(End::Length));
    assert_eq!(bench.handle.stats().endings().cancelled, 1);
    bench.assert_empty();
}

#[test]
fn cancelled_leader_hands_the_prefill_over() {
    let mut bench = bench();
    let mut asked = bench.ask(bench.request(&long(), 3), 3);
    bench.step();
    asked.answers[0].reader = None;
    bench.run();
    let rows = bench.handle.stats().rows();
    assert_eq!(rows, 100 + 2 * 2, "nothing was computed twice");
    for answer in &mut asked.answers[1..] {
        answer.read();
        assert_eq!((answer.tokens.len(), answer.end), (3, Some(End::Length)));
    }
}

#[test]
fn deadline_ends_queued_prefilling_and_running_requests() {
    let config = EngineConfig {
        sequences_max: 2,
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(model(), config);
    let mut all: Vec<_> = [vec![1], long(), vec![2]]
        .iter()
        .map(|prompt| {
            let request = Request {
                deadline: Some(bench.now + Duration::from_millis(4)),
                ..bench.request(prompt, 50)
            };
            bench.ask(request, 1)
        })
        .collect();
    for _ in 0..3 {
        bench.step();
    }
    let phases: Vec<_> = all.iter().map(|asked| asked.progress.phase()).collect();
    assert_eq!(phases, [Phase::Running, Phase::Prefilling, Phase::Queued]);
    bench.step();
    for asked in &mut all {
        assert_eq!(asked.answers[0].seen().1, Some(End::Deadline));
    }
    bench.assert_empty();
}

#[test]
fn only_the_sequence_of_a_silent_reader_is_parked() {
    let mut bench = bench();
    let stalled = Request {
        credit_window: 5,
        ..bench.request(&[1, 2, 3], 12)
    };
    let mut stalled = bench.ask(stalled, 1);
    let mut other = bench.ask(bench.request(&[1, 2, 4], 40), 1);
    for tokens in 1..=40 {
        bench.step();
        assert_eq!(other.answers[0].seen().0, tokens);
    }
    assert_eq!(stalled.progress.phase(), Phase::Parked);
    assert_eq!(bench.handle.stats().parked(), 1);
    let idle = bench.step();
    assert_eq!(idle.rows, 0);
    assert!(matches!(idle.next, Next::Wait(_)), "{:?}", idle.next);

    assert_eq!(stalled.answers[0].seen(), (5, None));
    bench.step();
    assert_eq!(stalled.progress.phase(), Phase::Running);
    bench.steps(9);
    assert_eq!(stalled.answers[0].seen(), (10, None));
    bench.run();
    assert_eq!(stalled.answers[0].seen(), (12, Some(End::Length)));
    assert_eq!(bench.handle.stats().parks(), 2);
}

#[test]
fn parked_sequence_is_preempted_for_a_running_one() {
    let mut small = model();
    small.dims.pages = 10;
    let mut bench = Bench::new(small, EngineConfig::default());
    let slow = Request {
        credit_window: 2,
        ..bench.request(&long()[..24], 6)
    };
    let mut slow = bench.ask(slow, 1);
    bench.steps(4);
    assert_eq!(bench.handle.stats().pages_used(), 7);
    let mut other = bench.ask(bench.request(&long()[30..54], 6), 1);
    for _ in 0..10 {
        bench.step();
    }
    assert_eq!(other.answers[0].seen(), (6, Some(End::Length)));
    assert_eq!(bench.handle.stats().preemptions(), 1);
    assert_eq!(slow.progress.phase(), Phase::Parked);
    while slow.answers[0].end.is_none() {
        slow.answers[0].seen();
        bench.step();
    }
    let expected = Bench::new(model(), EngineConfig::default());
    let mut expected = expected;
    let alone = expected.answer(expected.request(&long()[..24], 6));
    assert_eq!(slow.answers[0].ids(), alone.ids());
}

/// A stop condition that calls a function at the given token.
struct At(usize, fn() -> Option<u16>);

impl StopCondition for At {
    fn push(&mut self, _: u32) -> Option<u16> {
        self.0 -= 1;
        if self.0 == 0 { (self.1)() } else { None }
    }
}

#[test]
fn stop_string_ends_the_choice_after_its_last_token() {
    let mut bench = bench();
    let mut request = bench.request(&[1, 2], 20);
    let answer = bench.choice(&mut request);
    request.choices[0].terminator = Some(Box::new(At(3, || Some(7))));
    let mut asked = bench.submit(request, vec![answer]);
    bench.run();
    assert_eq!(
        asked.answers[0].seen(),
        (3, Some(End::Stop(Stop::StopString(7))))
    );
}

#[test]
fn panicking_callback_ends_its_request_only() {
    crate::support::quiet_expected_panics();
    let mut bench = bench();
    let mut request = bench.request(&[1, 2], 20);
    let answers = vec![bench.choice(&mut request), bench.choice(&mut request)];
    request.choices[1].terminator = Some(Box::new(At(3, || panic!("simulated"))));
    let mut asked = bench.submit(request, answers);
    let mut other = bench.ask(bench.request(&[3, 4], 20), 1);
    bench.run();
    for answer in &mut asked.answers {
        answer.read();
        assert_eq!(
            (answer.tokens.len(), answer.end),
            (3, Some(End::Failed(FailCode::Panic)))
        );
    }
    assert_eq!(other.answers[0].seen(), (20, Some(End::Length)));
    bench.assert_empty();
}

/// A constraint that counts up from 10 to a last token.
struct Counting(u32, u32);

impl Constraint for Counting {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        allowed[self.0 as usize / 32] |= 1 << (self.0 % 32);
        true
    }
    fn accept(&mut self, token: u32) {
        assert_eq!(token, self.0);
        self.0 += 1;
    }
    fn is_complete(&self) -> bool {
        self.0 > self.1
    }
}

#[test]
fn constraint_restricts_and_completes_an_answer() {
    for temperature in [0.0, 1.0] {
        let mut bench = bench();
        let mut request = Request {
            sampling: SamplingParams {
                temperature,
                ..SamplingParams::default()
            },
            ..bench.request(&[1, 2], 20)
        };
        let answer = bench.choice(&mut request);
        request.choices[0].constraint = Some(Box::new(Counting(30, 34)));
        let mut asked = bench.submit(request, vec![answer]);
        bench.run();
        assert_eq!(asked.answers[0].seen(), (5, Some(End::Stop(Stop::Eos))));
        assert_eq!(asked.answers[0].ids(), [30, 31, 32, 33, 34]);
    }
}

#[test]
fn shutdown_drains_until_the_deadline_and_ends_the_rest() {
    let mut bench = bench();
    let mut short = bench.ask(bench.request(&[1], 3), 1);
    let mut long = bench.ask(bench.request(&[2], 100), 1);
    bench.step();
    bench.handle.shutdown(bench.now + Duration::from_millis(10));
    let refused = bench.request(&[3], 1);
    let refused = bench.handle.submit(Request {
        choices: {
            let mut with_choice = bench.request(&[3], 1);
            bench.choice(&mut with_choice);
            with_choice.choices
        },
        ..refused
    });
    assert!(matches!(refused, Err(Rejected::Closed(_))));
    let mut last = bench.step();
    while last.next != Next::Leave {
        last = bench.step();
    }
    assert_eq!(short.answers[0].seen(), (3, Some(End::Length)));
    assert_eq!(
        long.answers[0].seen(),
        (10, Some(End::Failed(FailCode::Shutdown)))
    );
    bench.assert_empty();
}
