//! The ring's protocol, under loom.

use crate::explore;
use crate::ring::{Next, Refused, RingKind, RingReader, open, open_at};

/// All items, sleeping where there is nothing new.
fn follow(mut reader: RingReader<u32>) -> Vec<u32> {
    std::iter::from_fn(|| reader.next_blocking()).collect()
}

#[test]
fn no_wake_is_lost_at_either_end() {
    explore(2, || {
        let (mut writer, reader) = open(1, RingKind::Lossless).unwrap();
        let reading = loom::thread::spawn(move || follow(reader));
        for item in 0..2 {
            writer.push_blocking(item).unwrap();
        }
        drop(writer);
        assert_eq!(reading.join().unwrap(), [0, 1]);
    });
}

#[test]
fn a_sleeping_writer_is_woken_by_a_reader_that_leaves() {
    explore(3, || {
        let (mut writer, reader) = open(1, RingKind::Lossless).unwrap();
        let writing = loom::thread::spawn(move || {
            let first = writer.push_blocking(1_u32);
            (first, writer.push_blocking(2))
        });
        drop(reader);
        let (first, second) = writing.join().unwrap();
        assert!(first.is_ok() || first == Err(Refused::Closed));
        assert_eq!(second, Err(Refused::Closed));
    });
}

#[test]
fn closed_is_seen_after_all_items() {
    explore(4, || {
        let (mut writer, mut reader) = open(2, RingKind::Lossless).unwrap();
        let reading = loom::thread::spawn(move || {
            let mut seen = Vec::new();
            for _ in 0..3 {
                match reader.next_item() {
                    Next::Item(item) => seen.push(item),
                    Next::Empty => {}
                    Next::Closed => assert_eq!(seen, [5, 6]),
                }
            }
        });
        assert_eq!(writer.push_slice(&[5_u32, 6]), Ok(2));
        drop(writer);
        reading.join().unwrap();
    });
}

/// The slots of a lossless ring are used again only after they were read.
#[test]
fn wrapping_loses_and_repeats_nothing() {
    explore(3, || {
        let (mut writer, mut reader) = open_at(2, RingKind::Lossless, (1 << 32) - 1).unwrap();
        let reading = loom::thread::spawn(move || {
            let mut seen = Vec::new();
            for _ in 0..3 {
                seen.extend(reader.try_next());
            }
            seen.extend(reader.by_ref());
            (seen, reader)
        });
        let taken = (0..3).take_while(|item| writer.push(*item).is_ok()).count() as u32;
        let (mut seen, mut reader) = reading.join().unwrap();
        reader.drain_into(&mut seen);
        assert!(taken >= 2 && seen.into_iter().eq(0..taken));
    });
}

/// An item of two cells is whole or not there, however the writer overtakes the reader.
#[test]
fn no_item_is_torn_and_what_is_dropped_is_counted() {
    for capacity in [1, 2] {
        explore(3, move || {
            let (mut writer, mut reader) = open(capacity, RingKind::DropOldest).unwrap();
            let writing = loom::thread::spawn(move || {
                for item in 1..=3_u32 {
                    writer.push([item, item]).unwrap();
                }
            });
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.extend(reader.try_next());
            }
            writing.join().unwrap();
            reader.drain_into(&mut seen);
            assert!(seen.iter().all(|[a, b]| a == b), "{seen:?}");
            assert!(seen.is_sorted() && seen.last() == Some(&[3, 3]), "{seen:?}");
            assert_eq!(seen.len() as u64 + reader.dropped(), 3);
        });
    }
}

#[test]
fn no_wake_is_lost_where_the_oldest_is_dropped() {
    explore(3, || {
        let (mut writer, reader) = open(1, RingKind::DropOldest).unwrap();
        let reading = loom::thread::spawn(move || follow(reader));
        writer.push(1).unwrap();
        writer.push(2).unwrap();
        drop(writer);
        assert_eq!(reading.join().unwrap().last(), Some(&2));
    });
}
