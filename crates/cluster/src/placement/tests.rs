//! Placements by hand.

use super::*;
use std::time::Duration;

pub(super) const MS: Duration = Duration::from_millis(1);

/// An epoch for virtual time.
#[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
pub(super) fn epoch() -> Instant {
    Instant::now()
}

pub(super) fn idle(id: u64, heard: Instant) -> EngineLoad {
    EngineLoad {
        id: InstanceId(id),
        heard,
        cache_epoch: 0,
        cache_tokens: 100_000,
        free_tokens: 100_000,
        slots: 8,
        queued: 0,
        running: 0,
        prefill_pending: Some(0),
        prefill_tokens_per_s: Some(1000.0),
        step: 10 * MS,
    }
}

pub(super) fn request(prompt: &[u32]) -> PlacementRequest<'_> {
    PlacementRequest {
        model: 1,
        salt: 0,
        prompt,
        max_tokens: 100,
        excluded: &[],
    }
}

pub(super) fn prompt(first: u32, tokens: u32) -> Vec<u32> {
    (first..first + tokens).collect()
}

pub(super) fn new() -> Placement {
    Placement::new(PlacementConfig::default())
}

#[test]
fn no_engine_is_chosen_where_none_is_left() {
    let now = epoch();
    let excluded = [InstanceId(1)];
    let tokens = prompt(0, 10);
    let mut placement = new();
    assert_eq!(placement.choose(&[], &request(&tokens), now), None);
    let excluding = PlacementRequest {
        excluded: &excluded,
        ..request(&tokens)
    };
    assert_eq!(placement.choose(&[idle(1, now)], &excluding, now), None);
    let both = [idle(1, now), idle(2, now)];
    let chosen = placement.choose(&both, &excluding, now);
    assert_eq!(chosen, Some(InstanceId(2)));
}

/// The load of the first of two engines, which decides whether the second is chosen.
///
/// Promise (Placement on engines): a request is placed where its first token is predicted soonest: prompts ahead,
/// rate, slots, pages, steps, cached prefix.
/// Also held by `cluster/src/placement/tests.rs ::
/// cached_prefix_is_followed_until_its_engine_is_busier_than_a_prefill`.
#[test]
fn engine_with_the_sooner_first_token_is_chosen() {
    let now = epoch();
    let tokens = prompt(0, 200);
    type Change = fn(&mut EngineLoad);
    let slower: [(&str, Change); 6] = [
        ("prompts ahead", |load| load.prefill_pending = Some(500)),
        ("slow prefill", |load| {
            load.prefill_tokens_per_s = Some(100.0);
        }),
        ("no slot", |load| load.running = 8),
        ("a queue", |load| (load.running, load.queued) = (8, 3)),
        ("no pages", |load| {
            (load.cache_tokens, load.free_tokens) = (2000, 0);
        }),
        ("long steps", |load| load.step = 400 * MS),
    ];
    for (why, change) in slower {
        for slow in [1, 2] {
            let mut engines = [idle(1, now), idle(2, now)];
            change(&mut engines[slow - 1]);
            let chosen = new().choose(&engines, &request(&tokens), now);
            assert_eq!(chosen, Some(InstanceId(3 - slow as u64)), "{why}");
        }
    }
}

#[test]
fn cached_prefix_is_followed_until_its_engine_is_busier_than_a_prefill() {
    let now = epoch();
    let tokens = prompt(0, 2000);
    let mut placement = new();
    let mut engines = [idle(1, now), idle(2, now), idle(3, now)];
    placement.placed(1, &engines[1], &request(&tokens), now);
    placement.first_token(1, 0, now + 2000 * MS);
    placement.ended(1, &prompt(2000, 64), now + 3000 * MS);
    let later = now + 4000 * MS;
    for load in &mut engines {
        load.heard = later;
    }
    let longer = prompt(0, 2100);
    let second = Some(InstanceId(2));
    assert_eq!(placement.choose(&engines, &request(&longer), later), second);
    // 2,064 of 2,100 tokens are cached there: 36 ms of prefill, and 2,100 ms anywhere else.
    engines[1].prefill_pending = Some(1900);
    assert_eq!(placement.choose(&engines, &request(&longer), later), second);
    engines[1].prefill_pending = Some(2300);
    assert_ne!(placement.choose(&engines, &request(&longer), later), second);
    let salted = PlacementRequest {
        salt: 9,
        ..request(&longer)
    };
    engines[1].prefill_pending = Some(300);
    assert_ne!(placement.choose(&engines, &salted, later), second);
}

