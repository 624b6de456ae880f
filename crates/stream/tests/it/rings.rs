//! Rings: what a holder of either end sees.
//!
//! Promise (Streams): a ring channel keeps order across wraps and 2^32, loses nothing or exactly the oldest and
//! counts it, tears no item, loses no wake-up, allocates nothing.
//! Also held by `stream/tests/loom/rings.rs`, `stream/tests/shuttle/rings.rs`, `stream/tests/it/allocation.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use stream::ring::{CAPACITY_MAX, Item, Next, Refused, RingKind, open, open_at};

const KINDS: [RingKind; 2] = [RingKind::Lossless, RingKind::DropOldest];

#[test]
fn order_is_kept_without_and_with_wrap() {
    // capacity, items before each look
    let cases = [(8, 3), (8, 8), (3, 2), (1, 1), (5, 4)];
    for (capacity, at_once) in cases {
        for kind in KINDS {
            let (mut writer, mut reader) = open::<u32>(capacity, kind).unwrap();
            let mut seen = Vec::new();
            for item in 0..100_u32 {
                writer.push(item).unwrap();
                if (item + 1) % at_once == 0 {
                    seen.extend(&mut reader);
                }
            }
            seen.extend(&mut reader);
            assert!(
                seen.iter().copied().eq(0..100),
                "{capacity} {kind:?}: {seen:?}"
            );
            assert_eq!(reader.dropped(), 0);
        }
    }
}

#[test]
fn capacity_is_from_one_to_the_most() {
    for kind in KINDS {
        for capacity in [0, CAPACITY_MAX + 1] {
            let error = open::<u8>(capacity, kind).err().expect("refused");
            assert_eq!(error.capacity, capacity);
            assert!(error.to_string().contains("capacity"), "{error}");
        }
    }
}

#[test]
fn a_lossless_writer_is_told_full_and_loses_nothing() {
    let (mut writer, mut reader) = open(3, RingKind::Lossless).unwrap();
    assert_eq!(writer.push_slice(&[1, 2, 3, 4, 5]), Ok(3));
    assert_eq!(writer.push(4), Err(Refused::Full));
    assert_eq!(writer.push_slice(&[4]), Err(Refused::Full));
    assert!(writer.header().overflowed());
    assert_eq!(reader.try_next(), Some(1));
    assert_eq!(writer.push_slice(&[4, 5]), Ok(1));
    assert_eq!(reader.by_ref().collect::<Vec<u32>>(), [2, 3, 4]);
    assert_eq!((writer.dropped(), writer.written()), (0, 4));
}

#[test]
fn a_drop_oldest_ring_keeps_exactly_its_last_items_and_counts_the_rest() {
    for capacity in [1_usize, 2, 3, 7, 8] {
        for written in [0_u64, 1, 2, 7, 8, 9, 50] {
            let (mut writer, mut reader) = open(capacity, RingKind::DropOldest).unwrap();
            for item in 0..written {
                writer.push(item).unwrap();
            }
            let kept = written.min(capacity as u64);
            let over = written > capacity as u64;
            assert_eq!(writer.header().pending() as u64, kept);
            assert_eq!(writer.header().overflowed(), over);
            let mut seen = Vec::new();
            assert_eq!(reader.drain_into(&mut seen), kept as usize);
            assert!(seen.iter().copied().eq(written - kept..written));
            assert_eq!(reader.dropped(), written - kept);
            assert_eq!(reader.cursor(), written);
        }
    }
}

#[test]
fn empty_and_closed_are_told_apart() {
    for kind in KINDS {
        let (mut writer, mut reader) = open(2, kind).unwrap();
        assert_eq!(reader.next_item(), Next::Empty);
        writer.push(9_u32).unwrap();
        drop(writer);
        assert!(reader.is_closed());
        assert_eq!(reader.next_item(), Next::Item(9));
        assert_eq!(reader.next_item(), Next::Closed);
        assert_eq!(reader.next_item(), Next::Closed);

        let (mut writer, reader) = open::<u32>(2, kind).unwrap();
        drop(reader);
        assert!(writer.is_abandoned());
        assert_eq!(writer.push(1), Err(Refused::Closed));
    }
}

