//! Gated logs: readers and taps see what the gate has shown, and the recorder is woken by the writer.
//!
//! Promise (Streams): readers of a gated log see a token or the end only after the gate has shown it; a gate whose
//! last holder is dropped opens.
//! Also held by `stream/tests/it/model.rs`, `stream/tests/loom/gates.rs`, `stream/tests/shuttle/gates.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use stream::{
    AttachError, End, Gate, PoolLimits, Read, Reader, SEGMENT_ITEMS, SegmentPool, Writer,
    open_gated,
};

/// Counts its wakes.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    /// Wakes since the last call.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// The reader and the gate of a log, with counters of both sides' wakes.
struct Gated {
    pool: SegmentPool<u64>,
    reader: Reader<u64>,
    gate: Gate<u64>,
    recorder_wakes: Arc<Count>,
    reader_wakes: Arc<Count>,
}

fn gated() -> (Writer<u64>, Gated) {
    let pool = SegmentPool::new(PoolLimits { segments_max: 2 });
    let recorder_wakes = Arc::new(Count::default());
    let recorder = Waker::from(Arc::clone(&recorder_wakes));
    let (writer, reader, gate) = open_gated(&pool, 2 * SEGMENT_ITEMS, recorder).unwrap();
    let log = Gated {
        pool,
        reader,
        gate,
        recorder_wakes,
        reader_wakes: Arc::default(),
    };
    (writer, log)
}

impl Gated {
    fn poll(&mut self) -> Poll<Read> {
        let waker = Waker::from(Arc::clone(&self.reader_wakes));
        let mut cx = Context::from_waker(&waker);
        self.reader.poll_read(&mut cx, &mut [0; 1000])
    }

    /// Wakes of the recorder and of the reader since the last call.
    fn wakes(&self) -> (usize, usize) {
        (self.recorder_wakes.take(), self.reader_wakes.take())
    }
}

#[test]
fn readers_see_items_and_the_end_only_when_they_are_shown() {
    let (mut writer, mut log) = gated();
    assert_eq!(log.poll(), Poll::Pending);
    (0..300).for_each(|item| writer.append(item).unwrap());
    assert_eq!((log.gate.written_len(), log.gate.shown_len()), (300, 0));
    assert_eq!(log.poll(), Poll::Pending);
    assert_eq!(log.wakes(), (300, 0));
    log.gate.show(257);
    assert_eq!(log.wakes(), (0, 1));
    assert_eq!(log.poll(), Poll::Ready(Read::Items(257)));
    log.gate.show(3); // never fewer
    log.gate.show(257);
    assert_eq!(log.poll(), Poll::Pending);
    writer.finish(End::Length);
    assert_eq!(log.wakes(), (1, 0));
    assert_eq!(log.gate.written_end(), Some(End::Length));
    assert_eq!(log.gate.tap().end(), None);
    log.gate.show(u64::MAX); // counts as 300
    assert_eq!(log.wakes(), (0, 1));
    assert_eq!(log.poll(), Poll::Ready(Read::Items(43)));
    assert_eq!(log.poll(), Poll::Pending, "the end is not shown");
    assert!(!log.gate.is_open());
    log.gate.show_end();
    assert_eq!(log.wakes(), (0, 1));
    assert_eq!(log.poll(), Poll::Ready(Read::Ended(End::Length)));
    assert_eq!(log.gate.tap().end(), Some(End::Length));
    assert!(log.gate.is_open());
}

#[test]
fn end_that_is_shown_shows_all_items() {
    let (mut writer, mut log) = gated();
    writer.append(1).unwrap();
    log.gate.show_end(); // no end is written
    assert_eq!((log.gate.shown_len(), log.gate.is_open()), (0, false));
    writer.append(2).unwrap();
    writer.finish(End::Cancelled);
    log.gate.show_end();
    let mut buf = [0; 4];
    assert_eq!(log.reader.read(&mut buf), Read::Items(2));
    assert_eq!(buf[..2], [1, 2]);
    assert_eq!(log.reader.read(&mut buf), Read::Ended(End::Cancelled));
}

#[test]
fn taps_and_attached_readers_see_the_shown_items_and_the_writer_sees_all() {
    let (mut writer, log) = gated();
    let tap = writer.tap();
    (0..SEGMENT_ITEMS as u64 + 2).for_each(|item| writer.append(item).unwrap());
    let all = writer.len();
    assert_eq!((writer.unaccepted(), log.gate.written_len()), (all, all));
    assert_eq!(writer.room(), SEGMENT_ITEMS - 2);
    assert_eq!((tap.len(), tap.is_empty(), tap.bytes()), (0, true, 0));
    assert_eq!(tap.attach(1).err(), Some(AttachError::Ahead { len: 0 }));
    log.gate.show(2);
    assert_eq!((tap.len(), tap.is_empty(), tap.unaccepted()), (2, false, 2));
    assert_eq!(tap.bytes(), SEGMENT_ITEMS * size_of::<u64>());
    let refused = log.reader.attach(3).err();
    assert_eq!(refused, Some(AttachError::Ahead { len: 2 }));
    assert_eq!(tap.attach(2).unwrap().read(&mut [0]), Read::Empty);
    tap.accept(u64::MAX); // counts as 2
    assert_eq!((tap.accepted(), tap.unaccepted()), (2, 0));
    assert_eq!(writer.unaccepted(), all - 2);
    assert_eq!(log.gate.tap().len(), 2);
}

