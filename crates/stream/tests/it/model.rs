//! Random operations on a log's holders, compared step by step with a `Vec` and a few integers.

mod follower;
mod ops;

use follower::{Follower, Wakes};
use ops::{CAPACITY, Op, SEGMENTS, op};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use stream::{
    AttachError, End, FailCode, Gate, PoolLimits, Read, Reader, SEGMENT_ITEMS, SegmentPool, Tap,
    Writer, open, open_gated,
};

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
    /// Holders of the gate; none in a log without one.
    gates: Vec<Gate<u32>>,
    /// Items that the gate has shown; `None` if everything is visible.
    shown: Option<usize>,
    is_gated: bool,
    recorder_wakes: Arc<Wakes>,
    recorder_wakes_due: usize,
}

impl Pair {
    fn new(is_gated: bool) -> Self {
        let pool = SegmentPool::new(PoolLimits {
            segments_max: SEGMENTS,
        });
        let recorder_wakes = Arc::new(Wakes::default());
        let (writer, reader, gates) = if is_gated {
            let recorder = Waker::from(Arc::clone(&recorder_wakes));
            let (writer, reader, gate) = open_gated(&pool, CAPACITY, recorder).unwrap();
            (writer, reader, vec![gate])
        } else {
            let (writer, reader) = open(&pool, CAPACITY).unwrap();
            (writer, reader, Vec::new())
        };
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
            gates,
            shown: is_gated.then_some(0),
            is_gated,
            recorder_wakes,
            recorder_wakes_due: 0,
        }
    }

    /// What readers ought to see.
    fn visible(&self) -> (&[u32], Option<End>) {
        match self.shown {
            Some(shown) => (&self.items[..shown], None),
            None => (&self.items, self.end),
        }
    }

    fn visible_len(&self) -> u64 {
        self.visible().0.len() as u64
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
            Op::Show { len } => self.show(len),
            Op::ShowEnd => self.show_end(),
            Op::OpenGate => self.open_gate(),
            Op::CloneGate => self.gates.extend(self.gates.first().cloned()),
            Op::DropGate => self.drop_gate(),
        }
    }

    fn show(&mut self, len: u64) {
        let Some(gate) = self.gates.first() else {
            return;
        };
        gate.show(len);
        let len = self.items.len().min(len as usize);
        if let Some(shown) = &mut self.shown
            && *shown < len
        {
            *shown = len;
            self.news();
        }
    }

    fn show_end(&mut self) {
        let Some(gate) = self.gates.first() else {
            return;
        };
        gate.show_end();
        if self.end.is_some() {
            self.opened();
        }
    }

    fn open_gate(&mut self) {
        let Some(gate) = self.gates.first() else {
            return;
        };
        gate.open();
        self.opened();
    }

    fn drop_gate(&mut self) {
        if self.gates.pop().is_some() && self.gates.is_empty() {
            self.opened();
        }
    }

    fn opened(&mut self) {
        if self.shown.take().is_some() {
            self.news();
        }
    }

    fn news(&mut self) {
        self.readers.iter_mut().for_each(Follower::news);
    }

    /// The writer wrote an item or the end.
    fn written(&mut self) {
        self.recorder_wakes_due += usize::from(self.is_gated);
        if self.shown.is_none() {
            self.news();
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
            self.written();
        }
    }

    fn end_with(&mut self, end: End, how: impl FnOnce(Writer<u32>, End)) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        how(writer, end);
        self.end = Some(end);
        self.written();
    }

    fn read(&mut self, reader: usize, room: usize, how: fn(&mut Follower, &mut [u32]) -> Read) {
        let Some(i) = pick(&self.readers, reader) else {
            return;
        };
        let mut buf = vec![0; room];
        let found = how(&mut self.readers[i], &mut buf);
        let (items, end) = self.visible();
        let new = &items[self.readers[i].cursor..];
        let expected = match (new.len().min(room), end) {
            (0, None) => Read::Empty,
            (0, Some(end)) => Read::Ended(end),
            (count, _) => Read::Items(count),
        };
        assert_eq!(found, expected);
        if let Read::Items(count) = found {
            assert_eq!(buf[..count], new[..count]);
            self.readers[i].cursor += count;
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
        self.accepted = self.accepted.max(index.min(self.visible_len()));
    }

    fn attached(&mut self, outcome: Result<Reader<u32>, AttachError>, index: u64) {
        let len = self.visible_len();
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
        let unaccepted = |len: u64| (len - self.accepted).saturating_sub(self.granted);
        if let Some(writer) = &self.writer {
            assert_eq!((writer.len(), writer.is_empty()), (len, len == 0));
            assert_eq!(writer.capacity(), CAPACITY);
            assert_eq!(writer.is_abandoned(), self.readers.is_empty());
            assert_eq!(writer.unaccepted(), unaccepted(len));
        }
        for follower in &self.readers {
            assert_eq!(follower.reader.cursor(), follower.cursor as u64);
            assert_eq!(follower.wakes.0.load(Ordering::Relaxed), follower.wakes_due);
        }
        let (items, end) = self.visible();
        let len = items.len() as u64;
        for tap in &self.taps {
            assert_eq!((tap.len(), tap.is_empty(), tap.end()), (len, len == 0, end));
            assert_eq!(
                (tap.accepted(), tap.granted(), tap.unaccepted()),
                (self.accepted, self.granted, unaccepted(len))
            );
            assert_eq!(tap.readers(), self.readers.len());
            assert_eq!(tap.is_abandoned(), self.readers.is_empty());
            assert_eq!(tap.capacity(), CAPACITY);
            let segments = items.len().div_ceil(SEGMENT_ITEMS);
            assert_eq!(tap.bytes(), segments * SEGMENT_ITEMS * size_of::<u32>());
        }
        self.check_gates();
        self.check_pool();
    }

    fn check_gates(&self) {
        let mut buf = [0; 50];
        for gate in &self.gates {
            let len = self.items.len();
            assert_eq!(
                (gate.written_len(), gate.written_end()),
                (len as u64, self.end)
            );
            assert_eq!(gate.shown_len(), self.visible_len());
            assert_eq!(gate.is_open(), self.shown.is_none());
            let from = len.saturating_sub(40);
            let count = gate.copy_written(from as u64, &mut buf);
            assert_eq!(buf[..count], self.items[from..]);
        }
        let wakes = self.recorder_wakes.0.load(Ordering::Relaxed);
        assert_eq!(wakes, self.recorder_wakes_due);
    }

    fn check_pool(&self) {
        let taken = self.items.len().div_ceil(SEGMENT_ITEMS);
        let readable = !self.readers.is_empty() || !self.taps.is_empty();
        let held = self.writer.is_some() || readable || !self.gates.is_empty();
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
    fn a_log_is_a_list_with_an_end(is_gated: bool, ops in prop::collection::vec(op(), 1..80)) {
        let mut pair = Pair::new(is_gated);
        pair.check();
        for op in &ops {
            pair.apply(op);
            pair.check();
        }
    }
}