#[test]
fn numbers_cross_32_bits() {
    const FIRST: u64 = (1 << 32) - 5;
    for kind in KINDS {
        for capacity in [4, 6] {
            let (mut writer, mut reader) = open_at(capacity, kind, FIRST).unwrap();
            for item in 0..20_u32 {
                writer.push(item).unwrap();
                let header = writer.header();
                assert_eq!(
                    header.words[0],
                    FIRST.wrapping_add(u64::from(item) + 1) as u32
                );
                assert_eq!(header.pending(), 1);
                // Where a device finds it, from the lower half alone.
                let slot = header.slot(header.words[0].wrapping_sub(1));
                let number = FIRST + u64::from(item);
                assert_eq!(slot, (capacity == 4).then_some((number % 4) as u32));
                assert_eq!(reader.try_next(), Some(item));
            }
            assert_eq!(reader.cursor(), FIRST + 20);
            for item in 0..capacity as u32 {
                writer.push(item).unwrap();
            }
            assert_eq!(writer.header().pending(), capacity as u32);
        }
    }
}

/// A struct, as a program would carry one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score {
    token: u32,
    logprob: f32,
}

impl Item for Score {
    type Cell = u32;
    const CELLS: usize = 2;

    fn put(self, mut cell: impl FnMut(usize, u32)) {
        cell(0, self.token);
        cell(1, self.logprob.to_bits());
    }

    fn get(cell: impl Fn(usize) -> u32) -> Self {
        Self {
            token: cell(0),
            logprob: f32::from_bits(cell(1)),
        }
    }
}

fn comes_back<T: Item + PartialEq + std::fmt::Debug>(items: [T; 3]) {
    for kind in KINDS {
        let (mut writer, mut reader) = open(3, kind).unwrap();
        assert_eq!(writer.push_slice(&items), Ok(3));
        assert_eq!(reader.by_ref().collect::<Vec<T>>(), items);
    }
}

#[test]
fn numbers_bytes_and_structs_come_back_as_they_went() {
    comes_back([1_u8, 255, 0]);
    comes_back([1_u32, u32::MAX, 0]);
    comes_back([1_u64, u64::MAX, 1 << 40]);
    comes_back([1.5_f32, f32::MIN, -0.0]);
    comes_back([*b"abcde", *b"12345", *b"\0\0\0\0\0"]);
    comes_back([[[1_u32, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]]);
    comes_back([1, 2, 3].map(|token| Score {
        token,
        logprob: -0.5,
    }));
}

#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_sleeper_is_woken_once_for_all_that_is_new() {
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(Arc::clone(&counted));
    let mut cx = Context::from_waker(&waker);
    let wakes = || counted.0.load(Ordering::Relaxed);
    let (mut writer, mut reader) = open(2, RingKind::Lossless).unwrap();

    assert_eq!(reader.poll_next(&mut cx), Poll::Pending);
    assert_eq!(writer.push_slice(&[1_u32, 2, 3]), Ok(2));
    assert_eq!(wakes(), 1);
    assert_eq!(writer.poll_ready(&mut cx), Poll::Pending);
    assert_eq!(reader.poll_next(&mut cx), Poll::Ready(Some(1)));
    assert_eq!(wakes(), 2);
    assert_eq!(reader.poll_next(&mut cx), Poll::Ready(Some(2)));
    assert_eq!(wakes(), 2, "nobody sleeps");
    assert_eq!(writer.poll_ready(&mut cx), Poll::Ready(()));
    assert_eq!(reader.poll_next(&mut cx), Poll::Pending);
    drop(writer);
    assert_eq!(wakes(), 3);
    assert_eq!(reader.poll_next(&mut cx), Poll::Ready(None));
}

#[test]
fn a_writer_that_sleeps_hears_of_the_readers_leave() {
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(Arc::clone(&counted));
    let mut cx = Context::from_waker(&waker);
    let (mut writer, reader) = open(1, RingKind::Lossless).unwrap();
    writer.push(1_u32).unwrap();
    assert_eq!(writer.poll_ready(&mut cx), Poll::Pending);
    drop(reader);
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    assert_eq!(writer.poll_ready(&mut cx), Poll::Ready(()));
    assert_eq!(writer.push(2), Err(Refused::Closed));
}

