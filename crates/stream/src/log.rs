//! State shared by the holders of one log, and the lock-free protocol between them.
//!
//! # States
//!
//! *Open* until `end` is set, once; then *ended* forever. *Watched* while `readers > 0`, otherwise *abandoned*;
//! an open log may become watched again through a tap.
//!
//! A log is opened *gated* or not. Readers and taps of a gated log see the first `shown` items; the end is hidden until
//! `shown` is `ALL`, which a log without a gate has from the beginning. `ALL` is forever: the gate is open.
//!
//! # Protocol
//!
//! - The **writer** (one, `&mut`) stores an item, then publishes the item by storing `len` (Release), then wakes. To
//!   end the log, the writer sets `end` (Release), then wakes. After `end`, `len` never changes. At a segment boundary
//!   the writer takes a segment from the pool and stores the segment's number in `table`, before the `len` that first
//!   needs the segment.
//! - A **reader** loads `len` (Acquire) and accesses only items and table entries below `len`. Without new items the
//!   reader loads `end` (Acquire).
//! - A reader that sleeps follows the protocol of [`WaitList`].
//! - The holders of the **gate** raise `shown` (Release) to at most a `len` that they have loaded (Acquire), then wake the
//!   readers. The visible length is the lower one of `shown` and `len`. A reader loads `shown` (Acquire) before `len`
//!   and before `end`: items and an end that a gate's holder has shown are visible to the loads that follow.
//! - The writer of a gated log, after a new `len` or `end`, passes a sequentially consistent fence, loads `is_open`, wakes
//!   the readers if the flag is set, and wakes the recorder in any case. `is_open` is set after `shown` = `ALL`: the writer
//!   does not read the line of `shown`, which changes with each token.
//! - Each holder has a share of the log; the drop of the last share returns the segments.
//! - `accepted` and `granted` only grow, so credit that the writer has seen is never taken back. The writer may see
//!   either late: the writer then waits a little longer than necessary, but never exceeds the stream's credit.
//! - A thread that stores news for the writer (more credit, the drop of the last reader) always wakes the writer
//!   afterwards: no flag records whether the writer sleeps, so no flag can be missed. A writer that checks first and then
//!   sleeps, with a wake in between making the sleep return at once (as `park` does), misses nothing.
//!
//! # Bad interleavings
//!
//! *The end overtakes an item.* A reader loads `len` = 3 after reading 3 items; the writer appends a fourth item and ends the log; the
//! reader loads `end` and reports the end: the fourth item is lost. The loss cannot happen, because a reader
//! that saw `end` loads `len` again, and the Acquire load of `end` makes the final length visible. The end of a gated
//! log is visible only with `shown` = `ALL`, so the gate does not hide an item from that second load.
//!
//! *The gate is opened while the writer appends.* The writer publishes an item, finds the gate shut and wakes only the
//! recorder; the thread that opens the gate finds no sleeping reader; the reader has armed in between, found `shown` or
//! `len` unchanged, and sleeps forever. Three fences, all sequentially consistent, exclude that: the writer's between
//! `len` and the load of `is_open`, the opener's between `is_open` and the load of `armed`, the reader's between `armed` and
//! the second check. If the writer finds the gate shut, the writer's fence precedes the opener's. A reader whose fence
//! follows the opener's sees `ALL` and the item; a reader whose fence precedes the opener's is seen armed by the opener
//! and woken, and sees both then. If the writer finds the gate open, a sleeping reader has missed the item, so that the
//! reader's fence precedes the writer's and the writer sees `armed`; or has missed `ALL`, so that the reader's fence
//! precedes the opener's and the opener sees `armed`. The same holds with `end` in place of `len`.
//!
//! *The last holder of the gate is dropped.* Nothing would ever be shown. So that drop opens the gate.
//!
//! # Segments
//!
//! A [`Segment`] is one fixed-size piece of a log's storage. A segment has two states. *Free*: in the pool's free list, without accesses. *Taken*: owned by one log; the
//! log's writer writes each item once, in order, and publishes items through the log's length; readers access
//! published items only. A published item is not written again until the segment is free, after the drop of the
//! log's last holder.

