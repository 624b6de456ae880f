//! Limits that hold for all gateways, over a simulated network with seeds.

use super::simulation::*;
use super::{GATEWAYS_MAX, HELD};
use crate::messages::{UsageEntry, UsageReport};
use crate::names::InstanceId;
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::time::Duration;

const BAD: Faults = Faults {
    lost: 10,
    repeated: 10,
    delay_ns: 150 * MS,
};
const LATE: Faults = Faults {
    lost: 5,
    repeated: 5,
    delay_ns: 3 * SECOND,
};

fn seeds() -> impl Iterator<Item = u64> {
    let one = std::env::var("MILLRACE_SEED").ok();
    let one = one.and_then(|seed| seed.parse().ok());
    let (first, last) = one.map_or((1, 5), |seed: u64| (seed, seed));
    first..=last
}

/// Requests of this time at the rate.
fn worth(per_min: u32, time_s: f64) -> f64 {
    f64::from(per_min) * time_s / 60.0
}

/// Three times the limit, and enough to find each free moment of a small one.
fn greedy(per_min: u32) -> f64 {
    worth(per_min, 3.0) + 10.0
}

#[test]
fn gateways_together_admit_the_limit() {
    for (gateways, per_min) in [(1, 10), (2, 1), (2, 6000), (4, 60), (8, 600)] {
        for (seed, faults) in seeds().flat_map(|seed| [(seed, CALM), (seed, BAD)]) {
            let mut cluster = Simulation::new(gateways, per_min, faults, seed);
            cluster.demand(greedy(per_min));
            cluster.run(90 * SECOND);
            let row = format!("{gateways} gateways, {per_min}/min, seed {seed}");
            let others = gateways as f64 - 1.0;
            let bound = others + worth(per_min, 0.1 * gateways as f64);
            assert!(cluster.excess <= bound + 0.2, "{row}: {}", cluster.excess);
            let due = worth(per_min, 150.0).floor();
            let least = 0.93 * due - 1.0;
            assert!(cluster.admitted() as f64 >= least, "{row}: {due}");
        }
    }
}

#[test]
fn late_messages_are_a_silence() {
    for (gateways, per_min) in [(2, 60), (8, 6000)] {
        for seed in seeds() {
            let mut cluster = Simulation::new(gateways, per_min, LATE, seed);
            cluster.demand(greedy(per_min));
            cluster.run(60 * SECOND);
            let bound = gateways as f64 - 1.0 + worth(per_min, 0.6 * gateways as f64);
            assert!(
                cluster.excess <= bound,
                "seed {seed}: {}, {bound}",
                cluster.excess
            );
            let least = worth(per_min, 120.0) * 0.25;
            let admitted = cluster.admitted() as f64;
            assert!(admitted >= least, "seed {seed}: {admitted}, {least}");
        }
    }
}

#[test]
fn gateways_without_a_connection_divide_the_limit() {
    for seed in seeds() {
        let mut cluster = Simulation::new(4, 60, CALM, seed);
        cluster
            .gateways
            .iter_mut()
            .for_each(|gateway| gateway.is_connected = false);
        cluster.run(SECOND);
        assert_eq!(cluster.standing(0).gateways, 4, "the last known number");
        assert_eq!(cluster.standing(0).heard, 1);
        cluster.demand(20.0);
        cluster.run(300 * SECOND);
        assert!(cluster.excess <= 4.0, "{}", cluster.excess);
        for gateway in &cluster.gateways {
            // Five minutes, and what is left of the burst: a quarter of each.
            assert!(
                (75..=95).contains(&gateway.admitted),
                "{}",
                gateway.admitted
            );
        }
    }
}

#[test]
fn key_with_less_than_a_request_per_gateway_is_not_locked_out() {
    let mut cluster = Simulation::new(4, 1, CALM, 1);
    cluster
        .gateways
        .iter_mut()
        .for_each(|gateway| gateway.is_connected = false);
    cluster.run(SECOND);
    cluster.demand(10.0);
    cluster.run(9 * 60 * SECOND);
    for gateway in &cluster.gateways {
        assert_eq!(gateway.admitted, 3, "one, and one each four minutes");
    }
}

