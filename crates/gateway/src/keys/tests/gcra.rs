//! The one number against a bucket that is filled and emptied.

use super::*;
use proptest::prelude::*;

/// A bucket with its level, in token-minutes-of-nanoseconds so that nothing is rounded.
struct Bucket {
    per_min: u128,
    /// Tokens that are missing: 1 token = `MINUTE_NS`; `per_min` flow in each nanosecond.
    missing: u128,
    at_ns: u64,
}

impl Bucket {
    fn new(per_min: u32) -> Self {
        Self {
            per_min: u128::from(per_min),
            missing: 0,
            at_ns: 0,
        }
    }

    fn fill(&mut self, now_ns: u64) {
        let flown = u128::from(now_ns - self.at_ns) * self.per_min;
        self.missing = self.missing.saturating_sub(flown);
        self.at_ns = now_ns;
    }

    fn take(&mut self, cost: u64) {
        self.missing += u128::from(cost) * u128::from(MINUTE_NS);
    }

    fn try_take(&mut self, cost: u64) -> bool {
        let more = self.missing + u128::from(cost) * u128::from(MINUTE_NS);
        let fits = more <= self.per_min * u128::from(MINUTE_NS);
        if fits {
            self.missing = more;
        }
        fits
    }
}

/// A rate that no other gateway has a part of.
fn alone(per_min: u32) -> Rate {
    Rate {
        per_min: NonZeroU32::new(per_min).unwrap(),
        gateways: NonZeroU32::MIN,
    }
}

/// What a caller does: after a pause, takes a cost, and whether it only tries.
#[derive(Clone, Debug)]
struct Move {
    pause_ns: u64,
    cost: u64,
    tries: bool,
}

fn one_move() -> impl Strategy<Value = Move> {
    let pause = prop_oneof![Just(0), 0..1_000_000_u64, 0..MINUTE_NS / 2];
    (pause, 0..40_u64, prop::bool::weighted(0.8)).prop_map(|(pause_ns, cost, tries)| Move {
        pause_ns,
        cost,
        tries,
    })
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    prop::collection::vec(one_move(), 1..200)
}

/// Rates whose emission interval is a whole number of nanoseconds.
const EXACT: [u32; 8] = [1, 2, 3, 10, 60, 600, 6_000, 1_000_000];

