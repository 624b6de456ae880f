//! The server that is soaked, and what must be left of a soak: nothing.

use crate::actor::{Actor, DEEDS, Outcome};
use crate::support::exported::Exported;
use crate::support::{Rig, fake, wait_until};
use engine::fake::FakeConfig;
use server::{AdaptiveLimits, QueueLimits, ServerConfig, StreamLimits};
use std::time::Duration;

/// How often each deed was done, and refused.
pub(crate) type Tally = [(u64, u64); DEEDS.len()];

/// Few places, little credit, little memory, short times: everything that can happen does.
pub(crate) fn rig() -> Rig {
    let model = FakeConfig {
        eos_probability: 0.0,
        dims: model::Dims {
            pages: 256,
            ..fake().dims
        },
        ..fake()
    };
    let config = ServerConfig {
        adaptive_limits: AdaptiveLimits {
            max_streams: 20,
            adjustment_interval: Duration::from_millis(200),
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: 16,
            timeout: Duration::from_millis(500),
            ageing: Duration::from_millis(50),
        },
        streams: StreamLimits {
            retention: Duration::from_millis(200),
            retained_max: 16,
            detached_tokens: 10,
            detached_wait: Duration::from_millis(200),
            ..StreamLimits::default()
        },
        credit_window: 16,
        send_buffer_bytes: 4096,
        keep_alive: Duration::from_millis(50),
        header_timeout: Duration::from_millis(500),
        body_timeout: Duration::from_millis(500),
        ..crate::support::config()
    };
    Rig::with(model, config)
}

/// Runs this many actors at once until each has had enough; `more` is asked before each deed, with
/// how many that actor has done.
pub(crate) fn soak(rig: &Rig, actors: u64, seed: u64, more: impl Fn(u64) -> bool + Sync) -> Tally {
    let one = |n: u64| {
        let (mut actor, mut tally) = (Actor::new(seed.wrapping_mul(1000) + n), Tally::default());
        let mut done = 0;
        while more(done) {
            let (which, outcome) = actor.act(rig);
            tally[which].0 += 1;
            tally[which].1 += u64::from(outcome == Outcome::Refused);
            done += 1;
        }
        tally
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..actors).map(|n| scope.spawn(move || one(n))).collect();
        let mut sum = Tally::default();
        for thread in threads {
            let tally = thread.join().expect("what must not be did not happen");
            for (sum, one) in sum.iter_mut().zip(tally) {
                *sum = (sum.0 + one.0, sum.1 + one.1);
            }
        }
        sum
    })
}

/// Threads of this process.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Waits until no choice, page, segment, permit, ticket, registry entry, connection or thread is left beyond
/// what was there before.
pub(crate) fn expect_nothing_left(rig: &Rig, threads_before: usize) {
    rig.wait_until_empty();
    for (name, left) in [
        ("millrace_admission_streams{state=\"running\"}", 0.0),
        ("millrace_admission_waiting", 0.0),
        ("millrace_admission_pages{state=\"reserved\"}", 0.0),
        ("millrace_admission_prefill_pending_tokens", 0.0),
        ("millrace_streams{state=\"open\"}", 0.0),
        ("millrace_streams{state=\"retained\"}", 0.0),
        ("millrace_streams_retained_bytes", 0.0),
        ("millrace_answers_open", 0.0),
        ("millrace_attached_open", 0.0),
        ("millrace_pages{state=\"used\"}", 0.0),
        // The one that asks.
        ("millrace_connections_open", 1.0),
    ] {
        wait_until(name, || {
            let exported = Exported::from(rig);
            let is = exported.samples.get(name);
            is.copied().unwrap_or_else(|| panic!("{name} is exported")) == left
        });
    }
    wait_until("segments are in the free list", || {
        (rig.tokens.stats().in_use, rig.top.stats().in_use) == (0, 0)
    });
    wait_until("no thread is left", || threads() <= threads_before);
}
