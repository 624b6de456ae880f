//! After warm-up neither appending, nor reading, nor sleeping and waking allocates; and a
//! registry's entries cost no more than is promised.
//!
//! Promise (Hostile input and memory): a context of 2^24 tokens in a file costs memory only as it is used.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use stream::{
    End, Owner, PoolLimits, Read, Reader, Registry, RegistryLimits, SEGMENT_ITEMS, SegmentPool,
    StreamId, Writer, open, open_gated,
};
use testing::heap::{thread_allocations, thread_held};

/// Allocations this thread makes meanwhile.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = thread_allocations();
    work();
    thread_allocations() - before
}

const ITEMS: usize = 3 * SEGMENT_ITEMS;

/// For each item: the reader goes to sleep, the item is appended, the reader takes it.
fn run(writer: &mut Writer<u64>, reader: &mut Reader<u64>) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut buf = [0; 8];
    for item in 0..ITEMS as u64 {
        assert_eq!(reader.poll_read(&mut cx, &mut buf), Poll::Pending);
        writer.append(item).unwrap();
        assert_eq!(
            reader.poll_read(&mut cx, &mut buf),
            Poll::Ready(Read::Items(1))
        );
        reader.accept(item);
    }
}

#[test]
fn appending_and_reading_allocate_nothing_after_warm_up() {
    let pool = SegmentPool::new(PoolLimits { segments_max: 3 });
    let (mut writer, mut reader) = open(&pool, ITEMS).unwrap();
    let first = allocations(|| run(&mut writer, &mut reader));
    assert_eq!(first, 3, "one for each segment");
    drop((writer, reader));

    let (mut writer, mut reader) = open(&pool, ITEMS).unwrap();
    let second = allocations(|| {
        run(&mut writer, &mut reader);
        writer.finish(End::Length);
        drop(reader);
    });
    assert_eq!(second, 0);
}

#[test]
fn showing_and_reading_a_gated_log_allocate_nothing_after_warm_up() {
    let pool = SegmentPool::new(PoolLimits { segments_max: 3 });
    drop(filled(&pool));
    let (mut writer, mut reader, gate) = open_gated(&pool, ITEMS, Waker::noop().clone()).unwrap();
    let made = allocations(|| {
        let mut cx = Context::from_waker(Waker::noop());
        let mut buf = [0; 8];
        for item in 0..ITEMS as u64 {
            writer.append(item).unwrap();
            assert_eq!(reader.poll_read(&mut cx, &mut buf), Poll::Pending);
            assert_eq!(gate.copy_written(item, &mut buf), 1);
            gate.show(gate.written_len());
            let found = reader.poll_read(&mut cx, &mut buf);
            assert_eq!(found, Poll::Ready(Read::Items(1)));
            reader.accept(item);
        }
        writer.finish(End::Length);
        gate.clone().show_end();
        assert_eq!(reader.read(&mut buf), Read::Ended(End::Length));
        drop((reader, gate));
    });
    assert_eq!(made, 0);
}

/// A log that has used all segments of the pool.
fn filled(pool: &SegmentPool<u64>) -> (Writer<u64>, Reader<u64>) {
    let (mut writer, reader) = open(pool, ITEMS).unwrap();
    (0..ITEMS as u64).for_each(|item| writer.append(item).unwrap());
    (writer, reader)
}

/// A context of 2^24 tokens and half a million open requests, as a file's metadata and a setting may say.
#[test]
fn large_bound_costs_memory_only_as_segments_are_used() {
    const BLOCK: usize = 1 << 14;
    let before = thread_held();
    let pool = SegmentPool::<u8>::new(PoolLimits {
        segments_max: PoolLimits::SEGMENTS_MAX,
    });
    let (mut writer, mut reader) = open(&pool, (BLOCK + 2) * SEGMENT_ITEMS).unwrap();
    writer.append(7).unwrap();
    let held = thread_held() - before;
    assert!(held < 8 << 20, "{held} bytes for one item");
    // Across the end of the first block.
    let items = ((BLOCK + 2) * SEGMENT_ITEMS) as u64;
    (1..items).for_each(|item| writer.append(item as u8 ^ 7).unwrap());
    writer.finish(End::Length);
    let (mut next, mut buf) = (0_u64, [0; SEGMENT_ITEMS]);
    while let Read::Items(count) = reader.read(&mut buf) {
        let is_right = |(item, at): (&u8, u64)| *item == at as u8 ^ 7;
        assert!(buf[..count].iter().zip(next..).all(is_right));
        next += count as u64;
        reader.accept(next - 1);
    }
    assert_eq!(next, items);
    drop(reader);
    assert_eq!(pool.stats().allocated, BLOCK + 2);
    let (mut writer, _reader) = open(&pool, SEGMENT_ITEMS).unwrap();
    writer.append(1).unwrap();
    assert_eq!(
        (pool.stats().reused, pool.stats().allocated),
        (1, BLOCK + 2)
    );
}

