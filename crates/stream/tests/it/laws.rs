//! The laws a log has a part in: exactly one end, dropping is releasing, bounds hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use stream::{
    End, Full, PoolExhausted, PoolLimits, Read, Reader, SEGMENT_ITEMS, SegmentPool, Stop, open,
};

fn pool(segments_max: usize) -> SegmentPool<u64> {
    SegmentPool::new(PoolLimits { segments_max })
}

fn follow(mut reader: Reader<u64>) -> (Vec<u64>, End) {
    let mut items = Vec::new();
    let mut buf = [0; 100];
    loop {
        match reader.read_blocking(&mut buf) {
            Read::Items(count) => items.extend_from_slice(&buf[..count]),
            Read::Ended(end) => return (items, end),
            Read::Empty => unreachable!(),
        }
    }
}

#[test]
fn a_finished_log_keeps_its_end() {
    let pool = pool(1);
    let (writer, mut reader) = open(&pool, 1).unwrap();
    let tap = reader.tap();
    assert_eq!(tap.end(), None);
    writer.finish(End::Stop(Stop::StopString(3)));
    for _ in 0..2 {
        assert_eq!(
            reader.read(&mut [0]),
            Read::Ended(End::Stop(Stop::StopString(3)))
        );
    }
    assert_eq!(tap.end(), Some(End::Stop(Stop::StopString(3))));
}

#[test]
fn a_panicking_writer_ends_its_log_and_releases() {
    let pool = pool(4);
    let (mut writer, reader) = open(&pool, 1000).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        writer.append(1).unwrap();
        panic!("a panic on purpose");
    }));
    assert!(outcome.is_err());
    assert_eq!(follow(reader), (vec![1], End::Lost));
    assert_eq!((pool.stats().reserved, pool.stats().in_use), (0, 0));
}

#[test]
fn a_panicking_reader_releases_and_leaves_the_log_abandoned() {
    let pool = pool(4);
    let (mut writer, mut reader) = open(&pool, 1000).unwrap();
    writer.append(1).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        reader.read(&mut []); // no room: a bug in the caller
    }));
    assert!(outcome.is_err());
    assert!(writer.is_abandoned());
    drop(writer);
    assert_eq!((pool.stats().reserved, pool.stats().in_use), (0, 0));
}

#[test]
fn an_ended_log_holds_no_more_than_its_items_need() {
    let pool = pool(10);
    let (mut writer, reader) = open(&pool, 10 * SEGMENT_ITEMS).unwrap();
    assert_eq!(pool.stats().reserved, 10);
    writer.append(1).unwrap();
    writer.finish(End::Length);
    assert_eq!((pool.stats().reserved, pool.stats().in_use), (1, 1));
    drop(reader);
    assert_eq!((pool.stats().reserved, pool.stats().in_use), (0, 0));
}

#[test]
fn credit_comes_from_what_was_accepted_and_what_was_granted() {
    let pool = pool(1);
    let (mut writer, reader) = open(&pool, 100).unwrap();
    let tap = reader.tap();
    (0..10).for_each(|item| writer.append(item).unwrap());
    let mut left = Vec::new();
    let steps: [&dyn Fn(); 9] = [
        &|| {},
        &|| tap.accept(3),
        &|| reader.accept(2), // only grows
        &|| tap.grant(4),
        &|| reader.grant(1),
        &|| tap.accept(u64::MAX), // counts as 10
        &|| tap.grant(u64::MAX),
        &|| tap.grant(1), // and does not wrap
        &|| drop(tap.clone()),
    ];
    for step in steps {
        step();
        left.push(writer.unaccepted());
    }
    assert_eq!(left, [10, 7, 7, 3, 2, 0, 0, 0, 0]);
    assert_eq!((tap.accepted(), tap.granted()), (10, u64::MAX));
}

#[test]
fn what_was_granted_lets_a_log_without_a_reader_go_on_so_far() {
    const WINDOW: u64 = 5;
    const DETACHED: u64 = 20;
    let pool = pool(1);
    let (mut writer, reader) = open(&pool, 100).unwrap();
    let tap = reader.tap();
    drop(reader);
    assert!(tap.is_abandoned() && tap.readers() == 0);
    for _ in 0..2 {
        tap.grant(DETACHED - tap.granted()); // each time it is left, granted once
        while writer.unaccepted() < WINDOW {
            writer.append(0).unwrap();
        }
        assert_eq!(writer.len(), WINDOW + DETACHED);
    }
    let reader = tap.attach(0).unwrap();
    assert_eq!((tap.readers(), tap.is_abandoned()), (1, false));
    reader.accept(10);
    assert_eq!(writer.unaccepted(), 0);
}