use crate::pool::{PoolExhausted, SegmentPool};
use crate::reader::{AttachError, Reader, Tap};
use crate::sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, OnceLock, Ordering, UnsafeCell, fence,
};
use crate::wait::WaitList;
use crate::writer::Writer;
use crate::{End, SEGMENT_ITEMS};
use std::mem::MaybeUninit;
use std::task::Waker;

/// Opens a log of at most `capacity` items. All segments are reserved now, so that an append within `capacity`
/// cannot fail. Unused reservations are returned when the writer ends the log, segments when the log's last
/// holder (writer, reader or tap) is dropped.
///
/// The memory of the log is a table of 4 bytes per segment and 312 bytes, with one reader.
pub fn open<T: Copy + Send + Sync + 'static>(
    pool: &SegmentPool<T>,
    capacity: usize,
) -> Result<(Writer<T>, Reader<T>), PoolExhausted> {
    let (writer, log) = open_log(pool, capacity, None)?;
    let reader = Reader::start(&log, 0);
    Ok((writer, reader))
}

/// Writer, first reader and gate of a gated log.
pub type GatedLog<T> = (Writer<T>, Reader<T>, Gate<T>);

/// As [`open`], but readers and taps see items and the end only after a holder of the gate has shown them.
/// `recorder` is woken on the writer's thread by each append and by the end, and must be fast and not wait.
///
/// A gated log needs 24 bytes more.
pub fn open_gated<T: Copy + Send + Sync + 'static>(
    pool: &SegmentPool<T>,
    capacity: usize,
    recorder: Waker,
) -> Result<GatedLog<T>, PoolExhausted> {
    let (writer, log) = open_log(pool, capacity, Some(recorder))?;
    let reader = Reader::start(&log, 0);
    Ok((writer, reader, Gate::new(log)))
}

fn open_log<T: Copy + Send + Sync + 'static>(
    pool: &SegmentPool<T>,
    capacity: usize,
    recorder: Option<Waker>,
) -> Result<(Writer<T>, Arc<Log<T>>), PoolExhausted> {
    let segments = capacity.div_ceil(SEGMENT_ITEMS);
    let reservation = pool.reserve(segments)?;
    let shown = if recorder.is_some() { 0 } else { ALL };
    let log = Arc::new(Log {
        pool: pool.clone(),
        capacity,
        table: (0..segments).map(|_| AtomicU32::new(NOT_TAKEN)).collect(),
        len: AtomicU64::new(0),
        is_open: AtomicBool::new(shown == ALL),
        recorder,
        end: OnceLock::new(),
        readers: AtomicUsize::new(0),
        accepted: AtomicU64::new(0),
        granted: AtomicU64::new(0),
        writer: std::sync::OnceLock::new(),
        visible: Visible {
            shown: AtomicU64::new(shown),
            waiters: WaitList::new(),
        },
    });
    Ok((Writer::new(Arc::clone(&log), reservation), log))
}

/// A table entry without a segment. No segment has this number.
const NOT_TAKEN: u32 = u32::MAX;

/// The mark of a log without a gate, or with an open one: all items and the end are visible.
const ALL: u64 = u64::MAX;

/// State shared by writer, readers and taps of one log.
pub(crate) struct Log<T> {
    pool: SegmentPool<T>,
    pub(crate) capacity: usize,
    /// Numbers of the segments in use, in order; then `NOT_TAKEN`.
    table: Box<[AtomicU32]>, // (segments promised)
    /// Items published.
    len: AtomicU64, // 0 ..= capacity
    /// Whether `shown` is `ALL`.
    is_open: AtomicBool,
    /// Waker of a gated log's recorder.
    recorder: Option<Waker>,
    end: OnceLock<End>,
    readers: AtomicUsize,
    /// Items before this index were accepted by the client.
    accepted: AtomicU64, // 0 ..= visible length
    /// Items that the writer may be ahead beyond the accepted ones, free of charge.
    granted: AtomicU64,
    /// Wakes the writer, if one is set.
    writer: std::sync::OnceLock<Waker>,
    pub(crate) visible: Visible,
}

