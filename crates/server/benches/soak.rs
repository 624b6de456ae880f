//! The soak for as long as one likes: `cargo xtask soak --minutes 10 --seed 1 --actors 24 --pause-ms 10`. With
//! `--hostile` the actors also cut, reset, storm and send malformed bytes (100 of them unless said otherwise). Fails
//! when anything is left.
#![expect(clippy::print_stdout, reason = "the figures")]

mod load;
#[path = "../tests/it/soak/mod.rs"]
mod soak;
#[path = "../tests/it/support/mod.rs"]
mod support;

use load::process::Process;
use load::{argument, now};
use soak::scene::Limits;
use soak::{deeds, hostile, scene};
use std::time::Duration;

/// Somewhat less than what its actors would do.
const LIMITS: Limits = Limits {
    requests_per_min: 8_000,
    tokens_per_min: 800_000,
};

fn main() {
    let minutes = argument("--minutes", 10.0);
    let is_hostile = std::env::args().any(|arg| arg == "--hostile");
    let deeds = if is_hostile {
        [&deeds::DEEDS[..], &hostile::HOSTILE[..]].concat()
    } else {
        deeds::DEEDS.to_vec()
    };
    let actors_default = if is_hostile { 100.0 } else { 24.0 };
    let (seed, actors) = (
        argument("--seed", 1.0) as u64,
        argument("--actors", actors_default) as u64,
    );
    let pause = Duration::from_secs_f64(argument("--pause-ms", 10.0) / 1e3);
    let rig = scene::rig(LIMITS);
    // Warm: what is kept for good is there.
    scene::soak(&rig, &deeds, actors, seed + 1, pause, |done| done < 50);
    scene::expect_nothing_left(&rig, usize::MAX);
    let (threads, resident) = (scene::threads(), Process::own().resident());
    let until = now() + Duration::from_secs_f64(minutes * 60.0);
    let tallies = scene::soak(&rig, &deeds, actors, seed, pause, |_| now() < until);
    scene::expect_nothing_left(&rig, threads);
    for line in scene::table(&deeds, &tallies) {
        println!("{line}");
    }
    let stats = rig.engine.stats();
    println!(
        "soak: {minutes} minutes, seed {seed}, {actors} actors, mean pause {pause:?}: {} deeds, {} tokens in {} steps, \
         {} parks, {} pauses, {} preemptions; nothing left; {threads} threads; resident {} -> {} KiB",
        tallies.iter().flatten().sum::<u64>(),
        stats.tokens_generated(),
        stats.steps(),
        stats.parks(),
        stats.pauses(),
        stats.preemptions(),
        resident >> 10,
        Process::own().resident() >> 10,
    );
}
