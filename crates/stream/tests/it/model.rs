//! Random operations on a log's holders, compared step by step with a `Vec` and a few integers.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use stream::{
    AttachError, End, FailCode, PoolLimits, Read, Reader, SEGMENT_ITEMS, SegmentPool, Tap, Writer,
    open,
};

#[derive(Clone, Debug)]
enum Op {
    Append { items: usize },
    Finish,
    DropWriter,
    Read { reader: usize, room: usize },
    Poll { reader: usize, room: usize },
    Accept { reader: usize, index: u64 },
    AcceptByTap { tap: usize, index: u64 },
    Grant { reader: usize, extra: u64 },
    GrantByTap { tap: usize, extra: u64 },
    AttachToReader { reader: usize, index: u64 },
    AttachToTap { tap: usize, index: u64 },
    Tap { reader: usize },
    DropReader { reader: usize },
    DropTap { tap: usize },
}

const SEGMENTS: usize = 3;
/// Not a multiple of the segment, so that the last one is never full.
const CAPACITY: usize = SEGMENTS * SEGMENT_ITEMS - 100;

fn op() -> impl Strategy<Value = Op> {
    let index = || 0..CAPACITY as u64 + 50;
    let extra = || prop_oneof![8 => 0..100u64, 1 => Just(u64::MAX)];
    prop_oneof![
        6 => (1..200usize).prop_map(|items| Op::Append { items }),
        1 => Just(Op::Finish),
        1 => Just(Op::DropWriter),
        6 => (0..8usize, 1..400usize).prop_map(|(reader, room)| Op::Read { reader, room }),
        6 => (0..8usize, 1..400usize).prop_map(|(reader, room)| Op::Poll { reader, room }),
        2 => (0..8usize, index()).prop_map(|(reader, index)| Op::Accept { reader, index }),
        2 => (0..8usize, index()).prop_map(|(tap, index)| Op::AcceptByTap { tap, index }),
        1 => (0..8usize, extra()).prop_map(|(reader, extra)| Op::Grant { reader, extra }),
        1 => (0..8usize, extra()).prop_map(|(tap, extra)| Op::GrantByTap { tap, extra }),
        2 => (0..8usize, index()).prop_map(|(reader, index)| Op::AttachToReader { reader, index }),
        2 => (0..8usize, index()).prop_map(|(tap, index)| Op::AttachToTap { tap, index }),
        2 => (0..8usize).prop_map(|reader| Op::Tap { reader }),
        2 => (0..8usize).prop_map(|reader| Op::DropReader { reader }),
        1 => (0..8usize).prop_map(|tap| Op::DropTap { tap }),
    ]
}

/// The log under test beside what it ought to be.
struct Pair {
    pool: SegmentPool<u32>,
    writer: Option<Writer<u32>>,
    readers: Vec<Follower>,
    taps: Vec<Tap<u32>>,
    items: Vec<u32>,
    accepted: u64,
    granted: u64,
    end: Option<End>,
}

/// A reader, where it ought to be, and how often it was woken and ought to have been.
struct Follower {
    reader: Reader<u32>,
    cursor: usize,
    wakes: Arc<Wakes>,
    wakes_due: usize,
    sleeping: bool,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Follower {
    fn new(reader: Reader<u32>, cursor: usize) -> Self {
        Self {
            reader,
            cursor,
            wakes: Arc::default(),
            wakes_due: 0,
            sleeping: false,
        }
    }

    fn poll(&mut self, buf: &mut [u32]) -> Read {
        let waker = Waker::from(Arc::clone(&self.wakes));
        match self.reader.poll_read(&mut Context::from_waker(&waker), buf) {
            Poll::Ready(found) => {
                assert_ne!(found, Read::Empty, "ready with nothing");
                found
            }
            Poll::Pending => {
                self.sleeping = true;
                Read::Empty
            }
        }
    }

    /// The log has something new: a sleeper is woken, once.
    fn news(&mut self) {
        self.wakes_due += usize::from(std::mem::take(&mut self.sleeping));
    }
}

impl Pair {
    fn new() -> Self {
        let pool = SegmentPool::new(PoolLimits {
            segments_max: SEGMENTS,
        });
        let (writer, reader) = open(&pool, CAPACITY).unwrap();
        let readers = vec![Follower::new(reader, 0)];
        Self {
            pool,
            writer: Some(writer),
            readers,
            taps: Vec::new(),
            items: Vec::new(),
            accepted: 0,
            granted: 0,
            end: None,
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Append { items } => (0..items).for_each(|_| self.append()),
            Op::Finish => self.end_with(End::Failed(FailCode::Inference), Writer::finish),
            Op::DropWriter => self.end_with(End::Lost, |writer, _| drop(writer)),
            Op::Read { reader, room } => self.read(reader, room, |f, buf| f.reader.read(buf)),
            Op::Poll { reader, room } => self.read(reader, room, Follower::poll),
            Op::Accept { reader, index } => self.accept(pick(&self.readers, reader), index),
            Op::AcceptByTap { tap, index } => self.accept_by_tap(pick(&self.taps, tap), index),
            Op::Grant { reader, extra } => self.grant(pick(&self.readers, reader), extra),
            Op::GrantByTap { tap, extra } => self.grant_by_tap(pick(&self.taps, tap), extra),
            Op::AttachToReader { reader, index } => {
                let Some(i) = pick(&self.readers, reader) else {
                    return;
                };
                self.attached(self.readers[i].reader.attach(index), index);
            }
            Op::AttachToTap { tap, index } => {
                let Some(i) = pick(&self.taps, tap) else {
                    return;
                };
                self.attached(self.taps[i].attach(index), index);
            }
            Op::Tap { reader } => {
                let Some(i) = pick(&self.readers, reader) else {
                    return;
                };
                self.taps.push(self.readers[i].reader.tap());
            }
            Op::DropReader { reader } => {
                let Some(i) = pick(&self.readers, reader) else {
                    return;
                };
                self.readers.swap_remove(i);
            }
            Op::DropTap { tap } => {
                let Some(i) = pick(&self.taps, tap) else {
                    return;
                };
                self.taps.swap_remove(i);
            }
        }
    }

