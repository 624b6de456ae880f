//! How long an ended stream is kept: by time, count and bytes, the oldest end out first.
//!
//! Promise (Streams): no owner evicts another's ended streams below its share.
//! Also held by `stream/tests/it/model.rs`.

use super::{ANN, BOB, LIMITS, id, now, second};
use std::sync::Arc;
use std::time::Duration;
use stream::{Caller, Eviction, Missing, Owner, Registry, RegistryLimits, SWEEP_BATCH};

/// Ends are told as (stream, second, bytes), of five streams that are open; `left` and `gone` are
/// what becomes of them.
struct EndingCase {
    name: &'static str,
    retained_max: usize,
    ends: &'static [(u64, u64, usize)],
    left: &'static [u64],
    gone: &'static [(u64, Eviction)],
}

const fn case(
    name: &'static str,
    retained_max: usize,
    ends: &'static [(u64, u64, usize)],
    left: &'static [u64],
    gone: &'static [(u64, Eviction)],
) -> EndingCase {
    EndingCase {
        name,
        retained_max,
        ends,
        left,
        gone,
    }
}

#[rustfmt::skip]
const ENDING_CASES: [EndingCase; 10] = {
    use Eviction::{Bytes, Count};
    [
        case("all fit, exactly", 3,
            &[(0, 0, 300), (1, 1, 300), (2, 2, 400)], &[0, 1, 2], &[]),
        case("one too many", 2,
            &[(0, 0, 1), (1, 1, 1), (2, 2, 1)], &[1, 2], &[(0, Count)]),
        case("by the order of ends, not of opening", 2,
            &[(4, 0, 1), (3, 1, 1), (0, 2, 1)], &[0, 3], &[(4, Count)]),
        case("by the time of ends, not the order they were told in", 2,
            &[(0, 5, 1), (1, 4, 1), (2, 6, 1)], &[0, 2], &[(1, Count)]),
        case("ends of one moment, by the order of opening", 2,
            &[(3, 1, 1), (1, 1, 1), (2, 1, 1)], &[2, 3], &[(1, Count)]),
        case("a byte too many", 5,
            &[(0, 0, 300), (1, 1, 300), (2, 2, 401)], &[1, 2], &[(0, Bytes)]),
        case("a large one needs the room of several", 5,
            &[(0, 0, 300), (1, 1, 300), (2, 2, 300), (3, 3, 700)],
            &[2, 3], &[(0, Bytes), (1, Bytes)]),
        case("as large as all there is", 5,
            &[(0, 0, 1), (1, 1, 1000)], &[1], &[(0, Bytes)]),
        case("larger than all there is: goes itself, and alone", 5,
            &[(0, 0, 1), (1, 1, 1001), (2, 2, usize::MAX)],
            &[0], &[(1, Bytes), (2, Bytes)]),
        case("nothing is kept", 0,
            &[(0, 0, 0), (1, 1, 0)], &[], &[(0, Count), (1, Count)]),
    ]
};

#[test]
fn the_oldest_end_goes_first() {
    for case in ENDING_CASES {
        let start = now();
        let registry = Registry::new(RegistryLimits {
            retained_max: case.retained_max,
            ..LIMITS
        });
        for n in 0..5 {
            registry.register(id(n), ANN, start, n).unwrap().keep();
        }
        for (n, at, bytes) in case.ends {
            let was_open = registry.ended(id(*n), start + second(*at), *bytes);
            assert!(was_open, "{}", case.name);
        }
        let found = |n: u64| registry.lookup(id(n), Caller::Admin);
        for n in case.left {
            assert_eq!(found(*n), Ok(Arc::new(*n)), "{}: {n} is left", case.name);
        }
        for (n, cause) in case.gone {
            let gone = Err(Missing::Gone(*cause));
            assert_eq!(found(*n), gone, "{}: {n} is gone", case.name);
        }
        assert_eq!(case.left.len() + case.gone.len(), case.ends.len());
        assert_eq!(registry.counts().retained, case.left.len(), "{}", case.name);
    }
}

const CAT: Owner = Owner(9);

/// A name; streams that end as (stream, owner, bytes), a second apart; which are left; which are gone, and
/// why.
type Share = (
    &'static str,
    &'static [(u64, Owner, usize)],
    &'static [u64],
    &'static [(u64, Eviction)],
);

/// Room for four, and for 1000 bytes.
const SHARES: [Share; 7] = [
    (
        "a flood pushes out its own",
        &[
            (0, ANN, 1),
            (1, BOB, 1),
            (2, BOB, 1),
            (3, BOB, 1),
            (4, BOB, 1),
            (5, BOB, 1),
        ],
        &[0, 3, 4, 5],
        &[(1, Eviction::Count), (2, Eviction::Count)],
    ),
    (
        "who has most makes room for who has least",
        &[
            (0, BOB, 1),
            (1, BOB, 1),
            (2, BOB, 1),
            (3, ANN, 1),
            (4, CAT, 1),
        ],
        &[1, 2, 3, 4],
        &[(0, Eviction::Count)],
    ),
    (
        "of equals the newcomer's own",
        &[
            (0, ANN, 1),
            (1, ANN, 1),
            (2, BOB, 1),
            (3, CAT, 1),
            (4, BOB, 1),
        ],
        &[0, 1, 3, 4],
        &[(2, Eviction::Count)],
    ),
    (
        "large ones by bytes",
        &[(0, ANN, 100), (1, BOB, 500), (2, BOB, 300), (3, BOB, 400)],
        &[0, 2, 3],
        &[(1, Eviction::Bytes)],
    ),
    (
        "the newcomer itself, where it is the largest",
        &[(0, ANN, 400), (1, CAT, 300), (2, BOB, 700)],
        &[0, 1],
        &[(2, Eviction::Bytes)],
    ),
    (
        "what is free is anybody's",
        &[(0, ANN, 100), (1, BOB, 900)],
        &[0, 1],
        &[],
    ),
    (
        "one alone has all",
        &[(0, BOB, 400), (1, BOB, 400), (2, BOB, 200), (3, BOB, 0)],
        &[0, 1, 2, 3],
        &[],
    ),
];

