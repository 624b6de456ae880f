//! The crate's own files, compiled against loom: every interleaving, and every value a weakly
//! ordered load may return, of small scenarios, up to a bound on preemptions.
//!
//! Promise (Streams): appends, reads, wake-ups, acknowledgements and credit grants lose nothing under any
//! interleaving tried.
//! Also held by `stream/tests/shuttle`.

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
#[path = "turns.rs"]
mod turn_tests;

#[path = "../../src/end.rs"]
mod end;
#[path = "../../src/log.rs"]
mod log;
#[path = "../../src/pool.rs"]
mod pool;
#[path = "../../src/reader.rs"]
mod reader;
#[path = "../../src/ring/mod.rs"]
mod ring;
#[path = "../../src/turns.rs"]
mod turns;
#[path = "../../src/wait.rs"]
mod wait;
#[path = "../../src/writer.rs"]
mod writer;

use end::End;
use log::open;
use pool::SegmentPool;
use reader::{Read, Reader};
use rig::{assert_nothing_held, follow, pool};

const SEGMENT_ITEMS: usize = 2;

fn explore(preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(scenario);
}

#[test]
fn no_wake_is_lost_with_one_reader() {
    explore(3, || {
        let (mut writer, reader) = open(&pool(2), 3).unwrap();
        let reader = loom::thread::spawn(move || follow(reader));
        for item in 0..3 {
            writer.append(item).unwrap();
        }
        writer.finish(End::Length);
        assert_eq!(reader.join().unwrap(), (vec![0, 1, 2], End::Length));
    });
}

#[test]
fn no_wake_is_lost_with_two_readers() {
    explore(2, || {
        let (mut writer, reader) = open(&pool(1), 2).unwrap();
        let first = reader.attach(0).unwrap();
        let first = loom::thread::spawn(move || follow(first));
        let second = loom::thread::spawn(move || follow(reader));
        writer.append(0).unwrap();
        writer.finish(End::Length);
        assert_eq!(first.join().unwrap(), (vec![0], End::Length));
        assert_eq!(second.join().unwrap(), (vec![0], End::Length));
    });
}

/// Both readers arm around the writer's clearing of the flag; then comes one thing more.
#[test]
fn no_wake_is_lost_by_a_reader_that_attaches_late() {
    explore(2, || {
        let (mut writer, reader) = open(&pool(1), 2).unwrap();
        let tap = writer.tap();
        let late = loom::thread::spawn(move || {
            let reader = tap.attach(tap.len()).unwrap();
            let from = reader.cursor();
            (from, follow(reader))
        });
        let early = loom::thread::spawn(move || follow(reader));
        writer.append(0).unwrap();
        writer.finish(End::Length);
        assert_eq!(early.join().unwrap(), (vec![0], End::Length));
        let (from, (items, end)) = late.join().unwrap();
        assert_eq!((from + items.len() as u64, end), (1, End::Length));
    });
}

#[test]
fn the_end_is_seen_after_all_items() {
    explore(4, || {
        let (mut writer, mut reader) = open(&pool(2), 3).unwrap();
        let reading = loom::thread::spawn(move || {
            let mut buf = [0; 4];
            for _ in 0..3 {
                if let Read::Ended(end) = reader.read(&mut buf) {
                    assert_eq!((reader.cursor(), end), (3, End::Cancelled));
                }
            }
        });
        for item in 0..3 {
            writer.append(item).unwrap();
        }
        writer.finish(End::Cancelled);
        reading.join().unwrap();
    });
}

#[test]
fn a_dropped_writer_wakes_with_lost() {
    explore(4, || {
        let (writer, reader) = open(&pool(1), 2).unwrap();
        let reader = loom::thread::spawn(move || follow(reader));
        drop(writer);
        assert_eq!(reader.join().unwrap(), (vec![], End::Lost));
    });
}

#[test]
fn attaching_while_the_last_reader_leaves_keeps_the_log_watched() {
    explore(4, || {
        let (mut writer, reader) = open(&pool(1), 2).unwrap();
        let tap = writer.tap();
        let leaving = loom::thread::spawn(move || drop(reader));
        let coming = loom::thread::spawn(move || tap.attach(0).unwrap());
        let _either = writer.is_abandoned();
        writer.append(5).unwrap();
        leaving.join().unwrap();
        let mut reader = coming.join().unwrap();
        assert!(!writer.is_abandoned());
        assert_eq!(reader.read(&mut [0; 2]), Read::Items(1));
        drop(reader);
        assert!(writer.is_abandoned());
    });
}

