//! The gate's protocol, under loom.

use crate::end::End;
use crate::log::Gate;
use crate::log::open_gated;
use crate::reader::{Read, Reader};
use crate::writer::Writer;
use crate::{assert_nothing_held, explore, follow, pool, wait};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use std::task::Waker;

fn gated() -> (Writer<u32>, Reader<u32>, Gate<u32>) {
    open_gated(&pool(1), 2, Waker::noop().clone()).unwrap()
}

/// A recorder: shows what is written, sleeps until there is more, and shows the end.
fn record(gate: &Gate<u32>) {
    loop {
        let end = gate.written_end();
        gate.show(gate.written_len());
        if end.is_some() {
            return gate.show_end();
        }
        thread::park();
    }
}

/// Writes items from 0 on, and ends the log.
fn write(mut writer: Writer<u32>, items: u32) {
    (0..items).for_each(|item| writer.append(item).unwrap());
    writer.finish(End::Length);
}

/// The recorder keeps up with the writer by sleeping. Loom's `join` must not be woken by the recorder's waker, so the
/// recorder is a thread that joins no other.
#[test]
fn no_wake_is_lost_between_writer_and_recorder() {
    explore(3, || {
        let recording = thread::spawn(|| {
            let recorder = wait::this_thread();
            let (writer, reader, gate) = open_gated(&pool(1), 2, recorder).unwrap();
            let writing = thread::spawn(move || write(writer, 2));
            record(&gate);
            (writing, reader, gate)
        });
        let (writing, reader, gate) = recording.join().unwrap();
        writing.join().unwrap();
        assert_eq!((gate.shown_len(), gate.is_open()), (2, true));
        assert_eq!(follow(reader), (vec![0, 1], End::Length));
    });
}

/// The recorder keeps up with the writer, and the reader with the recorder, both by sleeping.
#[test]
fn no_wake_is_lost_between_writer_recorder_and_reader() {
    explore(1, || {
        let recording = thread::spawn(|| {
            let recorder = wait::this_thread();
            let (writer, reader, gate) = open_gated(&pool(1), 2, recorder).unwrap();
            let writing = thread::spawn(move || write(writer, 1));
            let reading = thread::spawn(move || follow(reader));
            record(&gate);
            (writing, reading)
        });
        let (writing, reading) = recording.join().unwrap();
        writing.join().unwrap();
        assert_eq!(reading.join().unwrap(), (vec![0], End::Length));
    });
}

/// The reader arms around each call of `show`.
#[test]
fn no_wake_is_lost_between_show_and_arm() {
    explore(3, || {
        let (writer, reader, gate) = gated();
        write(writer, 2);
        let reading = thread::spawn(move || follow(reader));
        gate.show(1);
        gate.show(2);
        gate.show_end();
        assert_eq!(reading.join().unwrap(), (vec![0, 1], End::Length));
    });
}

/// The recorder notes what is recorded, with the weakest order, before showing that much.
#[test]
fn nothing_is_shown_early() {
    explore(3, || {
        let (writer, mut reader, gate) = gated();
        let recorded = Arc::new((AtomicU64::new(0), AtomicBool::new(false)));
        let seen = Arc::clone(&recorded);
        let writing = thread::spawn(move || write(writer, 1));
        let reading = thread::spawn(move || {
            for _ in 0..2 {
                let found = reader.read(&mut [0; 2]);
                assert!(reader.cursor() <= seen.0.load(Ordering::Relaxed));
                let is_ended = matches!(found, Read::Ended(_));
                assert!(!is_ended || seen.1.load(Ordering::Relaxed));
            }
        });
        let end = gate.written_end();
        let len = gate.written_len();
        recorded.0.store(len, Ordering::Relaxed);
        if end.is_some() {
            recorded.1.store(true, Ordering::Relaxed);
            gate.show_end();
        } else {
            gate.show(len);
        }
        writing.join().unwrap();
        reading.join().unwrap();
    });
}