/// Signals for which readers wait, on a cache line that the writer of a gated log does not use.
#[repr(align(64))]
pub(crate) struct Visible {
    /// Items that readers may see.
    shown: AtomicU64, // 0 ..= len, or ALL
    pub(crate) waiters: WaitList,
}

/// Methods of the writer.
impl<T: Copy> Log<T> {
    /// Stores the number of the segment for the items from `index` on.
    pub(crate) fn add_segment(&self, index: u64, number: u32) {
        self.table[segment_of(index)].store(number, Ordering::Relaxed);
    }

    /// Stores the item at `index`, publishes the item and wakes the readers, or the recorder of a gated log.
    ///
    /// # Safety
    /// The caller is the log's only writer, `index` is the number of published items, and the segment was
    /// added.
    #[inline]
    #[expect(unsafe_code, reason = "the place is not published yet")]
    pub(crate) unsafe fn push(&self, index: u64, item: T) {
        let segment = self
            .pool
            .segment(self.table[segment_of(index)].load(Ordering::Relaxed));
        // SAFETY: by this function's contract the caller is the writer, and readers stay below the published
        // length, which is `index`.
        unsafe { segment.write(place_of(index), item) };
        self.len.store(index + 1, Ordering::Release);
        self.wake_after_write();
    }
}

/// Methods of all holders.
impl<T> Log<T> {
    /// Items that readers may see.
    #[inline]
    pub(crate) fn visible_len(&self) -> u64 {
        let shown = self.visible.shown.load(Ordering::Acquire); // first: see the protocol
        shown.min(self.written_len())
    }

    /// The end, if readers may see one.
    pub(crate) fn visible_end(&self) -> Option<End> {
        if self.is_all_shown() {
            self.written_end()
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn written_len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn written_end(&self) -> Option<End> {
        self.end.get().copied()
    }

    /// Ends the log and wakes the readers, or the recorder of a gated log, unless the log has ended before.
    pub(crate) fn finish(&self, end: End) {
        if self.end.set(end).is_ok() {
            self.wake_after_write();
        }
    }

    /// Wakes the log's other side after a new length or the end.
    #[inline]
    fn wake_after_write(&self) {
        match &self.recorder {
            None => self.visible.waiters.wake_all(),
            Some(recorder) => self.wake_recorder(recorder),
        }
    }

    fn wake_recorder(&self, recorder: &Waker) {
        fence(Ordering::SeqCst); // against a gate that is opened now: see the bad interleavings
        if self.is_open.load(Ordering::Acquire) {
            self.visible.waiters.wake_all();
        }
        recorder.wake_by_ref();
    }

    pub(crate) fn accept(&self, index: u64) {
        let index = index.min(self.visible_len());
        if self.accepted.fetch_max(index, Ordering::AcqRel) < index {
            self.wake_writer();
        }
    }

    /// The first waker stays; later calls have no effect.
    pub(crate) fn wake_on_credit(&self, waker: Waker) {
        let _ = self.writer.set(waker);
    }

    /// A writer that has ended is not woken.
    fn wake_writer(&self) {
        if let Some(writer) = self.writer.get()
            && self.written_end().is_none()
        {
            writer.wake_by_ref();
        }
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    pub(crate) fn grant(&self, extra: u64) {
        let mut granted = self.granted.load(Ordering::Relaxed);
        while let Err(now) = self.granted.compare_exchange_weak(
            granted,
            granted.saturating_add(extra),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            granted = now;
        }
        self.wake_writer();
    }

    pub(crate) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Acquire)
    }

    /// Items of `len` that are neither accepted nor covered by a grant.
    pub(crate) fn unaccepted(&self, len: u64) -> u64 {
        len.saturating_sub(self.accepted())
            .saturating_sub(self.granted())
    }

    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::Acquire)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.readers() == 0
    }

    pub(crate) fn reader_came(&self) {
        self.readers.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn reader_left(&self) {
        if self.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_writer();
        }
    }

    /// Fails if `index` is beyond the visible length.
    pub(crate) fn check_index(&self, index: u64) -> Result<(), AttachError> {
        let len = self.visible_len();
        if index > len {
            Err(AttachError::Ahead { len })
        } else {
            Ok(())
        }
    }
}