proptest! {
    #[test]
    fn bucket_agrees_with_the_reference_implementation(rate in prop::sample::select(&EXACT[..]), moves in moves()) {
        let (gcra, mut bucket, mut now_ns) = (Gcra::default(), Bucket::new(rate), 0);
        for step in moves {
            now_ns += step.pause_ns;
            bucket.fill(now_ns);
            if step.tries {
                let taken = gcra.try_take(alone(rate), step.cost, now_ns);
                prop_assert_eq!(taken.is_ok(), bucket.try_take(step.cost));
            } else {
                gcra.take_always(alone(rate), step.cost, now_ns);
                bucket.take(step.cost);
            }
        }
    }

    #[test]
    fn rounding_errors_stay_below_a_nanosecond_per_take(rate in 1..10_000_u32, moves in moves()) {
        let (gcra, mut bucket, mut now_ns) = (Gcra::default(), Bucket::new(rate), 0);
        let mut steps = 0;
        for step in moves {
            now_ns += step.pause_ns;
            bucket.fill(now_ns);
            if gcra.try_take(alone(rate), step.cost, now_ns).is_ok() {
                bucket.take(step.cost);
                steps += 1;
                // Less than a nanosecond's flow for each step.
                let most = bucket.per_min * (u128::from(MINUTE_NS) + steps);
                prop_assert!(bucket.missing < most);
            } else {
                prop_assert!(!bucket.try_take(step.cost));
            }
        }
    }

    #[test]
    fn takes_in_any_window_stay_within_the_rate(rate in 1..200_u32, moves in moves()) {
        let (gcra, mut now_ns, mut taken) = (Gcra::default(), 0, Vec::new());
        for step in moves {
            now_ns += step.pause_ns;
            if gcra.try_take(alone(rate), step.cost, now_ns).is_ok() {
                taken.push((now_ns, step.cost));
            }
        }
        for from in 0..taken.len() {
            let mut sum = 0;
            for &(at_ns, cost) in &taken[from..] {
                sum += cost;
                // A full bucket, what flows in meanwhile, and a nanosecond for each step.
                let span_ns = u128::from(at_ns - taken[from].0 + MINUTE_NS) + taken.len() as u128;
                prop_assert!(
                    u128::from(sum) * u128::from(MINUTE_NS) <= span_ns * u128::from(rate)
                );
            }
        }
    }

    /// Promise (Limits of keys over gateways): a change of N gives no burst and forgets nothing that was counted.
    /// Also held by `gateway/src/keys/tests/gateways.rs ::
    /// bucket_stays_as_empty_as_it_is_when_the_number_of_gateways_changes`.
    #[test]
    fn changing_number_of_gateways_gives_no_burst(
        rate in 1..200_u32,
        moves in prop::collection::vec((one_move(), 1..9_u32), 1..200),
    ) {
        let (gcra, mut now_ns, mut taken) = (Gcra::default(), 0, Vec::new());
        for (step, gateways) in moves {
            now_ns += step.pause_ns;
            let part = Rate { gateways: NonZeroU32::new(gateways).unwrap(), ..alone(rate) };
            let is_taken = gcra.try_take(part, step.cost, now_ns).is_ok();
            // All that this gateway has in a minute is `rate` such units.
            let used = u128::from(step.cost) * u128::from(gateways) * u128::from(MINUTE_NS);
            if is_taken {
                taken.push((now_ns, used));
            }
        }
        for from in 0..taken.len() {
            let mut sum = 0;
            for &(at_ns, used) in &taken[from..] {
                // As much of a full bucket as is needed, what flows in meanwhile, and a nanosecond for each step.
                let needed = used.min(u128::from(rate) * u128::from(MINUTE_NS));
                let span_ns = u128::from(at_ns - taken[from].0 + MINUTE_NS) + taken.len() as u128;
                prop_assert!(sum + needed <= span_ns * u128::from(rate));
                sum += used;
            }
        }
    }

    #[test]
    fn wait_of_an_empty_bucket_is_exact(rate in 1..100_000_u32, spent in 0..200_000_u64, cost in 1..1000_u64) {
        let after = |wait_ns: u64| {
            let gcra = Gcra::default();
            gcra.take_always(alone(rate), spent, 0);
            gcra.try_take(alone(rate), cost, wait_ns)
        };
        match after(0) {
            Ok(()) => prop_assert!(spent + cost <= u64::from(rate)),
            Err(NotYet::Never) => prop_assert!(cost > u64::from(rate)),
            Err(NotYet::Wait(wait)) => {
                let wait_ns = u64::try_from(wait.as_nanos()).unwrap();
                prop_assert_eq!(after(wait_ns), Ok(()));
                prop_assert_eq!(after(wait_ns - 1), Err(NotYet::Wait(Duration::from_nanos(1))));
            }
        }
    }
}

#[test]
fn full_bucket_holds_exactly_one_minute_of_the_rate() {
    for rate in [1, 7, 9, 11, 60, 700, 1021, 99_991] {
        let gcra = Gcra::default();
        let tries = (0..rate + 2).filter(|_| gcra.try_take(alone(rate), 1, 3).is_ok());
        assert_eq!(tries.count(), rate as usize);
    }
}

#[test]
fn concurrent_takes_get_exactly_the_rate() {
    let gcra = Gcra::default();
    let taken: usize = std::thread::scope(|scope| {
        let tries = || (0..500).filter(|_| gcra.try_take(alone(1000), 1, 7).is_ok());
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(move || tries().count()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(taken, 1000);
}

#[test]
fn debt_saturates_at_the_largest_time() {
    let gcra = Gcra::default();
    gcra.take_always(alone(1), u64::MAX, 5);
    gcra.take_always(alone(1), u64::MAX, 5);
    let wait = Duration::from_nanos(u64::MAX - MINUTE_NS - 5);
    assert_eq!(gcra.try_take(alone(1), 1, 5), Err(NotYet::Wait(wait)));
}