    fn append(&mut self) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let item = self.items.len() as u32 * 7;
        let fits = self.items.len() < CAPACITY;
        assert_eq!(writer.append(item).is_ok(), fits);
        if fits {
            self.items.push(item);
            self.readers.iter_mut().for_each(Follower::news);
        }
    }

    fn end_with(&mut self, end: End, how: impl FnOnce(Writer<u32>, End)) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        how(writer, end);
        self.end = Some(end);
        self.readers.iter_mut().for_each(Follower::news);
    }

    fn read(&mut self, reader: usize, room: usize, how: fn(&mut Follower, &mut [u32]) -> Read) {
        let Some(i) = pick(&self.readers, reader) else {
            return;
        };
        let follower = &mut self.readers[i];
        let mut buf = vec![0; room];
        let new = &self.items[follower.cursor..];
        let found = how(follower, &mut buf);
        let expected = match (new.len().min(room), self.end) {
            (0, None) => Read::Empty,
            (0, Some(end)) => Read::Ended(end),
            (count, _) => Read::Items(count),
        };
        assert_eq!(found, expected);
        if let Read::Items(count) = found {
            assert_eq!(buf[..count], new[..count]);
            follower.cursor += count;
        }
    }

    fn accept(&mut self, reader: Option<usize>, index: u64) {
        if let Some(i) = reader {
            self.readers[i].reader.accept(index);
            self.accepted(index);
        }
    }

    fn accept_by_tap(&mut self, tap: Option<usize>, index: u64) {
        if let Some(i) = tap {
            self.taps[i].accept(index);
            self.accepted(index);
        }
    }

    fn grant(&mut self, reader: Option<usize>, extra: u64) {
        if let Some(i) = reader {
            self.readers[i].reader.grant(extra);
            self.granted = self.granted.saturating_add(extra);
        }
    }

    fn grant_by_tap(&mut self, tap: Option<usize>, extra: u64) {
        if let Some(i) = tap {
            self.taps[i].grant(extra);
            self.granted = self.granted.saturating_add(extra);
        }
    }

    fn accepted(&mut self, index: u64) {
        self.accepted = self.accepted.max(index.min(self.items.len() as u64));
    }

    fn attached(&mut self, outcome: Result<Reader<u32>, AttachError>, index: u64) {
        let len = self.items.len() as u64;
        match outcome {
            Ok(reader) => {
                assert!(index <= len);
                self.readers.push(Follower::new(reader, index as usize));
            }
            Err(error) => {
                assert!(index > len);
                assert_eq!(error, AttachError::Ahead { len });
            }
        }
    }

    fn check(&self) {
        let len = self.items.len() as u64;
        let unaccepted = (len - self.accepted).saturating_sub(self.granted);
        if let Some(writer) = &self.writer {
            assert_eq!((writer.len(), writer.is_empty()), (len, len == 0));
            assert_eq!(writer.capacity(), CAPACITY);
            assert_eq!(writer.is_abandoned(), self.readers.is_empty());
            assert_eq!(writer.unaccepted(), unaccepted);
        }
        for follower in &self.readers {
            assert_eq!(follower.reader.cursor(), follower.cursor as u64);
            assert_eq!(follower.wakes.0.load(Ordering::Relaxed), follower.wakes_due);
        }
        for tap in &self.taps {
            assert_eq!(
                (tap.len(), tap.is_empty(), tap.end()),
                (len, len == 0, self.end)
            );
            assert_eq!(
                (tap.accepted(), tap.granted(), tap.unaccepted()),
                (self.accepted, self.granted, unaccepted)
            );
            assert_eq!(tap.readers(), self.readers.len());
            assert_eq!(tap.is_abandoned(), self.readers.is_empty());
            assert_eq!(tap.capacity(), CAPACITY);
            let in_use = self.pool.stats().in_use;
            assert_eq!(tap.bytes(), in_use * SEGMENT_ITEMS * size_of::<u32>());
        }
        self.check_pool();
    }

    fn check_pool(&self) {
        let taken = self.items.len().div_ceil(SEGMENT_ITEMS);
        let held = self.writer.is_some() || !self.readers.is_empty() || !self.taps.is_empty();
        let in_use = if held { taken } else { 0 };
        let reserved = if self.writer.is_some() {
            SEGMENTS
        } else {
            in_use
        };
        let stats = self.pool.stats();
        assert_eq!((stats.reserved, stats.in_use), (reserved, in_use));
        assert_eq!((stats.allocated, stats.reused), (taken, 0));
    }
}

fn pick<T>(list: &[T], number: usize) -> Option<usize> {
    number.checked_rem(list.len())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_log_is_a_list_with_an_end(ops in prop::collection::vec(op(), 1..80)) {
        let mut pair = Pair::new();
        pair.check();
        for op in &ops {
            pair.apply(op);
            pair.check();
        }
    }
}