#[test]
fn a_reader_that_leaves_passes_its_slot_on() {
    explore(3, || {
        let (mut writer, reader) = open(&pool(1), 2).unwrap();
        let tap = writer.tap();
        let reading = loom::thread::spawn(move || {
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            let mut reader = reader;
            let _either = reader.poll_read(&mut cx, &mut [0; 2]);
            drop(reader);
            follow(tap.attach(0).unwrap())
        });
        writer.append(1).unwrap();
        writer.finish(End::Length);
        assert_eq!(reading.join().unwrap(), (vec![1], End::Length));
    });
}

/// Credit comes from three sides; the writer never sees more of it than there is, nor less than it
/// has seen before, and in the end it sees all.
#[test]
fn credit_only_grows_and_none_is_lost() {
    explore(2, || {
        let (mut writer, reader) = open(&pool(2), 4).unwrap();
        for item in 0..4 {
            writer.append(item).unwrap();
        }
        let tap = writer.tap();
        let acks = loom::thread::spawn(move || {
            tap.accept(1);
            tap.grant(1);
        });
        let flushes = loom::thread::spawn(move || {
            reader.accept(2);
            reader.grant(1);
            reader // stays: its leaving is not what this is about
        });
        let first = writer.unaccepted();
        let second = writer.unaccepted();
        assert!(first <= 4 && second <= first);
        acks.join().unwrap();
        drop(flushes.join().unwrap());
        assert_eq!(writer.unaccepted(), 0);
        assert_eq!((writer.tap().accepted(), writer.tap().granted()), (2, 2));
    });
}

#[test]
fn segments_come_back_whoever_drops_last() {
    explore(3, || {
        let pool = pool(2);
        let (mut writer, reader) = open(&pool, 4).unwrap();
        for item in 0..3 {
            writer.append(item).unwrap();
        }
        let reading = loom::thread::spawn(move || {
            let mut reader = reader;
            assert_eq!(reader.read(&mut [0; 4]), Read::Items(3));
        });
        drop(writer);
        reading.join().unwrap();
        assert_nothing_held(pool.stats());
        let (mut writer, _reader) = open(&pool, 4).unwrap();
        writer.append(9).unwrap();
        assert_eq!((pool.stats().allocated, pool.stats().reused), (2, 1));
    });
}

/// Two threads open, fill and drop logs that share one pool's free list.
#[test]
fn the_free_list_gives_a_segment_to_one_log_only() {
    explore(3, || {
        let pool = pool(2);
        let use_one = |pool: &SegmentPool<u32>, item| {
            let (mut writer, mut reader) = open(pool, 2).unwrap();
            writer.append(item).unwrap();
            let mut buf = [0; 2];
            assert_eq!(reader.read(&mut buf), Read::Items(1));
            assert_eq!(buf[0], item);
        };
        use_one(&pool, 1);
        let shared = pool.clone();
        let other = loom::thread::spawn(move || {
            use_one(&shared, 2);
            use_one(&shared, 3);
        });
        use_one(&pool, 4);
        other.join().unwrap();
        assert_nothing_held(pool.stats());
        assert!(pool.stats().allocated <= 2);
    });
}

/// The first free segment is taken and pushed again, while another thread is about to take it and
/// has seen its successor, which by now belongs to a log.
#[test]
fn the_free_list_notices_that_its_top_came_back() {
    explore(2, || {
        let pool = pool(4);
        let fill = |pool: &SegmentPool<u32>, items: std::ops::Range<u32>| {
            let (mut writer, reader) = open(pool, items.len()).unwrap();
            items.for_each(|item| writer.append(item).unwrap());
            (writer, reader)
        };
        drop(fill(&pool, 0..4));
        let shared = pool.clone();
        let other = loom::thread::spawn(move || {
            let first = fill(&shared, 10..11);
            let (writer, reader) = fill(&shared, 20..21);
            drop(first);
            writer.finish(End::Length);
            assert_eq!(follow(reader), (vec![20], End::Length));
        });
        let (writer, reader) = fill(&pool, 30..34);
        writer.finish(End::Length);
        assert_eq!(follow(reader), (vec![30, 31, 32, 33], End::Length));
        other.join().unwrap();
        assert_nothing_held(pool.stats());
    });
}

#[test]
fn a_promise_is_withdrawn_only_when_its_segment_is_back() {
    explore(3, || {
        let pool = pool(1);
        let (mut writer, reader) = open(&pool, 1).unwrap();
        writer.append(1).unwrap();
        drop(writer);
        let leaving = loom::thread::spawn(move || drop(reader));
        if let Ok((mut writer, _reader)) = open(&pool, 1) {
            writer.append(2).unwrap();
        }
        leaving.join().unwrap();
        assert_eq!(pool.stats().allocated, 1);
    });
}