#[test]
fn gate_reads_what_is_written_and_not_shown() {
    let (mut writer, log) = gated();
    (0..300).for_each(|item| writer.append(item * 3).unwrap());
    let mut buf = [0; 100];
    assert_eq!(log.gate.copy_written(250, &mut buf), 50);
    assert!(
        buf[..50]
            .iter()
            .copied()
            .eq((250..300).map(|item| item * 3))
    );
    assert_eq!(log.gate.copy_written(0, &mut buf), 100);
    assert_eq!(log.gate.copy_written(300, &mut buf), 0);
    assert_eq!(log.gate.copy_written(u64::MAX, &mut buf), 0);
}

#[test]
fn open_gate_shows_everything_at_once_and_wakes_both_sides() {
    let (mut writer, mut log) = gated();
    writer.append(1).unwrap();
    assert_eq!(log.poll(), Poll::Pending);
    assert_eq!(log.wakes(), (1, 0));
    log.gate.open();
    assert_eq!(log.wakes(), (0, 1));
    log.gate.open();
    log.gate.show(0);
    assert_eq!((log.gate.is_open(), log.gate.shown_len()), (true, 1));
    assert_eq!(log.poll(), Poll::Ready(Read::Items(1)));
    assert_eq!(log.poll(), Poll::Pending);
    assert_eq!(log.wakes(), (0, 0));
    writer.append(2).unwrap();
    assert_eq!(log.wakes(), (1, 1));
    assert_eq!(log.poll(), Poll::Ready(Read::Items(1)));
    assert_eq!(log.poll(), Poll::Pending);
    writer.finish(End::Deadline);
    assert_eq!(log.wakes(), (1, 1));
    assert_eq!(log.poll(), Poll::Ready(Read::Ended(End::Deadline)));
}

#[test]
fn dropped_writer_of_a_gated_log_is_lost_and_wakes_the_recorder() {
    let (mut writer, mut log) = gated();
    writer.append(1).unwrap();
    log.wakes();
    drop(writer);
    assert_eq!(log.recorder_wakes.take(), 1);
    assert_eq!(log.gate.written_end(), Some(End::Lost));
    assert_eq!(log.reader.read(&mut [0]), Read::Empty);
    log.gate.show_end();
    assert_eq!(log.reader.read(&mut [0]), Read::Items(1));
    assert_eq!(log.reader.read(&mut [0]), Read::Ended(End::Lost));
}

#[test]
fn drop_of_the_last_gate_opens_the_gate() {
    let (mut writer, mut log) = gated();
    let second = log.gate.clone();
    writer.append(1).unwrap();
    assert_eq!(log.poll(), Poll::Pending);
    let waker = Waker::from(Arc::clone(&log.reader_wakes));
    drop(log.gate);
    assert_eq!(log.reader_wakes.take(), 0, "a clone is left");
    assert_eq!(log.reader.read(&mut [0]), Read::Empty);
    drop(second);
    assert_eq!(log.reader_wakes.take(), 1);
    assert_eq!(log.reader.read(&mut [0]), Read::Items(1));
    let mut cx = Context::from_waker(&waker);
    assert_eq!(log.reader.poll_read(&mut cx, &mut [0]), Poll::Pending);
    writer.append(2).unwrap();
    assert_eq!(log.reader_wakes.take(), 1);
    writer.finish(End::Length);
    assert_eq!(log.reader.read(&mut [0]), Read::Items(1));
    assert_eq!(log.reader.read(&mut [0]), Read::Ended(End::Length));
}

#[test]
fn gate_does_not_count_as_a_reader_and_keeps_the_items() {
    let (mut writer, log) = gated();
    writer.append(7).unwrap();
    drop(log.reader);
    assert!(writer.is_abandoned());
    assert_eq!(log.gate.tap().readers(), 0);
    writer.finish(End::Cancelled);
    let mut buf = [0];
    assert_eq!(log.gate.copy_written(0, &mut buf), 1);
    assert_eq!((buf, log.pool.stats().in_use), ([7], 1));
    drop(log.gate);
    assert_eq!((log.pool.stats().reserved, log.pool.stats().in_use), (0, 0));
}