#[test]
fn opening_takes_a_promise_for_all_or_fails_with_the_numbers() {
    let pool = pool(3);
    let (_writer, _reader) = open(&pool, SEGMENT_ITEMS + 1).unwrap();
    let refused = open(&pool, 2 * SEGMENT_ITEMS).err();
    assert_eq!(
        refused,
        Some(PoolExhausted {
            wanted: 2,
            available: 1
        })
    );
    assert_eq!(pool.stats().reserved, 2);
    assert!(open(&pool, SEGMENT_ITEMS).is_ok());
    assert_eq!(open(&pool, usize::MAX).err().unwrap().available, 1);
}

#[test]
fn a_log_of_capacity_zero_needs_nothing_and_ends() {
    let pool = pool(0);
    let (mut writer, reader) = open(&pool, 0).unwrap();
    assert_eq!(writer.append(1), Err(Full));
    writer.finish(End::Length);
    assert_eq!(follow(reader), (vec![], End::Length));
}

#[test]
fn segments_are_reused_and_hold_only_the_new_log() {
    let pool = pool(2);
    for round in 0..5 {
        let (mut writer, reader) = open(&pool, 2 * SEGMENT_ITEMS).unwrap();
        let items: Vec<u64> = (0..2 * SEGMENT_ITEMS as u64).map(|i| i + round).collect();
        items.iter().for_each(|item| writer.append(*item).unwrap());
        assert_eq!(writer.append(0), Err(Full));
        writer.finish(End::Length);
        assert_eq!(follow(reader), (items, End::Length));
    }
    assert_eq!((pool.stats().allocated, pool.stats().reused), (2, 8));
}

#[test]
fn many_readers_at_one_time_can_leave_in_any_order() {
    const READERS: usize = 20_000; // a chain this long must not be freed by recursion
    let pool = pool(1);
    let (mut writer, reader) = open(&pool, 1).unwrap();
    let readers: Vec<_> = (0..READERS).map(|_| reader.attach(0).unwrap()).collect();
    writer.append(1).unwrap();
    drop((writer, reader));
    drop(readers);
    assert_eq!(pool.stats().reserved, 0);
}

/// On real threads: eight readers, parked most of the time, see what one writer writes.
#[test]
fn parked_threads_see_everything() {
    const ITEMS: u64 = 5000;
    let pool = pool(ITEMS.div_ceil(SEGMENT_ITEMS as u64) as usize);
    let (mut writer, reader) = open(&pool, ITEMS as usize).unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8)
            .map(|_| reader.attach(0).unwrap())
            .map(|reader| scope.spawn(|| follow(reader)))
            .collect();
        for item in 0..ITEMS {
            writer.append(item).unwrap();
            std::thread::yield_now();
        }
        writer.finish(End::Length);
        for reader in readers {
            let (items, end) = reader.join().unwrap();
            assert_eq!(end, End::Length);
            assert!(items.into_iter().eq(0..ITEMS));
        }
    });
}

/// Counts its wakes.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whatever may be news for a writer that waits wakes it; nothing else does.
#[test]
fn a_writer_is_woken_by_credit_and_by_the_last_readers_leave() {
    let pool = pool(1);
    let (mut writer, reader) = open(&pool, 10).unwrap();
    let count = Arc::new(Count::default());
    writer.wake_on_credit(Waker::from(Arc::clone(&count)));
    writer.append(1).unwrap();
    writer.append(2).unwrap();
    let tap = writer.tap();
    let second = reader.attach(0).unwrap();
    let woken = |times: usize, why: &str| {
        assert_eq!(count.0.swap(0, Ordering::Relaxed), times, "{why}");
    };
    woken(0, "what the writer does itself");
    reader.accept(1);
    woken(1, "a reader's accept");
    reader.accept(1);
    second.accept(0);
    woken(0, "no more than before");
    tap.accept(9);
    woken(1, "an acknowledgement");
    reader.accept(2);
    woken(0, "all of it was accepted");
    tap.grant(5);
    woken(1, "a grant");
    drop(reader);
    woken(0, "a reader left, and one is there");
    drop(second);
    woken(1, "the last reader left");
    let back = tap.attach(0).unwrap();
    writer.append(3).unwrap();
    writer.finish(End::Length);
    back.accept(3);
    tap.grant(1);
    drop(back);
    woken(0, "it has ended");
}