#[test]
fn parted_groups_divide_the_limit_and_agree_afterwards() {
    for seed in seeds() {
        let mut cluster = Simulation::new(4, 600, BAD, seed);
        cluster.demand(5.0);
        cluster.run(20 * SECOND);
        cluster.gateways[0].group = 1;
        cluster.demand(greedy(600));
        cluster.run(30 * SECOND);
        let (alone, three) = (cluster.standing(0), cluster.standing(1));
        assert_eq!((alone.gateways, alone.heard), (4, 1), "seed {seed}");
        assert_eq!((three.gateways, three.heard), (4, 3), "seed {seed}");
        cluster.gateways[0].group = 0;
        cluster.run(20 * SECOND);
        let bound = 3.0 + worth(600, 0.1 * 4.0);
        assert!(cluster.excess <= bound, "seed {seed}: {}", cluster.excess);
        cluster.demand(0.0);
        cluster.faults = CALM;
        cluster.run(2 * SECOND);
        let full_in: Vec<_> = (0..4).map(|index| cluster.full_in_ns(index)).collect();
        let (least, most) = (full_in.iter().min(), full_in.iter().max());
        assert!(
            most.unwrap() - least.unwrap() < 15 * SECOND,
            "seed {seed}: {full_in:?}"
        );
    }
}

#[test]
fn dead_gateway_holds_its_share_for_a_minute() {
    for seed in seeds() {
        let mut cluster = Simulation::new(3, 600, CALM, seed);
        cluster.demand(greedy(600));
        cluster.run(60 * SECOND);
        cluster.gateways[2].is_dead = true;
        cluster.run(2 * SECOND);
        let rate = |cluster: &mut Simulation| {
            let before = cluster.admitted();
            cluster.run(30 * SECOND);
            (cluster.admitted() - before) as f64 / worth(600, 30.0)
        };
        let part = rate(&mut cluster);
        assert!((0.6..0.72).contains(&part), "seed {seed}: {part}");
        cluster.run(u64::try_from(HELD.as_nanos()).unwrap());
        assert_eq!(cluster.standing(0).gateways, 2);
        let part = rate(&mut cluster);
        assert!((0.97..1.03).contains(&part), "seed {seed}: {part}");
        assert_eq!(cluster.gateways[0].core.counts().dead, 1);
    }
}

#[test]
fn gateway_that_leaves_gives_its_share_back_at_once() {
    let mut cluster = Simulation::new(3, 60, CALM, 1);
    assert_eq!(cluster.standing(0).gateways, 3);
    let now_ns = cluster.local_ns(2);
    let last = cluster.gateways[2].core.leave(now_ns).encode().unwrap();
    cluster.send(2, &last.into());
    cluster.gateways[2].is_dead = true;
    cluster.run(SECOND);
    let standing = cluster.standing(0);
    assert_eq!((standing.gateways, standing.heard), (2, 2));
}

#[test]
fn gateway_that_starts_takes_over_what_is_used_up() {
    for seed in seeds() {
        let mut cluster = Simulation::new(2, 600, CALM, seed);
        cluster.demand(greedy(600));
        cluster.run(60 * SECOND);
        cluster.start_gateway();
        cluster.gateways[2].demand = 100.0;
        let before = cluster.admitted();
        cluster.run(SECOND);
        let admitted = (cluster.admitted() - before) as f64;
        assert!(admitted <= worth(600, 1.0) + 4.0, "seed {seed}: {admitted}");
        assert_eq!(cluster.standing(2).gateways, 3);
        assert!(!cluster.standing(2).is_joining);
    }
}

/// Gateways open choices of one key as often as they may, and close some, for 30 s. The largest number of open choices above
/// the limit, and how many are open on average.
fn open_and_close(gateways: usize, max: u32, faults: Faults, seed: u64) -> (u32, f64) {
    let mut cluster = Simulation::new(gateways, 8, faults, seed);
    let (mut open, limit) = (vec![0_u32; gateways], NonZeroU32::new(max).unwrap());
    let (mut excess, mut sum, turns) = (0, 0_u64, 3000);
    for _ in 0..turns {
        cluster.run(10 * MS);
        for _ in 0..max.div_ceil(8) {
            let index = cluster.random.below(gateways as u64) as usize;
            let now_ns = cluster.local_ns(index);
            let closes = cluster.random.chance(20) && open[index] > 0;
            let (key, standing) = cluster.gateways[index].core.key_mut(KEY);
            if closes {
                key.streams.close(1);
                open[index] -= 1;
            } else if key.streams.open(limit, 1, standing, now_ns).is_ok() {
                open[index] += 1;
            }
        }
        let all = open.iter().sum::<u32>();
        excess = excess.max(all.saturating_sub(max));
        sum += u64::from(all);
    }
    for (index, open) in open.into_iter().enumerate() {
        let (key, _) = cluster.gateways[index].core.key_mut(KEY);
        key.streams.close(open);
    }
    cluster.faults = CALM;
    cluster.run(2 * SECOND);
    let (key, _) = cluster.gateways[0].core.key_mut(KEY);
    assert_eq!(key.streams.others, 0, "seed {seed}");
    (excess, sum as f64 / f64::from(turns))
}

