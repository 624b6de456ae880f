//! How many requests an engine has, between two heartbeats and around one.

use super::tests::{MS, epoch, idle, new, prompt, request};
use super::*;

/// Places requests with these ids at an engine.
fn place(placement: &mut Placement, engine: &EngineLoad, ids: std::ops::Range<u64>, now: Instant) {
    for id in ids {
        let tokens = prompt(1000 * id as u32, 10);
        placement.placed(id, engine, &request(&tokens), now);
    }
}

#[test]
fn request_with_a_first_token_counts_before_the_next_heartbeat() {
    let now = epoch();
    for full in [1, 2] {
        let engines = [idle(1, now), idle(2, now)];
        let mut placement = new();
        place(&mut placement, &engines[full - 1], 0..8, now + 60 * MS);
        for id in 0..8 {
            placement.first_token(id, 0, now + 70 * MS);
        }
        let chosen = placement.choose(&engines, &request(&prompt(7, 10)), now + 80 * MS);
        assert_eq!(chosen, Some(InstanceId(3 - full as u64)));
    }
}

#[test]
fn request_that_ended_since_the_heartbeat_leaves_its_slot() {
    let now = epoch();
    for freed in [1, 2] {
        let mut engines = [idle(1, now), idle(2, now)];
        let mut placement = new();
        place(&mut placement, &engines[0], 0..8, now);
        place(&mut placement, &engines[1], 8..16, now);
        for id in 0..16 {
            placement.first_token(id, 0, now + 10 * MS);
        }
        for engine in &mut engines {
            (engine.running, engine.heard) = (8, now + 100 * MS);
        }
        // A heartbeat is processed before the ends.
        let tokens = prompt(7, 10);
        placement.choose(&engines, &request(&tokens), now + 100 * MS);
        let own = if freed == 1 { 0..8 } else { 8..16 };
        for id in own {
            placement.ended(id, &[], now + 110 * MS);
        }
        let chosen = placement.choose(&engines, &request(&tokens), now + 120 * MS);
        assert_eq!(chosen, Some(InstanceId(freed)));
        // The next heartbeat counts anew, without one that ended at the other engine.
        placement.ended(16 - 8 * freed, &[], now + 120 * MS);
        for engine in &mut engines {
            engine.heard = now + 200 * MS;
        }
        engines[2 - freed as usize].running = 7;
        let chosen = placement.choose(&engines, &request(&tokens), now + 210 * MS);
        assert_eq!(chosen, Some(InstanceId(3 - freed)));
    }
}

/// All requests begin at one time, and the heartbeat of the first engine arrives in the middle.
#[test]
fn request_that_a_heartbeat_counts_at_once_is_counted_once() {
    let now = epoch();
    for counted in 0..=4 {
        let mut engines = [idle(1, now), idle(2, now)];
        let mut placement = new();
        let mut placed = [0; 2];
        for id in 0..16u64 {
            let at = now + 60 * MS + id as u32 * MS;
            if id == 8 {
                (engines[0].heard, engines[0].running) = (at, counted);
            }
            let tokens = prompt(1000 * id as u32, 10);
            let chosen = placement.choose(&engines, &request(&tokens), at).unwrap();
            let chosen = chosen.0 as usize - 1;
            placement.placed(id, &engines[chosen], &request(&tokens), at);
            placed[chosen] += 1;
        }
        assert_eq!(placed, [8; 2], "{counted} were counted");
    }
}

#[test]
fn requests_of_other_gateways_are_those_that_are_not_own() {
    let now = epoch();
    let mut engines = [idle(1, now), idle(2, now)];
    let mut placement = new();
    place(&mut placement, &engines[0], 0..3, now);
    place(&mut placement, &engines[1], 3..5, now);
    let later = now + 250 * MS;
    for (engine, running) in engines.iter_mut().zip([7, 8]) {
        (engine.heard, engine.running) = (later, running);
        engine.prefill_pending = Some(0);
    }
    // Four of others at the first, six at the second, which gets two free slots as two requests end.
    let tokens = prompt(77_000, 10);
    let chosen = placement.choose(&engines, &request(&tokens), later);
    assert_eq!(chosen, Some(InstanceId(1)));
    placement.ended(3, &[], later + 10 * MS);
    placement.ended(4, &[], later + 10 * MS);
    let chosen = placement.choose(&engines, &request(&tokens), later + 20 * MS);
    assert_eq!(chosen, Some(InstanceId(2)));
}
