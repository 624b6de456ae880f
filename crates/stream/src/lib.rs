//! Token logs, written once by a model and read by many clients at their own pace; the registry of streams by
//! id; and [`ring`]s, fixed channels between two processors.
//!
//! One [`Writer`] appends plain items to a log; any number of [`Reader`]s follow, each with a separate
//! cursor. Storage is fixed-size segments taken from a [`SegmentPool`] and returned when the log's last
//! holder is dropped. A log ends exactly once, with an [`End`].
//!
//! ```
//! use stream::{End, PoolLimits, Read, SegmentPool, Stop, open};
//!
//! let pool = SegmentPool::new(PoolLimits { segments_max: 4 });
//! let (mut writer, mut reader) = open(&pool, 1000)?;
//! writer.append(7).unwrap();
//! writer.append(9).unwrap();
//! writer.finish(End::Stop(Stop::Eos));
//!
//! let mut buf = [0; 16];
//! assert_eq!(reader.read(&mut buf), Read::Items(2));
//! assert_eq!(buf[..2], [7, 9]);
//! assert_eq!(reader.read(&mut buf), Read::Ended(End::Stop(Stop::Eos)));
//!
//! drop(reader);
//! assert_eq!(pool.stats().reserved, 0);
//! # Ok::<(), stream::PoolExhausted>(())
//! ```
//!
//! A log with an id is a stream. A [`Registry`] finds streams by their [`StreamId`], for their owner only, and
//! retains ended streams within limits of time, count and bytes.
//!
//! # Credit
//!
//! [`Writer::unaccepted`] is the number of items that the engine counts against a stream's credit window. The
//! number falls when items are accepted, by the reader that owns credit ([`Reader::accept`]) or by a client's
//! acknowledgement ([`Tap::accept`]), and by grants beyond that ([`Tap::grant`]), for instance for a detached
//! stream. Neither is ever taken back.
//!
//! # Gates
//!
//! A log that is opened with [`open_gated`] has a [`Gate`]: readers and taps see items and the end only after a holder
//! of the gate, the recorder, has shown them. Output commit is the use: a token is shown when its record is written.
//! A gate can be opened forever, and the drop of its last holder does so.
//!
//! # Files
//!
//! | file | content |
//! |---|---|
//! | `log` | state shared by the holders of a log; the protocol between them |
//! | `writer`, `reader` | the holders of a log: the writer, readers and taps; a log's gate is in `log` |
//! | `wait` | list of sleeping readers, their waker slots, and the waker of a parked thread |
//! | `pool` | the bounded storage; segments are in `log` |
//! | `end` | ends of streams |
//! | `stream_id` | ids of streams |
//! | `registry` | streams by id; states and lock; the guard of an open stream's entry; bounds and counts |
//! | `registry/table` | the data behind the lock: entries, and removed ones |
//! | `ring` | fixed channels and their protocol |
//! | `sync` | synchronization primitives of all other files |
//!
//! # Tests
//!
//! `cargo test -p stream` runs everything. `tests/loom` compiles these files against loom's primitives in place
//! of `sync` (with a [`SEGMENT_ITEMS`] of 2) and explores interleavings and weak memory orders of small
//! scenarios exhaustively, up to a bound on preemptions; `tests/shuttle` explores larger scenarios and the
//! registry at random with shuttle's primitives. Property tests run the log, the registry and the ring beside a
//! naive reference implementation. The only feature, `futures-core`, implements `Stream` for
//! [`ring::RingReader`].
//!
//! # Limits of this crate
//!
//! Nothing here reads a clock, starts a thread, draws a random number or knows a client. The log takes no lock:
//! neither an append, nor a read, nor a wake waits for another thread. The registry has one lock, which is not
//! on the token path.

mod end;
mod log;
mod pool;
mod reader;
mod registry;
pub mod ring;
mod stream_id;
mod sync;
mod turns;
mod wait;
mod writer;

pub use end::{Clock, End, FailCode, Stop};
pub use log::{Gate, GatedLog, open, open_gated};
pub use pool::{PoolExhausted, PoolLimits, PoolStats, SegmentPool};
pub use reader::{AttachError, Read, Reader, Tap};
pub use registry::{
    Caller, Entry, EntryState, Eviction, Evictions, LIST_PAGE_MAX, ListCursor, Missing, Owner,
    Page, Registration, Registry, RegistryCounts, RegistryFull, RegistryLimits, SWEEP_BATCH,
};
pub use stream_id::{NotAStreamId, StreamId};
pub use turns::{TurnMark, Turns};
pub use writer::{Full, Writer};

/// Items of a segment.
pub const SEGMENT_ITEMS: usize = 256;
