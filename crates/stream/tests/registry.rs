//! The registry's laws: one owner, two kinds of missing, the oldest end out first, dropping is
//! releasing.

use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{
    Caller, End, EntryState, Eviction, LIST_PAGE_MAX, ListCursor, Missing, Owner, PoolLimits,
    Registration, Registry, RegistryFull, RegistryLimits, SEGMENT_ITEMS, SWEEP_BATCH, SegmentPool,
    StreamId, Tap, open,
};

const ANN: Owner = Owner(1);
const BOB: Owner = Owner(2);

const LIMITS: RegistryLimits = RegistryLimits {
    open_max: 10,
    retained_max: 10,
    retained_bytes_max: 1000,
    retention: Duration::from_secs(10),
    gone_max: 100,
};

#[expect(
    clippy::disallowed_methods,
    reason = "a point to count from; no test waits"
)]
fn now() -> Instant {
    Instant::now()
}

fn id(number: u64) -> StreamId {
    let mut bytes = [0x5a; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    StreamId::from_random(bytes)
}

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn only_its_owner_and_an_admin_see_a_stream() {
    let start = now();
    let registry = Registry::new(LIMITS);
    let open = registry.register(id(1), ANN, start, "ann's").unwrap();
    let rows = |state: &str, ann: Result<&'static str, Missing>| {
        for (who, caller, expected) in [
            ("ann", Caller::Owner(ANN), ann),
            ("admin", Caller::Admin, ann),
            ("bob", Caller::Owner(BOB), Err(Missing::Unknown)),
        ] {
            let found = registry.lookup(id(1), caller).map(|payload| *payload);
            assert_eq!(found, expected, "{state}, {who}");
            let never = registry.lookup(id(2), caller);
            assert_eq!(never, Err(Missing::Unknown), "{state}, {who}, unknown id");
        }
    };
    rows("open", Ok("ann's"));
    open.ended(start, 0);
    rows("ended", Ok("ann's"));
    registry.sweep(start + LIMITS.retention);
    rows("gone", Err(Missing::Gone(Eviction::Expired)));
}

#[test]
fn an_entry_tells_its_life() {
    let start = now();
    let registry = Registry::new(LIMITS);
    let open = registry.register(id(1), ANN, start, ()).unwrap();
    let entry = registry.entry(id(1), Caller::Admin).unwrap();
    assert_eq!(
        (entry.id, entry.owner, entry.opened_at),
        (id(1), ANN, start)
    );
    assert_eq!(entry.state, EntryState::Open);
    let at = start + second(3);
    assert!(open.ended(at, 7));
    assert!(
        !registry.ended(id(1), at + second(1), 8),
        "an end is told once"
    );
    let entry = registry.entry(id(1), Caller::Admin).unwrap();
    assert_eq!(entry.state, EntryState::Ended { at });
    assert_eq!(registry.counts().retained_bytes, 7);
}

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
fn a_full_registry_refuses_until_one_ends() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        open_max: 2,
        ..LIMITS
    });
    let first = registry.register(id(1), ANN, start, ()).unwrap();
    let _second = registry.register(id(2), BOB, start, ()).unwrap();
    let full = registry.register(id(3), ANN, start, ()).err();
    assert_eq!(full, Some(RegistryFull { open_max: 2 }));
    assert_eq!(registry.lookup(id(3), Caller::Admin), Err(Missing::Unknown));
    first.ended(start, 0);
    assert!(registry.register(id(3), ANN, start, ()).is_ok());
    let counts = registry.counts();
    assert_eq!((counts.registered, counts.refused), (3, 1));
}

#[test]
fn a_registration_dropped_without_a_word_takes_its_entry_out() {
    let start = now();
    let registry = Registry::new(LIMITS);
    let open = registry.register(id(1), ANN, start, ()).unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _open = open;
        panic!("a panic on purpose");
    }));
    assert!(outcome.is_err());
    let gone = Err(Missing::Gone(Eviction::Dropped));
    assert_eq!(registry.lookup(id(1), Caller::Owner(ANN)), gone);
    assert_eq!(registry.counts().open, 0);

    let again = registry.register(id(1), ANN, start, ()).unwrap(); // the name is free again
    assert!(registry.lookup(id(1), Caller::Owner(ANN)).is_ok());
    again.keep();
    assert!(registry.lookup(id(1), Caller::Owner(ANN)).is_ok(), "kept");
}

#[test]
fn a_stream_that_was_forgotten_is_gone_for_its_keeper_too() {
    let start = now();
    let registry = Registry::new(LIMITS);
    let open = registry.register(id(1), ANN, start, 5).unwrap();
    assert_eq!(registry.forget(id(1)), Some(Arc::new(5)));
    assert_eq!(registry.forget(id(1)), None);
    assert_eq!(open.payload(), &Arc::new(5), "the keeper has it still");
    assert!(!open.ended(start, 100));
    let gone = Err(Missing::Gone(Eviction::Forgotten));
    assert_eq!(registry.lookup(id(1), Caller::Owner(ANN)), gone);
    let counts = registry.counts();
    assert_eq!(
        (counts.open, counts.retained, counts.retained_bytes),
        (0, 0, 0)
    );
    assert_eq!((counts.evicted.forgotten, counts.evicted.dropped), (1, 0));
}