/// Methods of the gate.
impl<T> Log<T> {
    /// Shows the first `len` items, at most as many as are written, and wakes the readers if some were hidden.
    pub(crate) fn show(&self, len: u64) {
        self.raise_shown(len.min(self.written_len()));
    }

    /// Shows everything from now on.
    pub(crate) fn show_all(&self) {
        self.raise_shown(ALL);
    }

    pub(crate) fn is_all_shown(&self) -> bool {
        self.visible.shown.load(Ordering::Acquire) == ALL
    }

    fn raise_shown(&self, shown: u64) {
        if self.visible.shown.fetch_max(shown, Ordering::AcqRel) < shown {
            if shown == ALL {
                self.is_open.store(true, Ordering::Release);
            }
            self.visible.waiters.wake_all();
        }
    }
}

/// Methods of readers.
impl<T: Copy> Log<T> {
    /// Copies items from index `from` on, as many as are visible and fit.
    pub(crate) fn copy_visible(&self, from: u64, buf: &mut [T]) -> usize {
        self.copy_below(self.visible_len(), from, buf)
    }

    /// Copies items from index `from` on, as many as are written and fit.
    pub(crate) fn copy_written(&self, from: u64, buf: &mut [T]) -> usize {
        self.copy_below(self.written_len(), from, buf)
    }

    /// Copies items from index `from` on that are below `len`, which is at most an acquired length.
    fn copy_below(&self, len: u64, from: u64, buf: &mut [T]) -> usize {
        let new = usize::try_from(len.saturating_sub(from)).unwrap_or(usize::MAX);
        let wanted = buf.len().min(new);
        let mut copied = 0;
        while copied < wanted {
            copied += self.copy_within_segment(from + copied as u64, &mut buf[copied..wanted]);
        }
        copied
    }

    /// Copies as many published items from `index` on as lie in one segment. `buf` does not exceed the
    /// published length.
    #[expect(unsafe_code, reason = "reads below the published length")]
    fn copy_within_segment(&self, index: u64, buf: &mut [T]) -> usize {
        let place = place_of(index);
        let count = buf.len().min(SEGMENT_ITEMS - place);
        let segment = self
            .pool
            .segment(self.table[segment_of(index)].load(Ordering::Relaxed));
        // SAFETY: `copy_below` has an acquired length that covers all of `buf`.
        unsafe { segment.copy_to(place, &mut buf[..count]) };
        count
    }
}

impl<T> Drop for Log<T> {
    fn drop(&mut self) {
        for entry in &self.table {
            match entry.load(Ordering::Relaxed) {
                NOT_TAKEN => break,
                number => self.pool.give_back(number),
            }
        }
    }
}

// Indices of items in memory fit `usize`: they are below `capacity`.

fn segment_of(index: u64) -> usize {
    index as usize / SEGMENT_ITEMS
}

fn place_of(index: u64) -> usize {
    index as usize % SEGMENT_ITEMS
}

/// Storage for [`SEGMENT_ITEMS`] items. Items are `Copy`, so nothing is dropped.
pub(crate) struct Segment<T> {
    items: Box<[UnsafeCell<MaybeUninit<T>>]>, // (SEGMENT_ITEMS)
}

// SAFETY: items are shared between threads only after publication and are not written while shared (see the
// module docs); sharing requires `T: Send + Sync`.
#[expect(unsafe_code, reason = "the cells are ordered by the log's length")]
unsafe impl<T: Send + Sync> Sync for Segment<T> {}

impl<T: Copy> Segment<T> {
    pub(crate) fn new() -> Self {
        let place = |_| UnsafeCell::new(MaybeUninit::uninit());
        Self {
            items: (0..SEGMENT_ITEMS).map(place).collect(),
        }
    }

