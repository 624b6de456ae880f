//! The server that is soaked, and what must be left of a soak: nothing.

use super::deeds::{Actor, Deed, Outcome, Tally, field};
use crate::support::exported::Exported;
use crate::support::owners::key;
use crate::support::{Rig, fake, wait_until};
use engine::fake::FakeConfig;
use server::{
    AdaptiveLimits, Key, KeyLimits, Keys, QueueLimits, Scope, Scopes, ServerConfig, StreamLimits,
};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// Tokens a stream may be ahead of its reader.
pub(crate) const WINDOW: usize = 16;
/// The key that sees everything.
pub(crate) const WATCHER: &str = "watcher";
/// The actors' keys, in turn: one with few streams, one with few requests and tokens, one without limits.
const KEYS: [&str; 3] = ["few-streams", "few-tokens", "free"];
/// Streams that the first may have open.
const STREAMS: u32 = 4;

/// What the second may do in a minute.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) requests_per_min: u32,
    pub(crate) tokens_per_min: u32,
}

/// How often each deed had each outcome.
pub(crate) type Tallies = Vec<Tally>;

/// Few places, little credit, little memory, short times: everything that can happen does.
pub(crate) fn rig(limits: Limits) -> Rig {
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
            min_streams: 8,
            max_streams: 20,
            adjustment_interval: Duration::from_millis(200),
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: 24,
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
        credit_window: WINDOW as u64,
        send_buffer_bytes: 4096,
        keep_alive: Duration::from_millis(50),
        header_timeout: Duration::from_millis(500),
        body_timeout: Duration::from_millis(500),
        ..crate::support::config()
    };
    let rig = Rig::behind(model, config, Arc::new(keys(limits)));
    rig.gate.open();
    rig
}

fn keys(limits: Limits) -> Keys {
    let few_streams = KeyLimits {
        concurrent_streams: NonZeroU32::new(STREAMS),
        ..KeyLimits::default()
    };
    let few_tokens = KeyLimits {
        requests_per_min: NonZeroU32::new(limits.requests_per_min),
        tokens_per_min: NonZeroU32::new(limits.tokens_per_min),
        ..KeyLimits::default()
    };
    let key = |name: &str, limits| Key {
        limits,
        ..key(name, name, &[Scope::Inference])
    };
    let [a, b, c] = KEYS;
    let keys = [
        key(a, few_streams),
        key(b, few_tokens),
        key(c, KeyLimits::default()),
        Key {
            scopes: Scopes::all(),
            ..key(WATCHER, KeyLimits::default())
        },
    ];
    Keys::new(&keys).expect("keys that can be")
}

/// Runs this many actors at once until each has had enough; `more` is asked before each deed, with
/// how many that actor has done. `pause`: the mean time between two deeds of an actor.
pub(crate) fn soak(
    rig: &Rig,
    deeds: &[Deed],
    actors: u64,
    seed: u64,
    pause: Duration,
    more: impl Fn(u64) -> bool + Sync,
) -> Tallies {
    let one = |n: u64| {
        let keys = [0, 1].map(|next| KEYS[(n as usize + next) % KEYS.len()]);
        let mut actor = Actor::new(seed.wrapping_mul(1000) + n, keys);
        let mut tallies = vec![Tally::default(); deeds.len()];
        let mut done = 0;
        while more(done) {
            actor.rest(pause);
            let (which, outcome) = actor.act(deeds, rig);
            tallies[which][outcome as usize] += 1;
            done += 1;
        }
        tallies
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..actors).map(|n| scope.spawn(move || one(n))).collect();
        let mut sum = vec![Tally::default(); deeds.len()];
        for thread in threads {
            let tallies = thread.join().expect("what must not be did not happen");
            for (sum, one) in sum.iter_mut().zip(tallies) {
                for (sum, one) in sum.iter_mut().zip(one) {
                    *sum += one;
                }
            }
        }
        sum
    })
}

/// Each deed, and how often it had each outcome; then all of them.
pub(crate) fn table(deeds: &[Deed], tallies: &Tallies) -> Vec<String> {
    let line = |name: &str, tally: &Tally| {
        let outcomes = Outcome::ALL.iter().zip(tally);
        let told = outcomes.map(|((_, outcome), count)| format!("{count:>8} {outcome}"));
        format!("{name:>26}:{}", told.collect::<String>())
    };
    let mut all = Tally::default();
    for tally in tallies {
        for (sum, one) in all.iter_mut().zip(tally) {
            *sum += one;
        }
    }
    let lines = deeds
        .iter()
        .zip(tallies)
        .map(|((name, _), tally)| line(name, tally));
    lines.chain([line("all", &all)]).collect()
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
        // The one that asks. (WebSockets are connections.)
        ("millrace_connections_open", 1.0),
    ] {
        wait_until(name, || {
            let exported = Exported::told(rig, &field(WATCHER));
            let is = exported.samples.get(name);
            is.copied().unwrap_or_else(|| panic!("{name} is exported")) == left
        });
    }
    wait_until("segments are in the free list", || {
        (rig.tokens.stats().in_use, rig.top.stats().in_use) == (0, 0)
    });
    wait_until("no thread is left", || threads() <= threads_before);
}