/// As `open` and `open_gated` say: of a log with one segment and one reader.
const LOG_BYTES_MAX: i64 = 316;
const GATE_BYTES_MAX: i64 = 24;

#[test]
fn open_logs_hold_no_more_than_promised() {
    let pool = SegmentPool::<u64>::new(PoolLimits { segments_max: 3 });
    let before = thread_held();
    let plain = open(&pool, 1).unwrap();
    let held = thread_held() - before;
    let before = thread_held();
    let gated = open_gated(&pool, 1, Waker::noop().clone()).unwrap();
    let held_gated = thread_held() - before;
    assert!(held <= LOG_BYTES_MAX, "{held}");
    assert!(
        held_gated <= held + GATE_BYTES_MAX,
        "{held_gated} and {held}"
    );
    drop((plain, gated));
}

#[test]
fn rings_allocate_nothing_after_they_were_opened() {
    use stream::ring::{self, RingKind};
    for kind in [RingKind::Lossless, RingKind::DropOldest] {
        let (mut writer, mut reader) = ring::open::<[u32; 3]>(4, kind).unwrap();
        let mut items = Vec::with_capacity(4);
        let made = allocations(|| {
            let mut cx = Context::from_waker(Waker::noop());
            for item in 0..100 {
                assert_eq!(reader.poll_next(&mut cx), Poll::Pending);
                writer.push([item; 3]).unwrap();
                assert_eq!(reader.poll_next(&mut cx), Poll::Ready(Some([item; 3])));
                assert_eq!(writer.push_slice(&[[1; 3]; 4]), Ok(4));
                let _either = writer.poll_ready(&mut cx);
                assert_eq!(reader.drain_into(&mut items), 4);
                items.clear();
            }
        });
        assert_eq!(made, 0, "{kind:?}");
    }
}

/// As `RegistryLimits` says.
const ENTRY_BYTES_MAX: usize = 400;
const GONE_BYTES_MAX: usize = 160;

/// One more than a hash table of 8192 buckets has room for: the dearest number per entry.
const MANY: usize = 7169;

#[test]
fn entries_cost_no_more_than_promised() {
    let held = held_by_a_registry(MANY, |registry, id, now| {
        registry.register(id, Owner(1), now, ()).unwrap().keep();
        assert!(registry.ended(id, now, 0));
    });
    assert!(held <= MANY * ENTRY_BYTES_MAX, "{} each", held / MANY);
}

#[test]
fn remembered_ids_cost_no_more_than_promised() {
    let held = held_by_a_registry(1, |registry, id, now| {
        drop(registry.register(id, Owner(1), now, ()).unwrap());
    });
    assert!(held <= MANY * GONE_BYTES_MAX, "{} each", held / MANY);
}

/// Bytes a registry holds when `work` was done for `MANY` ids; when it is dropped there are none.
fn held_by_a_registry(max: usize, work: impl Fn(&Registry<()>, StreamId, Instant)) -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "a point to count from; no test waits"
    )]
    let now = Instant::now();
    let before = thread_held();
    let registry = Registry::new(RegistryLimits {
        open_max: max,
        retained_max: max,
        retained_bytes_max: 0,
        retention: Duration::ZERO,
        gone_max: MANY,
    });
    for n in 0..MANY as u128 {
        work(&registry, StreamId::from_random(n.to_be_bytes()), now);
    }
    let most = thread_held() - before;
    drop(registry);
    assert_eq!(thread_held(), before);
    most as usize
}