    /// Writes the item at `place`.
    ///
    /// # Safety
    /// The caller is the only writer of the log that owns this segment, and `place` is not published yet.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a place is written once, before it is published"
    )]
    pub(crate) unsafe fn write(&self, place: usize, item: T) {
        // SAFETY: by this function's contract no other thread accesses the item.
        self.items[place].with_mut(|p| unsafe { (*p).write(item) });
    }

    /// Fills `buf` with the items from `place` on.
    ///
    /// # Safety
    /// The items `place..place + buf.len()` are published, and the caller has acquired the length that covers
    /// them.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "published places are initialised and no longer written"
    )]
    pub(crate) unsafe fn copy_to(&self, place: usize, buf: &mut [T]) {
        let places = &self.items[place..place + buf.len()];
        for (to, from) in buf.iter_mut().zip(places) {
            // SAFETY: by this function's contract the item is initialized and not written.
            *to = from.with(|p| unsafe { (*p).assume_init() });
        }
    }
}

/// The recorder's handle to a gated log. A gate sees all that is written, and decides what readers and taps see. A
/// gate is not a reader: a log whose readers are gone is abandoned even if there is a gate.
///
/// Clones are holders of one gate. The drop of the last holder opens the gate: readers never wait for a recorder that
/// is gone.
pub struct Gate<T> {
    holder: Arc<Holder<T>>,
    /// The log of the holder, without a second step.
    log: Arc<Log<T>>,
}

/// The share of all clones of a gate.
struct Holder<T> {
    log: Arc<Log<T>>,
}

impl<T: Copy + Send + Sync + 'static> Gate<T> {
    pub(crate) fn new(log: Arc<Log<T>>) -> Self {
        let of_holder = Arc::clone(&log);
        Self {
            holder: Arc::new(Holder { log: of_holder }),
            log,
        }
    }

    /// Items appended so far, shown or not.
    pub fn written_len(&self) -> u64 {
        self.log().written_len()
    }

    /// The writer's end, shown or not. After `Some`, [`Gate::written_len`] is final: a recorder loads the end first and
    /// the length afterwards.
    pub fn written_end(&self) -> Option<End> {
        self.log().written_end()
    }

    /// Copies written items from index `from` on into `buf`, shown or not, as many as there are and fit. Returns their
    /// number.
    pub fn copy_written(&self, from: u64, buf: &mut [T]) -> usize {
        self.log().copy_written(from, buf)
    }

    /// Items that readers see.
    pub fn shown_len(&self) -> u64 {
        self.log().visible_len()
    }

    /// Shows the first `len` items and wakes the readers. Only grows; a `len` beyond the items written counts as their
    /// number.
    pub fn show(&self, len: u64) {
        self.log().show(len);
    }

    /// Shows all items and the end, and wakes the readers. Without effect while the writer has not ended the log.
    /// Afterwards the gate is open.
    pub fn show_end(&self) {
        if self.written_end().is_some() {
            self.open();
        }
    }

    /// Opens the gate forever: all that is written, now or later, is shown at once. Idempotent.
    pub fn open(&self) {
        self.log().show_all();
    }

    /// Whether everything is shown: after [`Gate::open`] or [`Gate::show_end`].
    pub fn is_open(&self) -> bool {
        self.log().is_all_shown()
    }

    /// A handle to the log that does not count as a reader, and sees what is shown.
    pub fn tap(&self) -> Tap<T> {
        Tap::new(self.log())
    }

    fn log(&self) -> &Arc<Log<T>> {
        &self.log
    }
}

impl<T> Clone for Gate<T> {
    fn clone(&self) -> Self {
        Self {
            holder: Arc::clone(&self.holder),
            log: Arc::clone(&self.log),
        }
    }
}

impl<T> Drop for Holder<T> {
    /// Opens the gate; without effect on an open one.
    fn drop(&mut self) {
        self.log.show_all();
    }
}
