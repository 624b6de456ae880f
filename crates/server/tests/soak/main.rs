//! Clients that come, stall, leave, come back, pause, cancel and err, all at once, from a seed; and nothing is left
//! of them. (Alone in its process: it counts the process's threads.) For longer: `cargo xtask soak`.

mod actor;
mod scene;
#[path = "../support/mod.rs"]
mod support;

#[test]
fn a_soak_leaves_nothing_behind() {
    const ACTORS: u64 = 12;
    const DEEDS_EACH: u64 = 60;
    let rig = scene::rig();
    support::wait_until("it serves", || {
        support::client::get(rig.addr, "/health").head.status == 200
    });
    let threads = scene::threads();
    let tally = scene::soak(&rig, ACTORS, 1, |done| done < DEEDS_EACH);
    assert_eq!(
        tally.iter().map(|deed| deed.0).sum::<u64>(),
        ACTORS * DEEDS_EACH
    );
    assert!(
        tally.iter().all(|deed| deed.0 > 0),
        "each happened: {tally:?}"
    );
    // Threads for long prompts end by themselves, a while after; there were none of them before.
    scene::expect_nothing_left(&rig, threads + 2);
}