/// Promise (Placement on engines): requests between two heartbeats do not all go to one engine.
#[test]
fn placements_between_two_heartbeats_spread() {
    let now = epoch();
    let engines = [1, 2, 3, 4].map(|id| idle(id, now));
    let mut placement = new();
    let mut placed = [0; 4];
    for i in 0..40 {
        let tokens = prompt(i * 1000, 300);
        let chosen = placement.choose(&engines, &request(&tokens), now);
        let chosen = chosen.unwrap().0 as usize - 1;
        placement.placed(u64::from(i), &engines[chosen], &request(&tokens), now);
        placed[chosen] += 1;
    }
    assert_eq!(placed, [10; 4]);
    // The next heartbeat has them.
    let later = now + 250 * MS;
    let mut engines = [1, 2, 3, 4].map(|id| idle(id, later));
    for load in &mut engines[..3] {
        load.prefill_pending = Some(3000);
    }
    let tokens = prompt(99_000, 300);
    let chosen = placement.choose(&engines, &request(&tokens), later);
    assert_eq!(chosen, Some(InstanceId(4)));
}

#[test]
fn what_an_engine_had_cached_is_forgotten_with_it() {
    let now = epoch();
    let tokens = prompt(0, 640);
    let learned = || {
        let mut placement = new();
        placement.placed(1, &idle(1, now), &request(&tokens), now);
        placement.first_token(1, 0, now);
        assert_eq!(placement.blocks(), 20);
        placement
    };
    let mut placement = learned();
    placement.engine_gone(InstanceId(1));
    assert_eq!(placement.blocks(), 0);
    placement.ended(1, &tokens, now);
    assert_eq!(placement.blocks(), 0, "an end after the engine's");

    let mut placement = learned();
    let cleared = EngineLoad {
        cache_epoch: 1,
        ..idle(1, now)
    };
    placement.choose(&[cleared], &request(&tokens), now);
    assert_eq!(placement.blocks(), 0);
}

#[test]
fn request_that_ends_before_its_first_token_leaves_only_what_was_known() {
    let now = epoch();
    let mut placement = new();
    let shared = prompt(0, 320);
    placement.placed(1, &idle(1, now), &request(&shared), now);
    placement.first_token(1, 0, now);
    let longer = prompt(0, 640);
    placement.placed(2, &idle(1, now), &request(&longer), now);
    assert_eq!(placement.blocks(), 20);
    placement.ended(2, &[], now);
    assert_eq!(placement.blocks(), 10);
}

/// Promise (Placement on engines): the index of prefixes shrinks where an engine evicts sooner, and is forgotten with
/// the engine's cache.
/// Also held by `cluster/src/placement/tests.rs :: what_an_engine_had_cached_is_forgotten_with_it`.
#[test]
fn index_shrinks_where_the_engine_evicts_sooner() {
    let now = epoch();
    let mut placement = new();
    for i in 0..10 {
        let tokens = prompt(i * 10_000, 3200);
        placement.placed(u64::from(i), &idle(1, now), &request(&tokens), now);
        placement.first_token(u64::from(i), 0, now);
        placement.ended(u64::from(i), &[], now);
    }
    assert_eq!(placement.blocks(), 1000);
    let again = prompt(0, 3200);
    placement.placed(10, &idle(1, now), &request(&again), now);
    placement.first_token(10, 0, now);
    assert_eq!(placement.blocks(), 900);
}