#[test]
#[should_panic(expected = "was registered twice")]
fn a_name_is_given_once() {
    let registry = Registry::new(LIMITS);
    let _first = registry.register(id(1), ANN, now(), ()).unwrap();
    let _second = registry.register(id(1), BOB, now(), ());
}

#[test]
fn of_those_gone_the_last_are_remembered() {
    let start = now();
    for gone_max in [0, 1, 3] {
        let registry = Registry::new(RegistryLimits { gone_max, ..LIMITS });
        for n in 0..6 {
            drop(registry.register(id(n), ANN, start, ()).unwrap());
        }
        for n in 0..6 {
            let remembered = n as usize >= 6 - gone_max;
            let expected = if remembered {
                Missing::Gone(Eviction::Dropped)
            } else {
                Missing::Unknown
            };
            let found = registry.lookup(id(n), Caller::Owner(ANN));
            assert_eq!(found, Err(expected), "{n} of 6, {gone_max} remembered");
        }
        assert_eq!(registry.counts().gone, gone_max);
    }
}

/// A name that left twice is remembered as long as its second leaving is.
#[test]
fn a_name_that_left_twice_is_remembered_by_the_second_time() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        gone_max: 2,
        ..LIMITS
    });
    for n in [1, 1, 2] {
        drop(registry.register(id(n), ANN, start, ()).unwrap());
    }
    let gone = Err(Missing::Gone(Eviction::Dropped));
    assert_eq!(registry.lookup(id(1), Caller::Owner(ANN)), gone);
    drop(registry.register(id(3), ANN, start, ()).unwrap());
    assert_eq!(
        registry.lookup(id(1), Caller::Owner(ANN)),
        Err(Missing::Unknown)
    );
}

#[test]
fn pages_show_each_entry_once_while_others_come_and_go() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        open_max: 1000,
        ..LIMITS
    });
    let open = |n: u64| {
        let owner = if n.is_multiple_of(2) { ANN } else { BOB };
        registry.register(id(n), owner, start, n).unwrap()
    };
    let mut all: Vec<Option<Registration<u64>>> = (0..20).map(|n| Some(open(n))).collect();
    let ann = Caller::Owner(ANN);
    let numbers = |page: &stream::Page<u64>| -> Vec<u64> {
        page.entries.iter().map(|entry| *entry.payload).collect()
    };

    let first = registry.list(ann, None, 4);
    assert_eq!(numbers(&first), [0, 2, 4, 6]);
    all[6] = None; // the one the cursor stands on
    all[8] = None; // the one after it
    let _late = open(20);
    let second = registry.list(ann, first.next, 4);
    assert_eq!(numbers(&second), [10, 12, 14, 16]);
    let third = registry.list(ann, second.next, 2);
    assert_eq!((numbers(&third), third.next), (vec![18, 20], None));
    assert_eq!(
        numbers(&registry.list(ann, third.next, 1)),
        [0],
        "from the start"
    );

    let beyond = registry.list(ann, Some(ListCursor(u64::MAX)), 4);
    assert_eq!((numbers(&beyond), beyond.next), (vec![], None));
    let none = registry.list(Caller::Owner(Owner(3)), None, 4);
    assert_eq!((numbers(&none), none.next), (vec![], None));
    assert_eq!(
        numbers(&registry.list(Caller::Admin, None, 0)),
        [0],
        "at least one"
    );
    assert_eq!(
        registry.list(Caller::Admin, None, usize::MAX).entries.len(),
        19
    );

    let _more: Vec<_> = (21..21 + LIST_PAGE_MAX as u64).map(open).collect();
    let page = registry.list(Caller::Admin, None, usize::MAX);
    assert_eq!(page.entries.len(), LIST_PAGE_MAX);
    assert!(page.next.is_some());
}

