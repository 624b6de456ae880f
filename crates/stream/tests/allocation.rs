//! After warm-up neither appending, nor reading, nor sleeping and waking allocates.

#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use stream::{End, PoolLimits, Read, Reader, SEGMENT_ITEMS, SegmentPool, Writer, open};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Allocations this thread makes meanwhile.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
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
