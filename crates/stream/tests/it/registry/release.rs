//! Dropping is releasing: registrations, payloads, and the segments of their logs.

use super::{ANN, BOB, LIMITS, id, now, second};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{
    Caller, End, Eviction, LIST_PAGE_MAX, Missing, Owner, PoolLimits, Registry, RegistryLimits,
    SEGMENT_ITEMS, SegmentPool, Tap, open,
};

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