/// The table of docs/cluster.md.
#[test]
fn open_choices_are_counted_everywhere() {
    for (gateways, max) in [(2, 4), (2, 64), (4, 4), (4, 64), (8, 4), (8, 64)] {
        let part = (max / gateways).max(1);
        // Those that hear each other open one too many at most; a silent one has its part beside what the others have open.
        let silent = (gateways - 1) * part + gateways - 1;
        for (faults, bound) in [(CALM, gateways - 1), (BAD, silent), (LATE, silent)] {
            let runs = seeds().map(|seed| open_and_close(gateways as usize, max, faults, seed));
            let (mut most, mut least) = (0, f64::MAX);
            for (excess, average) in runs {
                (most, least) = (most.max(excess), least.min(average));
            }
            let row = format!("{gateways} gateways, limit {max}, {faults:?}: {most}, {least}");
            assert!(most <= bound, "{row}, bound {bound}");
            assert!(least >= f64::from(part) * 0.25, "{row}");
        }
    }
}

#[test]
fn generated_tokens_are_a_debt_at_every_gateway() {
    let mut cluster = Simulation::new(2, 600, CALM, 1);
    let (now_ns, per_min) = (cluster.local_ns(0), cluster.per_min);
    let (key, standing) = cluster.gateways[0].core.key_mut(KEY);
    key.tokens.take_always(per_min, 900, standing, now_ns);
    cluster.run(SECOND);
    let now_ns = cluster.local_ns(1);
    let (key, standing) = cluster.gateways[1].core.key_mut(KEY);
    let taken = key.tokens.try_take(per_min, 1, standing, now_ns);
    let Err(super::Shortage::Wait(wait)) = taken else {
        panic!("{taken:?}");
    };
    assert!((28..31).contains(&wait.as_secs()), "{wait:?}");
    let taken = key.tokens.try_take(per_min, 601, standing, now_ns);
    assert_eq!(taken, Err(super::Shortage::Never));
}

fn report(gateway: u64, sequence: u64, owner: u64) -> UsageReport {
    let entry = UsageEntry {
        owner,
        requests: u64::MAX,
        requests_full_in: Duration::from_secs(3600),
        ..UsageEntry::default()
    };
    UsageReport {
        gateway: InstanceId(gateway),
        sequence,
        is_complete: true,
        entries: vec![entry],
        ..UsageReport::default()
    }
}

#[test]
fn strange_messages_are_counted_and_dropped() {
    let mut cluster = Simulation::new(1, 60, CALM, 1);
    let now_ns = cluster.local_ns(0);
    let core = &mut cluster.gateways[0].core;
    core.receive(b"", now_ns);
    core.receive(&[9, 9], now_ns);
    let first = report(7, 5, KEY + 1).encode().unwrap();
    for _ in 0..2 {
        core.receive(&first, now_ns);
    }
    for id in 100..100 + GATEWAYS_MAX as u64 {
        core.receive(&report(id, 1, KEY).encode().unwrap(), now_ns);
    }
    let counts = core.counts();
    assert_eq!((counts.malformed, counts.newer, counts.stale), (1, 1, 1));
    assert_eq!((counts.unknown_keys, counts.over_limit), (1, 1));
    assert_eq!(counts.received, GATEWAYS_MAX as u64);
}

proptest! {
    #[test]
    fn any_messages_leave_a_working_gateway(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20),
        numbers in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..20),
    ) {
        let mut cluster = Simulation::new(1, 60, CALM, 1);
        for message in &messages {
            let now_ns = cluster.local_ns(0);
            cluster.gateways[0].core.receive(message, now_ns);
        }
        for (gateway, sequence, is_last) in numbers {
            let report = UsageReport { is_last, ..report(gateway, sequence, KEY) };
            let now_ns = cluster.local_ns(0);
            cluster.gateways[0].core.receive(&report.encode().unwrap(), now_ns);
            cluster.request(0);
            cluster.run(20 * MS);
        }
        prop_assert!(cluster.standing(0).gateways >= cluster.standing(0).heard);
    }
}