/// A tap offers an index only if readers may see the items before it.
#[test]
fn tap_sees_no_more_than_is_shown() {
    explore(3, || {
        let (mut writer, _reader, gate) = gated();
        let tap = gate.tap();
        let attaching = thread::spawn(move || {
            assert!(tap.len() <= 1);
            assert!(tap.attach(2).is_err());
            assert_eq!(tap.end(), None);
            tap.accept(2);
            assert!(tap.accepted() <= 1 && tap.accepted() <= tap.len());
        });
        (0..2).for_each(|item| writer.append(item).unwrap());
        gate.show(1);
        writer.finish(End::Length);
        attaching.join().unwrap();
    });
}

#[test]
fn the_end_is_shown_after_all_items() {
    explore(2, || {
        let (writer, mut reader, gate) = gated();
        let writing = thread::spawn(move || write(writer, 1));
        let reading = thread::spawn(move || {
            for _ in 0..3 {
                if let Read::Ended(end) = reader.read(&mut [0; 2]) {
                    assert_eq!((reader.cursor(), end), (1, End::Length));
                }
            }
        });
        gate.show_end(); // with an end or without
        gate.show(gate.written_len());
        gate.show_end();
        writing.join().unwrap();
        reading.join().unwrap();
    });
}

/// The recorder that saw the end sees all items.
#[test]
fn the_length_is_final_after_the_written_end() {
    explore(4, || {
        let (writer, _reader, gate) = gated();
        let writing = thread::spawn(move || write(writer, 2));
        if gate.written_end().is_some() {
            assert_eq!(gate.written_len(), 2);
            let mut buf = [9; 2];
            assert_eq!(gate.copy_written(0, &mut buf), 2);
            assert_eq!(buf, [0, 1]);
        }
        writing.join().unwrap();
    });
}

/// Only the writer and the thread that opens the gate can wake the sleeping reader.
#[test]
fn gate_opened_while_the_writer_appends_loses_no_wake() {
    explore(3, || {
        let (writer, reader, gate) = gated();
        let writing = thread::spawn(move || write(writer, 1));
        let reading = thread::spawn(move || follow(reader));
        gate.open();
        writing.join().unwrap();
        assert_eq!(reading.join().unwrap(), (vec![0], End::Length));
    });
}

#[test]
fn gate_opened_while_the_writer_is_dropped_loses_no_wake() {
    explore(4, || {
        let (writer, reader, gate) = gated();
        let writing = thread::spawn(move || drop(writer));
        let reading = thread::spawn(move || follow(reader));
        gate.open();
        writing.join().unwrap();
        assert_eq!(reading.join().unwrap(), (vec![], End::Lost));
    });
}

/// One holder shows and leaves, the other opens the gate: the mark does not go back.
#[test]
fn gate_opened_while_another_holder_shows_stays_open() {
    explore(3, || {
        let (writer, reader, gate) = gated();
        write(writer, 2);
        let second = gate.clone();
        let showing = thread::spawn(move || second.show(1));
        let reading = thread::spawn(move || follow(reader));
        gate.open();
        assert!(gate.is_open());
        showing.join().unwrap();
        assert_eq!(reading.join().unwrap(), (vec![0, 1], End::Length));
        assert!(gate.is_open());
    });
}

#[test]
fn last_gate_dropped_while_the_writer_appends_shows_everything() {
    explore(2, || {
        let (writer, reader, gate) = gated();
        let writing = thread::spawn(move || write(writer, 1));
        let reading = thread::spawn(move || follow(reader));
        drop(gate);
        writing.join().unwrap();
        assert_eq!(reading.join().unwrap(), (vec![0], End::Length));
    });
}

/// Two holders are dropped at the same time: one of them is the last.
#[test]
fn two_gates_dropped_at_once_open_the_gate() {
    explore(3, || {
        let pool = pool(1);
        let (mut writer, reader, gate) = open_gated(&pool, 2, Waker::noop().clone()).unwrap();
        let second = gate.clone();
        let dropping = thread::spawn(move || drop(second));
        let reading = thread::spawn(move || follow(reader));
        writer.append(0).unwrap();
        writer.finish(End::Cancelled);
        drop(gate);
        dropping.join().unwrap();
        assert_eq!(reading.join().unwrap(), (vec![0], End::Cancelled));
        assert_nothing_held(pool.stats());
    });
}
