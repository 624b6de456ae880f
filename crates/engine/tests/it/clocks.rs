//! Clocks, pauses, and the notifications of both.
//!
//! Promise (Engine): a stream's own statistics are those of its history: parks, resumes, stalls (also while the
//! engine sleeps), waits, inter-token times.
//! Also held by `engine/tests/it/observers.rs`, `server/tests/it/metrics.rs :: stream_has_its_own_metrics`,
//! `server/tests/it/metrics.rs :: queued_stream_reports_its_waiting_time`.

use crate::support::watched::Watched;
use crate::support::{Asked, Bench};
use engine::fake::FakeConfig;
use engine::{
    Clocks, EngineConfig, Next, ParkReason, Phase, Policy, Priority, Request, RequestId, Terms,
    Transition, Tuning,
};
use model::Dims;
use std::time::Duration;
use stream::{Clock, End};

/// Four rows in a step.
pub(crate) fn model() -> FakeConfig {
    FakeConfig {
        dims: Dims {
            vocab: 64,
            context_max: 256,
            page_tokens: 4,
            pages: 128,
            rows_max: 4,
            logit_rows_max: 4,
        },
        tokens: 1..60,
        ..FakeConfig::default()
    }
}

fn bench(sequences_max: usize) -> (Bench, Watched) {
    let config = EngineConfig {
        sequences_max,
        slow_consumer: ms(20),
        ..EngineConfig::default()
    };
    let mut bench = Bench::new(model(), config);
    let watched = Watched::default();
    bench.engine.observe(watched.observer());
    (bench, watched)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn on(clocks: Clocks) -> Terms {
    Terms {
        clocks,
        ..Terms::default()
    }
}

fn ask(bench: &Bench, prompt: &[u32], terms: Terms, credit_window: u64) -> Asked {
    let request = Request {
        terms,
        credit_window,
        ..bench.request(prompt, 200)
    };
    bench.ask(request, 1)
}

/// A clock, its setting, and a request whose clock runs out after 30 ms, in a busy engine of one
/// sequence (`Queue`) or of ten.
const CLOCKS: [(Clock, usize, Clocks); 5] = {
    let off = Clocks {
        queue: None,
        first_token: None,
        idle: None,
        total: None,
        reader: None,
    };
    let queue = Clocks {
        queue: Some(ms(30)),
        ..off
    };
    let first_token = Clocks {
        first_token: Some(ms(30)),
        ..off
    };
    let idle = Clocks {
        idle: Some(ms(30)),
        ..off
    };
    let total = Clocks {
        total: Some(ms(30)),
        ..off
    };
    let reader = Clocks {
        reader: Some(ms(30)),
        ..off
    };
    [
        (Clock::Queue, 1, queue),
        (Clock::FirstToken, 10, first_token),
        (Clock::Idle, 10, idle),
        (Clock::Total, 10, total),
        (Clock::Reader, 10, reader),
    ]
};

/// Promise (Engine): a fired timeout frees its pages within one step.
#[test]
fn expired_clock_stops_the_work_within_one_step() {
    for (clock, places, clocks) in CLOCKS {
        let (mut bench, watched) = bench(places);
        let urgent = Terms {
            priority: Priority::Critical,
            ..Terms::default()
        };
        let prompt = [7; 180];
        let (prompt, window) = match clock {
            Clock::FirstToken => (&prompt[..], 0),
            Clock::Reader => (&prompt[..1], 3),
            _ => (&prompt[..1], 0),
        };
        let mut busy = match clock {
            Clock::Queue => vec![ask(&bench, &[1], urgent, 0)],
            _ => Vec::new(),
        };
        let mut asked = ask(&bench, prompt, on(clocks), window);
        let mut begins = bench.now + ms(1);
        if clock == Clock::Idle {
            // It generates, and then others have all the rows, after at most ten steps.
            bench.steps(5);
            busy.extend((0..5).map(|i| ask(&bench, &[i], urgent, 0)));
            begins = bench.now + ms(10);
        }
        if clock == Clock::Reader {
            begins += ms(3);
        }
        let fires = begins + ms(30);
        while bench.handle.stats().timed_out(clock) == 0 {
            assert!(bench.now < fires, "{clock:?} does not fire");
            bench.step();
        }
        let early = if clock == Clock::Idle { ms(9) } else { ms(0) };
        assert!(bench.now + early >= fires, "{clock:?} fires early");
        asked.answers[0].read();
        assert_eq!(asked.answers[0].end, Some(End::TimedOut(clock)));
        busy.iter().for_each(|busy| bench.handle.cancel(busy.id));
        // The pages of the one that timed out are free already: only the others' are left to free.
        if busy.is_empty() {
            assert_eq!(bench.handle.stats().pages_used(), 0, "{clock:?}");
        }
        bench.step();
        bench.assert_empty();
        let stats = bench.handle.stats();
        assert_eq!((stats.timed_out(clock), stats.endings().timed_out), (1, 1));
        assert_eq!(watched.end(asked.id), End::TimedOut(clock));
    }
}

#[test]
fn clocks_count_from_the_given_arrival() {
    let (mut bench, _) = bench(1);
    bench.steps(50);
    let clocks = Clocks {
        total: Some(ms(30)),
        ..Clocks::default()
    };
    let terms = Terms {
        since: Some(bench.now - ms(25)),
        ..on(clocks)
    };
    let mut asked = ask(&bench, &[1], terms, 0);
    bench.steps(4);
    assert_eq!(asked.answers[0].seen(), (4, None));
    bench.step();
    assert_eq!(asked.answers[0].seen().1, Some(End::TimedOut(Clock::Total)));
    let first = bench.handle.stats().time_to_first_token();
    assert!((ms(26).as_nanos()..ms(28).as_nanos()).contains(&first.sum_ns.into()));
}

#[test]
fn expired_reader_clock_follows_its_policy() {
    let rows = [
        (Policy::Keep, vec![]),
        (
            Policy::Detach,
            vec![Transition::Parked {
                reason: ParkReason::Detached,
            }],
        ),
    ];
    for (policy, more) in rows {
        let (mut bench, watched) = bench(4);
        let terms = Terms {
            policy,
            ..on(CLOCKS[4].2)
        };
        let mut asked = ask(&bench, &[1, 2], terms, 5);
        bench.steps(100);
        let mut expected = vec![
            Transition::Queued,
            Transition::Started,
            Transition::FirstToken,
            Transition::Backpressure,
            Transition::SlowConsumer,
        ];
        expected.extend(more);
        assert_eq!(watched.of(asked.id), expected);
        assert_eq!(asked.progress.phase(), Phase::Parked);
        let next = bench.step().next;
        let look = bench.now + engine::WAIT_MAX;
        assert_eq!(next, Next::Wait(look), "no clock that is to ring is left");
        // From the 6th step's head on.
        let now_ns = |bench: &Bench| (bench.now - bench.handle.epoch()).as_nanos() as u64;
        let stalled = asked.progress.stalled_ns(now_ns(&bench));
        assert_eq!(u128::from(stalled), ms(101 - 6).as_nanos());
        let later = asked.progress.stalled_ns(now_ns(&bench) + 7);
        assert_eq!(later, stalled + 7, "also while nobody steps");
        assert_eq!(bench.handle.stats().reader_stall_ns(), stalled);

        assert_eq!(asked.answers[0].seen(), (5, None), "nothing is lost");
        bench.step();
        expected.push(Transition::Resumed);
        assert_eq!(watched.of(asked.id), expected);
        bench.handle.cancel(asked.id);
        bench.step();
        assert_eq!(watched.end(asked.id), End::Cancelled);
    }
}

#[test]
fn reader_of_one_token_at_a_time_causes_one_backpressure() {
    let (mut bench, watched) = bench(4);
    let mut asked = ask(&bench, &[1, 2], Terms::default(), 8);
    let reader = asked.answers[0].reader.as_mut().expect("a reader");
    bench.steps(10);
    for tokens in 1..100 {
        reader.accept(tokens);
        bench.steps(2);
    }
    let told = watched.of(asked.id);
    assert_eq!(told[3..], [Transition::Backpressure], "{told:?}");
    assert_eq!(bench.handle.stats().parks(), 100);
    let progress = &asked.progress;
    assert_eq!((progress.parks(), progress.resumes()), (100, 99));
}

#[test]
fn paused_request_stops_while_its_total_clock_runs() {
    let clocks = Clocks {
        queue: Some(ms(30)),
        first_token: Some(ms(40)),
        idle: Some(ms(5)),
        total: Some(ms(200)),
        reader: Some(ms(5)),
    };
    let (mut bench, watched) = bench(4);
    let mut other = ask(&bench, &[9], Terms::default(), 0);
    let mut asked = ask(&bench, &[7; 24], on(clocks), 0);
    let pause = |bench: &mut Bench, asked: &Asked| {
        bench.handle.pause(asked.id);
        bench.handle.pause(asked.id);
        bench.steps(40);
        assert_eq!(asked.progress.phase(), Phase::Paused);
        assert_eq!(
            bench.handle.stats().paused() + bench.handle.stats().queued(),
            1
        );
        bench.handle.resume(asked.id);
    };
    pause(&mut bench, &asked); // In the queue.
    bench.steps(3);
    assert_eq!(asked.progress.phase(), Phase::Prefilling);
    pause(&mut bench, &asked);
    bench.steps(10);
    assert_eq!(asked.progress.phase(), Phase::Running);
    let (before, _) = asked.answers[0].seen();
    pause(&mut bench, &asked);
    assert_eq!(asked.answers[0].seen(), (before, None));
    bench.steps(5);
    assert_eq!(asked.answers[0].seen(), (before + 5, None));
    bench.handle.pause(asked.id);
    bench.steps(200 - 40 * 3 - 18);
    assert_eq!(asked.answers[0].seen().1, None);
    bench.step();
    assert_eq!(asked.answers[0].seen().1, Some(End::TimedOut(Clock::Total)));
    assert_eq!(
        other.answers[0].seen(),
        (200, Some(End::Length)),
        "nobody else"
    );
    assert_eq!(watched.end(asked.id), End::TimedOut(Clock::Total));
    let alone = bench.answer(bench.request(&[7; 24], 40)).ids();
    assert!(
        alone.starts_with(&asked.answers[0].ids()),
        "the same tokens"
    );
}

#[test]
fn late_pause_does_not_reach_the_next_request_of_the_slot() {
    let (mut bench, _) = bench(4);
    let first = bench.ask(bench.request(&[1], 1), 1);
    bench.run();
    let mut second = bench.ask(bench.request(&[1], 3), 1);
    bench.handle.pause(second.id);
    bench.handle.resume(first.id);
    bench.handle.pause(RequestId(u64::MAX));
    bench.steps(5);
    assert_eq!(second.answers[0].seen(), (0, None), "paused all the same");
    bench.handle.resume(second.id);
    bench.handle.pause(first.id);
    bench.run();
    assert_eq!(second.answers[0].seen(), (3, Some(End::Length)));
}

#[test]
fn paused_request_resumes_when_all_handles_are_dropped() {
    let (mut bench, _) = bench(4);
    let mut asked = ask(&bench, &[1], Terms::default(), 0);
    bench.handle.pause(asked.id);
    bench.steps(3);
    let other = Bench::new(model(), EngineConfig::default()).handle;
    drop(std::mem::replace(&mut bench.handle, other));
    bench.run();
    assert_eq!(asked.answers[0].seen(), (200, Some(End::Length)));
}

#[test]
fn changed_threshold_applies_from_the_next_step() {
    let (mut bench, _) = bench(1);
    let config = EngineConfig {
        slow_consumer: ms(5000),
        ..EngineConfig::default()
    };
    bench.handle.tune(Tuning::from(&config));
    let asked = ask(&bench, &[1], Terms::default(), 3);
    bench.steps(100);
    assert_eq!(asked.progress.phase(), Phase::Parked);
    assert_eq!(bench.handle.stats().slow_consumers(), 0, "not after 5 s");
    bench.handle.tune(Tuning {
        slow_consumer: ms(50),
        ..Tuning::from(&config)
    });
    bench.steps(2);
    assert_eq!(bench.handle.stats().slow_consumers(), 1);
}
