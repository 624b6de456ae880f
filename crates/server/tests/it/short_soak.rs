//! A soak of some seconds: each deed is done, few find no room, and the server holds nothing afterwards.
//!
//! Promise (Hostile input and memory): a soak of twelve clients that do everything, in every wire protocol and over
//! WebSockets, under three keys of which two have limits, at random times, leaves nothing behind; each action
//! happens, and few find no room.
//! Also held by `cargo xtask soak`.
//!
//! Promise (Hostile input and memory): twelve hostile clients with 25 kinds of action (cut or slow heads and bodies,
//! RST and FIN at every stage, half-close, connection storms, pipelining, random bytes, mutated bodies, broken
//! chunks, absurd lengths, unread streams, bad cursors, foreign streams, WebSocket garbage), in every API, get no 5xx
//! except for overload, and leave nothing behind.
//! Also held by `cargo xtask soak --hostile`.

#![expect(clippy::print_stdout, reason = "the figures")]

use crate::soak::deeds::{self, DEEDS, Deed, Outcome};
use crate::soak::hostile::HOSTILE;
use crate::soak::scene::{self, Limits, Tallies};
use std::time::Duration;
use testing::child::run_in_child;

/// Actors of each soak, and what each of them does.
const ACTORS: u64 = 12;
const DEEDS_EACH: u64 = 60;

/// One test: each soak counts the threads of the process.
#[test]
fn soak_leaves_nothing_behind() {
    if run_in_child(soak_leaves_nothing_behind) {
        return;
    }
    let tallies = soaked(&DEEDS);
    let all = tallies.iter().flatten().sum::<u64>();
    for (outcome, name) in Outcome::ALL {
        let of = |tally: &deeds::Tally| tally[outcome as usize];
        let sum: u64 = tallies.iter().map(of).sum();
        match outcome {
            Outcome::Done => assert!(tallies.iter().all(|tally| of(tally) > 0), "each was done"),
            Outcome::NoRoom => assert!(sum * 5 < all, "{sum} found no room"),
            Outcome::OverLimit => assert!(sum > 0, "none was {name}"),
            Outcome::Gone => assert!(sum * 5 < all, "{sum} came {name}"),
        }
    }
    let hostile = soaked(&HOSTILE);
    let done = |tally: &deeds::Tally| tally[Outcome::Done as usize];
    assert!(
        hostile.iter().all(|tally| done(tally) > 0),
        "each hostile action was done"
    );
}

/// What came of each of these deeds, done by all actors at once on a server of its own.
fn soaked(deeds: &[Deed]) -> Tallies {
    let limits = Limits {
        requests_per_min: 150,
        tokens_per_min: 12_000,
    };
    let rig = scene::rig(limits);
    crate::support::wait_until("it serves", || {
        crate::support::client::get(rig.addr, "/health").head.status == 200
    });
    let threads = scene::threads();
    let pause = Duration::from_millis(1);
    let tallies = scene::soak(&rig, deeds, ACTORS, 1, pause, |done| done < DEEDS_EACH);
    for line in scene::table(deeds, &tallies) {
        println!("{line}");
    }
    assert_eq!(tallies.iter().flatten().sum::<u64>(), ACTORS * DEEDS_EACH);
    // Threads for long prompts end by themselves, a while after; there were none of them before.
    scene::expect_nothing_left(&rig, threads + 2);
    tallies
}