#[test]
fn two_threads_under_load_lose_nothing_in_order() {
    const ITEMS: u64 = 200_000;
    for capacity in [1, 2, 7, 64, 1024] {
        let (mut writer, mut reader) = open(capacity, RingKind::Lossless).unwrap();
        let items = if capacity < 8 { ITEMS / 40 } else { ITEMS };
        let writing = std::thread::spawn(move || {
            for item in 0..items {
                writer.push_blocking(item).unwrap();
            }
        });
        let mut expected = 0;
        while let Some(item) = reader.next_blocking() {
            assert_eq!(item, expected);
            expected += 1;
        }
        assert_eq!(expected, items);
        writing.join().unwrap();
    }
}

#[test]
fn two_threads_under_load_see_no_torn_item_and_count_what_is_dropped() {
    const ITEMS: u64 = 200_000;
    for capacity in [1, 2, 7, 64] {
        let (mut writer, mut reader) = open(capacity, RingKind::DropOldest).unwrap();
        let writing = std::thread::spawn(move || {
            for item in 0..ITEMS {
                writer.push([item, !item, item]).unwrap();
            }
        });
        let (mut seen, mut last) = (0, None);
        while let Some([item, inverted, again]) = reader.next_blocking() {
            assert_eq!((inverted, again), (!item, item));
            assert!(last < Some(item));
            last = Some(item);
            seen += 1;
        }
        assert_eq!(last, Some(ITEMS - 1));
        assert_eq!(seen + reader.dropped(), ITEMS);
        writing.join().unwrap();
    }
}

/// A naive twin: what a ring is, without threads.
struct Twin {
    items: VecDeque<u32>,
    capacity: usize,
    kind: RingKind,
    dropped: u64,
}

impl Twin {
    fn push(&mut self, item: u32) -> Result<(), Refused> {
        if self.items.len() == self.capacity {
            if self.kind == RingKind::Lossless {
                return Err(Refused::Full);
            }
            self.items.pop_front();
            self.dropped += 1;
        }
        self.items.push_back(item);
        Ok(())
    }
}

proptest::proptest! {
    #[test]
    fn a_ring_is_a_bounded_queue(
        capacity in 1_usize..9,
        drops: bool,
        first in proptest::sample::select(vec![0_u64, 1, (1 << 32) - 3]),
        moves in proptest::collection::vec((0_u8..4, 0_usize..12), 0..60),
    ) {
        let kind = if drops { RingKind::DropOldest } else { RingKind::Lossless };
        let (mut writer, mut reader) = open_at(capacity, kind, first).unwrap();
        let mut twin = Twin { items: VecDeque::new(), capacity, kind, dropped: 0 };
        let mut item = 0;
        for (what, count) in moves {
            match what {
                0 => for _ in 0..count {
                    item += 1;
                    assert_eq!(writer.push(item), twin.push(item));
                },
                1 => {
                    let items: Vec<u32> = (item + 1..).take(count).collect();
                    item += count as u32;
                    let expected = items.iter().take_while(|item| twin.push(**item).is_ok()).count();
                    assert_eq!(writer.push_slice(&items).unwrap_or(0), expected);
                }
                2 => for _ in 0..count {
                    assert_eq!(reader.try_next(), twin.items.pop_front());
                },
                _ => {
                    let mut seen = Vec::new();
                    reader.drain_into(&mut seen);
                    assert!(seen.into_iter().eq(twin.items.drain(..)));
                }
            }
            assert_eq!(writer.header().pending() as usize, twin.items.len());
        }
        let rest: Vec<u32> = reader.by_ref().collect();
        assert!(rest.into_iter().eq(twin.items));
        assert_eq!(reader.dropped(), twin.dropped);
    }
}

#[cfg(feature = "futures-core")]
#[test]
fn a_reader_is_a_stream() {
    let mut cx = Context::from_waker(Waker::noop());
    let (mut writer, reader) = open(2, RingKind::Lossless).unwrap();
    let mut stream: std::pin::Pin<Box<dyn futures_core::Stream<Item = u32>>> = Box::pin(reader);
    assert_eq!(stream.as_mut().poll_next(&mut cx), Poll::Pending);
    writer.push(4).unwrap();
    assert_eq!(stream.as_mut().poll_next(&mut cx), Poll::Ready(Some(4)));
    drop(writer);
    assert_eq!(stream.as_mut().poll_next(&mut cx), Poll::Ready(None));
}