#[test]
fn an_entry_that_goes_gives_its_segments_back() {
    let pool = SegmentPool::<u64>::new(PoolLimits { segments_max: 2 });
    let start = now();
    type TakeOut<'a> = &'a dyn Fn(&Registry<Tap<u64>>);
    let ways: [(&str, TakeOut<'_>); 5] = [
        ("swept", &|r| {
            r.sweep(start + LIMITS.retention);
        }),
        ("forgotten", &|r| {
            r.forget(id(1));
        }),
        ("by count", &|r| {
            for n in 2..2 + LIMITS.retained_max as u64 {
                let (writer, reader) = open(&pool, 0).unwrap();
                drop(writer);
                let open = r.register(id(n), BOB, start, reader.tap()).unwrap();
                open.ended(start + second(1), 0);
            }
        }),
        ("by bytes", &|r| {
            let (_writer, reader) = open(&pool, 0).unwrap();
            let open = r.register(id(2), BOB, start, reader.tap()).unwrap();
            open.ended(start + second(1), LIMITS.retained_bytes_max);
        }),
        ("with the registry", &|_| {}),
    ];
    for (way, take_out) in ways {
        let registry = Registry::new(LIMITS);
        let (mut writer, reader) = open(&pool, 2 * SEGMENT_ITEMS).unwrap();
        let open = registry.register(id(1), ANN, start, reader.tap()).unwrap();
        drop(reader);
        writer.append(1).unwrap();
        writer.finish(End::Cancelled);
        assert_eq!(open.payload().bytes(), SEGMENT_ITEMS * 8);
        open.ended(start, 100);
        assert_eq!(
            (pool.stats().reserved, pool.stats().in_use),
            (1, 1),
            "{way}"
        );
        let found = registry.lookup(id(1), Caller::Owner(ANN)).unwrap();
        take_out(&registry);
        drop(registry);
        assert_eq!(pool.stats().in_use, 1, "{way}: who has found it keeps it");
        drop(found);
        assert_eq!(
            (pool.stats().reserved, pool.stats().in_use),
            (0, 0),
            "{way}"
        );
    }
}

/// A payload that uses the registry while it is dropped: with the lock held this never returns.
struct Nosy {
    registry: Registry<Nosy>,
    start: Instant,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        let _counts = self.registry.counts();
        let _page = self.registry.list(Caller::Admin, None, 10);
        self.registry.sweep(self.start);
    }
}

#[test]
fn a_payload_is_dropped_without_the_lock() {
    let start = now();
    let registry = Registry::new(RegistryLimits {
        open_max: 2,
        retained_max: 1,
        ..LIMITS
    });
    let nosy = || Nosy {
        registry: registry.clone(),
        start,
    };
    let register = |n| registry.register(id(n), ANN, start, nosy());
    let (first, second) = (register(1).unwrap(), register(2).unwrap());
    assert!(register(3).is_err(), "refused, and dropped");
    first.ended(start, 1);
    second.ended(start, 1); // drives the first out
    drop(register(3).unwrap());
    register(4).unwrap().ended(start, usize::MAX);
    register(5).unwrap().keep();
    registry.forget(id(5));
    registry.sweep(start + LIMITS.retention);
    let counts = registry.counts();
    assert_eq!((counts.open, counts.retained), (0, 0));
    for (cause, count) in Eviction::ALL.into_iter().zip([1; 5]) {
        assert_eq!(counts.evicted.of(cause), count, "{cause:?}");
    }
}

/// On real threads: streams live and die side by side while others look, list and sweep.
#[test]
fn many_threads_lose_nothing() {
    const THREADS: u64 = 8;
    const STREAMS: u64 = 500;
    let pool = SegmentPool::<u64>::new(PoolLimits { segments_max: 256 });
    let registry = Registry::new(RegistryLimits {
        open_max: THREADS as usize - 1, // now and then one is refused
        retained_max: 20,
        retained_bytes_max: 15 * SEGMENT_ITEMS * 8,
        retention: Duration::from_millis(200),
        gone_max: 50,
    });
    let start = now();
    let live = |owner: u64, n: u64| {
        let (mut writer, reader) = open(&pool, 1).unwrap();
        let name = id(owner * STREAMS + n);
        let at = start + Duration::from_millis(n);
        let Ok(open) = registry.register(name, Owner(owner), at, reader.tap()) else {
            return;
        };
        writer.append(owner).unwrap();
        let mine = Caller::Owner(Owner(owner));
        let found = registry.entry(name, mine).expect("an open stream is found");
        assert_eq!(found.payload.len(), 1, "and it is mine");
        let page = registry.list(mine, None, LIST_PAGE_MAX);
        assert!(page.entries.iter().all(|entry| entry.owner == Owner(owner)));
        assert_eq!(
            registry.lookup(name, Caller::Owner(Owner(99))).err(),
            Some(Missing::Unknown)
        );
        match n % 4 {
            0 => drop(open),
            1 => assert!(registry.forget(name).is_some()),
            _ => {
                drop(writer);
                assert!(open.ended(at, found.payload.bytes()));
            }
        }
        registry.sweep(at);
        let counts = registry.counts();
        assert!(counts.open < THREADS as usize && counts.retained <= 20 && counts.gone <= 50);
        assert!(counts.retained_bytes <= registry.limits().retained_bytes_max);
    };
    std::thread::scope(|scope| {
        for owner in 0..THREADS {
            let live = &live;
            scope.spawn(move || (0..STREAMS).for_each(|n| live(owner, n)));
        }
    });
    registry.sweep(start + second(60));
    let counts = registry.counts();
    assert_eq!(
        (counts.open, counts.retained, counts.retained_bytes),
        (0, 0, 0)
    );
    let out: u64 = Eviction::ALL
        .map(|cause| counts.evicted.of(cause))
        .iter()
        .sum();
    assert_eq!(out, counts.registered);
    assert_eq!(out + counts.refused, THREADS * STREAMS);
    assert_eq!((pool.stats().reserved, pool.stats().in_use), (0, 0));
}