/// One that stays within its share is not pushed out by one that does not.
#[test]
fn no_owner_pushes_out_another() {
    for (name, ends, left, gone) in SHARES {
        let start = now();
        let registry = Registry::new(RegistryLimits {
            retained_max: 4,
            ..LIMITS
        });
        for &(n, owner, bytes) in ends {
            let open = registry.register(id(n), owner, start, n).unwrap();
            assert!(open.ended(start + second(n), bytes));
        }
        let found = |n: u64| registry.lookup(id(n), Caller::Admin).map(|n| *n);
        for &n in left {
            assert_eq!(found(n), Ok(n), "{name}: {n} is left");
        }
        for &(n, cause) in gone {
            assert_eq!(found(n), Err(Missing::Gone(cause)), "{name}: {n} is gone");
        }
    }
}

#[test]
fn who_opens_a_stream_gives_way_itself_first_then_who_keeps_most() {
    let start = now();
    let registry = Registry::new(LIMITS);
    for (n, owner, bytes) in [(0, ANN, 10), (1, BOB, 30), (2, BOB, 40), (3, ANN, 10)] {
        let open = registry.register(id(n), owner, start, n).unwrap();
        open.ended(start + second(n), bytes);
    }
    let _open = registry.register(id(7), ANN, start, 7).unwrap();
    for (asks, expected) in [
        (ANN, Some(0)),
        (Owner(9), Some(1)),
        (Owner(9), Some(2)),
        (BOB, Some(3)),
        (ANN, None),
    ] {
        let way = registry.give_way(asks).map(|n| *n);
        assert_eq!(way, expected, "asked for {asks:?}");
    }
    let counts = registry.counts();
    assert_eq!(
        (counts.open, counts.retained, counts.retained_bytes),
        (1, 0, 0)
    );
}

#[test]
fn a_sweep_takes_what_is_due_and_no_more() {
    let start = now();
    let registry = Registry::new(LIMITS);
    for n in 0..3 {
        let open = registry.register(id(n), ANN, start, ()).unwrap();
        open.ended(start + second(n), 0);
    }
    let _open = registry.register(id(9), ANN, start, ()).unwrap();
    let almost = Duration::from_nanos(1);
    let rows = [
        ("before the first end", start, 0),
        ("a moment early", start + second(10) - almost, 0),
        ("on the dot", start + second(10), 1),
        ("again", start + second(10), 0),
        ("time goes back", start, 0),
        ("all the rest", start + second(1000), 2),
    ];
    for (name, at, released) in rows {
        assert_eq!(registry.sweep(at), released, "{name}");
    }
    assert_eq!(registry.counts().open, 1, "what is open stays");
}

#[test]
fn a_retention_without_end_and_one_of_nothing() {
    let start = now();
    for (retention, released) in [(Duration::MAX, 0), (Duration::ZERO, 1)] {
        let registry = Registry::new(RegistryLimits {
            retention,
            ..LIMITS
        });
        let open = registry.register(id(1), ANN, start, ()).unwrap();
        open.ended(start, 0);
        assert_eq!(registry.sweep(start), released, "{retention:?}");
    }
}

#[test]
fn a_large_sweep_takes_everything() {
    let start = now();
    let many = 2 * SWEEP_BATCH; // the last batch finds nothing
    let registry = Registry::new(RegistryLimits {
        retained_max: many,
        ..LIMITS
    });
    for n in 0..many as u64 {
        let open = registry.register(id(n), ANN, start, ()).unwrap();
        open.ended(start, 0);
    }
    assert_eq!(registry.sweep(start + LIMITS.retention), many);
    assert_eq!(registry.counts().retained, 0);
}

#[test]
fn other_bounds_take_out_what_is_too_much_and_nobody_who_is_open() {
    let registry = Registry::new(LIMITS);
    let start = now();
    let open: Vec<_> = (0..6)
        .map(|n| registry.register(id(n), ANN, start, n).unwrap())
        .collect();
    let mut open = open.into_iter();
    for (n, stream) in (0..4).zip(&mut open) {
        stream.ended(start + second(n), 100);
    }
    let limits = RegistryLimits {
        open_max: 1,
        retained_max: 3,
        ..LIMITS
    };
    registry.rebound(limits);
    let ann = Caller::Owner(ANN);
    let gone = |n, cause| {
        let missing = registry.lookup(id(n), ann).err();
        assert_eq!(missing, Some(Missing::Gone(cause)), "{n}");
    };
    gone(0, Eviction::Count);
    assert_eq!(registry.counts().open, 2);
    assert!(
        registry.register(id(9), ANN, start, 9).is_err(),
        "two are open, and one may be"
    );
    registry.rebound(RegistryLimits {
        retained_bytes_max: 150,
        ..limits
    });
    gone(1, Eviction::Bytes);
    gone(2, Eviction::Bytes);
    assert_eq!(registry.counts().retained_bytes, 100);
    registry.rebound(RegistryLimits {
        retention: second(1),
        ..limits
    });
    assert_eq!(registry.sweep(start + second(4)), 1);
    gone(3, Eviction::Expired);
    assert_eq!(open.count(), 2);
}
