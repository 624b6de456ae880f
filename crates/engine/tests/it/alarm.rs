//! The time at which the engine wants to be stepped again, while all requests are parked.
//!
//! Promise (Engine): an engine whose sequences are all parked sleeps until news or a timeout.
//! Also held by `stream/tests/it/laws.rs`.

use crate::support::Bench;
use engine::fake::FakeConfig;
use engine::{Clocks, EngineConfig, Next, Policy, Request, Terms, WAIT_MAX};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A label, clocks, a deadline after the arrival, when the alarm follows after that, and whether the request ends then.
type Row = (&'static str, Clocks, Option<Duration>, Option<u64>, bool);

const NONE: Clocks = Clocks {
    queue: None,
    first_token: None,
    idle: None,
    total: None,
    reader: None,
};

const ROWS: [Row; 6] = [
    ("nothing rings", NONE, None, None, false),
    (
        "total, from its coming",
        Clocks {
            total: Some(ms(300)),
            ..NONE
        },
        None,
        Some(301),
        true,
    ),
    (
        "reader, from its parking",
        Clocks {
            reader: Some(ms(40)),
            ..NONE
        },
        None,
        Some(46),
        true,
    ),
    (
        "idle does not run while it is parked",
        Clocks {
            idle: Some(ms(50)),
            ..NONE
        },
        None,
        None,
        false,
    ),
    ("its deadline", NONE, Some(ms(77)), Some(77), true),
    (
        "a clock that rang rings no more",
        Clocks {
            first_token: Some(ms(2)),
            ..NONE
        },
        None,
        None,
        false,
    ),
];

/// The reader accepts nothing: five tokens come in five steps of a millisecond, and in the sixth the request is parked.
#[test]
fn parked_request_is_checked_when_a_clock_runs_out() {
    for (label, clocks, deadline, rings_ms, ends) in ROWS {
        let config = EngineConfig {
            slow_consumer: ms(3_600_000),
            ..EngineConfig::default()
        };
        let fake = FakeConfig {
            eos_probability: 0.0,
            ..FakeConfig::default()
        };
        let mut bench = Bench::new(fake, config);
        let began = bench.now;
        let request = Request {
            terms: Terms {
                clocks,
                policy: Policy::Cancel,
                ..Terms::default()
            },
            deadline: deadline.map(|after| began + after),
            credit_window: 5,
            ..bench.request(&[1, 2], 100)
        };
        let _asked = bench.ask(request, 1);
        bench.steps(9);
        let Next::Wait(until) = bench.step().next else {
            panic!("{label}: it stands still");
        };
        let rings = rings_ms.map_or(bench.now + WAIT_MAX, |at| began + ms(at));
        assert_eq!(until, rings, "{label}: {:?} from its coming", until - began);
        let ended = bench.engine.step(until).ended;
        assert_eq!(ended, usize::from(ends), "{label}");
    }
}
