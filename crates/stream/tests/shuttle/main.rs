//! The crate's own files, compiled against shuttle: random schedules of scenarios too large for
//! loom. A failing schedule is printed, and can be replayed with `shuttle::replay`.

#![allow(
    dead_code,
    unused_imports,
    missing_docs,
    unreachable_pub,
    reason = "the crate's files, as modules"
)]
#![allow(clippy::enum_variant_names, reason = "the same")]

mod gates;
#[path = "../shim/rig.rs"]
mod rig;
mod rings;
mod sync;

#[path = "../../src/end.rs"]
mod end;
#[path = "../../src/log.rs"]
mod log;
#[path = "../../src/pool.rs"]
mod pool;
#[path = "../../src/reader.rs"]
mod reader;
#[path = "../../src/registry/mod.rs"]
mod registry;
#[path = "../../src/ring/mod.rs"]
mod ring;
#[path = "../../src/stream_id.rs"]
mod stream_id;
#[path = "../../src/wait.rs"]
mod wait;
#[path = "../../src/writer.rs"]
mod writer;

use end::End;
use log::open;
use pool::SegmentPool;
use reader::{Read, Reader, Tap};
use registry::{Caller, Owner, Registry, RegistryLimits};
use rig::{assert_nothing_held, follow, pool};
use std::time::{Duration, Instant};
use stream_id::StreamId;
use sync::thread;

const SEGMENT_ITEMS: usize = 2;

/// Random schedules per scenario, and as many again with few, well-placed preemptions.
const SCHEDULES: usize = 2000;
const PREEMPTIONS: usize = 3;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, PREEMPTIONS);
}

/// Three readers, one of which attaches on the way, follow one writer over several segments.
#[test]
fn every_reader_gets_everything_once_and_the_end() {
    const ITEMS: u32 = 7;
    explore(|| {
        let pool = pool(4);
        let (mut writer, reader) = open(&pool, ITEMS as usize).unwrap();
        let tap = writer.tap();
        let second = reader.attach(0).unwrap();
        let mut following: Vec<_> = [reader, second]
            .map(|reader| shuttle::thread::spawn(move || (0, follow(reader))))
            .into();
        following.push(shuttle::thread::spawn(move || {
            let reader = tap.attach(tap.len()).unwrap();
            (reader.cursor(), follow(reader))
        }));
        for item in 0..ITEMS {
            writer.append(item).unwrap();
        }
        writer.finish(End::Cancelled);
        for reader in following {
            let (from, got) = reader.join().unwrap();
            assert_eq!(got, ((from as u32..ITEMS).collect(), End::Cancelled));
        }
        assert_nothing_held(pool.stats());
    });
}

/// Readers come and go, sleeping now and then, while the writer appends and then vanishes.
#[test]
fn readers_that_come_and_go_leave_nothing_behind() {
    explore(|| {
        let pool = pool(3);
        let (mut writer, reader) = open(&pool, 6).unwrap();
        let guests: Vec<_> = (0..3)
            .map(|_| {
                let tap = writer.tap();
                shuttle::thread::spawn(move || {
                    for _ in 0..3 {
                        let mut guest = tap.attach(0).unwrap();
                        guest.read_blocking(&mut [0; 3]);
                    }
                })
            })
            .collect();
        drop(reader);
        for item in 0..6 {
            writer.append(item).unwrap();
        }
        drop(writer);
        for guest in guests {
            guest.join().unwrap();
        }
        assert_nothing_held(pool.stats());
    });
}

/// Writers on several threads share a pool with room for fewer logs than want to be open.
#[test]
fn logs_that_share_a_pool_never_share_a_segment() {
    explore(|| {
        let pool = pool(3);
        let writers: Vec<_> = (0..3)
            .map(|id| {
                let pool = pool.clone();
                shuttle::thread::spawn(move || {
                    for round in 0..3 {
                        let Ok((mut writer, reader)) = open(&pool, 4) else {
                            continue;
                        };
                        let items: Vec<u32> = (0..3).map(|i| id * 100 + round * 10 + i).collect();
                        for item in &items {
                            writer.append(*item).unwrap();
                        }
                        writer.finish(End::Length);
                        assert_eq!(follow(reader), (items, End::Length));
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        assert_nothing_held(pool.stats());
        assert!(pool.stats().allocated <= 3);
    });
}

/// What a registered stream keeps. Its drop uses the registry: a lock held meanwhile would never
/// be released.
struct Kept {
    tap: Tap<u32>,
    registry: Registry<Kept>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let counts = self.registry.counts();
        assert!(counts.open + counts.retained <= 2 + 1, "{counts:?}");
    }
}

/// Threads open, end, look up, list, forget and sweep streams of one registry, which has room for
/// fewer than there are. None is lost: what was registered is there, or was taken out once.
#[test]
fn a_registry_shared_by_threads_counts_every_stream_once() {
    const THREADS: u8 = 3;
    const STREAMS: u8 = 2;
    explore(|| {
        let pool = pool(usize::from(THREADS * STREAMS));
        let registry = Registry::new(RegistryLimits {
            open_max: 2,
            retained_max: 1,
            retained_bytes_max: 1000,
            retention: Duration::from_secs(1),
            gone_max: 2,
        });
        let start = now();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (registry, pool) = (registry.clone(), pool.clone());
                let owner = Owner(u64::from(thread));
                shuttle::thread::spawn(move || {
                    for stream in 0..STREAMS {
                        let id = StreamId::from_random([thread * STREAMS + stream; 16]);
                        live(&registry, &pool, id, owner, start);
                    }
                })
            })
            .collect();
        let sweeping = registry.clone();
        let sweep = shuttle::thread::spawn(move || {
            sweeping.sweep(start + Duration::from_secs(1));
            sweeping.list(Caller::Admin, None, 2).entries.len()
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(sweep.join().unwrap() <= 2);
        registry.sweep(start + Duration::from_secs(9));
        let counts = registry.counts();
        assert_eq!(
            (counts.open, counts.retained, counts.retained_bytes),
            (0, 0, 0)
        );
        let out = counts.evicted;
        let out = out.expired + out.count + out.bytes + out.forgotten + out.dropped;
        assert_eq!(out, counts.registered);
        assert_eq!(out + counts.refused, u64::from(THREADS * STREAMS));
        assert_nothing_held(pool.stats());
    });
}

/// One stream's life, which ends in one of three ways.
fn live(
    registry: &Registry<Kept>,
    pool: &SegmentPool<u32>,
    id: StreamId,
    owner: Owner,
    start: Instant,
) {
    let (mut writer, reader) = open(pool, 1).unwrap();
    let kept = Kept {
        tap: reader.tap(),
        registry: registry.clone(),
    };
    let Ok(registration) = registry.register(id, owner, start, kept) else {
        return;
    };
    assert!(registry.lookup(id, Caller::Owner(owner)).is_ok(), "open");
    let stranger = Caller::Owner(Owner(99));
    assert!(registry.lookup(id, stranger).is_err());
    writer.append(1).unwrap();
    match owner.0 {
        0 => drop(registration),
        1 => {
            writer.finish(End::Length);
            let bytes = registration.payload().tap.bytes();
            assert!(registration.ended(start, bytes));
            assert!(!registry.ended(id, start, bytes), "ended twice");
        }
        _ => {
            writer.finish(End::Length);
            drop(registration.keep());
            assert!(registry.forget(id).is_some(), "open until it is forgotten");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a point to count from; no test waits"
)]
fn now() -> Instant {
    Instant::now()
}
