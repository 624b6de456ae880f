//! The soak for as long as one likes: `cargo xtask soak --minutes 10 --seed 1 --actors 24`. Fails when anything
//! is left.
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../tests/soak/actor.rs"]
mod actor;
mod load;
#[path = "../tests/soak/scene.rs"]
mod scene;
#[path = "../tests/support/mod.rs"]
mod support;

use load::process::Process;
use load::{argument, now};
use std::time::Duration;

fn main() {
    let minutes = argument("--minutes", 10.0);
    let (seed, actors) = (
        argument("--seed", 1.0) as u64,
        argument("--actors", 24.0) as u64,
    );
    let rig = scene::rig();
    // Warm: what is kept for good is there.
    scene::soak(&rig, actors, seed + 1, |done| done < 50);
    scene::expect_nothing_left(&rig, usize::MAX);
    let (threads, resident) = (scene::threads(), Process::own().resident());
    let until = now() + Duration::from_secs_f64(minutes * 60.0);
    let tally = scene::soak(&rig, actors, seed, |_| now() < until);
    scene::expect_nothing_left(&rig, threads);
    for ((name, _), (done, refused)) in actor::DEEDS.iter().zip(tally) {
        println!("{name:>16}: {done} times, {refused} refused");
    }
    let stats = rig.engine.stats();
    println!(
        "soak: {minutes} minutes, seed {seed}, {actors} actors: {} deeds, {} tokens in {} steps, {} parks, {} pauses, \
         {} preemptions; nothing left; {threads} threads; resident {} -> {} KiB",
        tally.iter().map(|deed| deed.0).sum::<u64>(),
        stats.tokens_generated(),
        stats.steps(),
        stats.parks(),
        stats.pauses(),
        stats.preemptions(),
        resident >> 10,
        Process::own().resident() >> 10,
    );
}