#[test]
fn other_policies_ignore_prefixes_and_never_choose_an_excluded_engine() {
    let now = epoch();
    let tokens = prompt(0, 2000);
    let choices = |policy, engines: &mut [EngineLoad], excluded: &[InstanceId]| {
        let mut placement = Placement::new(PlacementConfig {
            policy,
            ..PlacementConfig::default()
        });
        let request = PlacementRequest {
            excluded,
            ..request(&tokens)
        };
        let mut chosen = Vec::new();
        for number in 0..6 {
            let id = placement.choose(engines, &request, now).unwrap();
            let at = engines.iter().position(|load| load.id == id).unwrap();
            placement.placed(number, &engines[at], &request, now);
            chosen.push(id.0);
        }
        chosen
    };
    let mut engines = [idle(7, now), idle(3, now), idle(5, now)];
    let round_robin = PlacementPolicy::RoundRobin;
    assert_eq!(choices(round_robin, &mut engines, &[]), [3, 5, 7, 3, 5, 7]);
    let excluded = [InstanceId(5)];
    let turns = choices(round_robin, &mut engines, &excluded);
    assert_eq!(turns, [3, 7, 3, 7, 3, 7]);
    // Own placements count until the next heartbeat.
    let mut least = choices(PlacementPolicy::LeastLoaded, &mut engines, &[]);
    least.sort_unstable();
    assert_eq!(least, [3, 3, 5, 5, 7, 7]);
    engines[0].running = 4;
    let least = choices(PlacementPolicy::LeastLoaded, &mut engines, &excluded);
    assert_eq!(least[..4], [3, 3, 3, 3]);
}

/// Promise (Placement on engines): no structure of placement grows beyond its bound.
#[test]
fn nothing_grows_beyond_its_bound() {
    let now = epoch();
    let config = PlacementConfig {
        policy: PlacementPolicy::Predicted,
        block_tokens: 4,
        blocks_max: 64,
        prompt_blocks_max: 16,
        engines_max: 4,
        requests_max: 8,
    };
    let mut placement = Placement::new(config);
    for i in 0..200u32 {
        let tokens = prompt(i * 100, 100);
        let engines: Vec<_> = (0..6).map(|id| idle(id, now)).collect();
        let chosen = placement.choose(&engines, &request(&tokens), now);
        let chosen = engines.iter().find(|load| Some(load.id) == chosen);
        placement.placed(u64::from(i), chosen.unwrap(), &request(&tokens), now);
        if i % 3 == 0 {
            placement.first_token(u64::from(i), 0, now);
            placement.ended(u64::from(i), &tokens, now);
        }
        assert!(placement.blocks() <= 64 && placement.requests.len() <= 8);
        assert!(placement.engines.len() <= 4);
    }
}

#[test]
fn rate_is_measured_where_no_heartbeat_has_it() {
    let now = epoch();
    let unmeasured = |id| EngineLoad {
        prefill_pending: None,
        prefill_tokens_per_s: None,
        ..idle(id, now)
    };
    let engines = [unmeasured(1), unmeasured(2)];
    let mut placement = new();
    for (id, ms) in [(1, 4000), (2, 100)] {
        let tokens = prompt(id * 10_000, 1000);
        let load = &engines[id as usize - 1];
        placement.placed(u64::from(id), load, &request(&tokens), now);
        placement.first_token(u64::from(id), 0, now + ms * MS);
    }
    for first in [50_000, 60_000, 70_000, 80_000] {
        let tokens = prompt(first, 500);
        let chosen = placement.choose(&engines, &request(&tokens), now);
        assert_eq!(chosen, Some(InstanceId(2)));
    }
}

/// Promise (Placement on engines): gateways that know nothing choose one engine for one system prompt.
#[test]
fn two_gateways_choose_one_engine_for_one_system_prompt() {
    let now = epoch();
    let engines = [1, 2, 3, 4].map(|id| idle(id, now));
    let mut chosen = Vec::new();
    for i in 0..16 {
        let system = prompt(i * 1000, 64);
        let with = |last: u32| [&system[..], &[last; 40]].concat();
        let a = new().choose(&engines, &request(&with(1)), now);
        assert_eq!(a, new().choose(&engines, &request(&with(2)), now));
        chosen.push(a);
    }
    chosen.sort();
    chosen.dedup();
    assert!(chosen.len() > 1, "all system prompts at one engine");
}
