//! Token logs: what a model writes once and many clients read, each at its own pace; the registry
//! that knows them by name; and [`ring`]s, fixed channels between two processors.
//!
//! One [`Writer`] appends plain items to a log; any number of [`Reader`]s follow it, each with
//! its own cursor. Storage is fixed-size segments taken from a [`SegmentPool`] and returned to
//! it when the last holder of the log is gone. A log ends exactly once, with an [`End`].
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
//! A log with a name is a stream. A [`Registry`] finds streams by their [`StreamId`], for the one
//! who opened them and for nobody else, and keeps them after their end, by time, count and bytes.
//!
//! # Credit
//!
//! [`Writer::unaccepted`] is what the engine holds against a stream's window. It falls as items are
//! accepted, by the reader that governs credit ([`Reader::accept`]) or by a client that says itself
//! what it has ([`Tap::accept`]), and by what was granted beyond that ([`Tap::grant`]), for instance
//! to a stream that goes on without a reader at its other end. None of these is ever taken back.
//!
//! # The files
//!
//! | file | noun |
//! |---|---|
//! | `log` | what writer, readers and taps share; the protocol between them, in prose |
//! | `writer`, `reader`, `tap` | the three holders of a log |
//! | `wait`, `waiter` | who is to be woken; one waker slot |
//! | `pool`, `segment` | the bounded storage |
//! | `end` | why writing stopped |
//! | `stream_id` | the name of a stream |
//! | `registry` | streams by name; its states and its lock, in prose |
//! | `registry/table` | what the lock guards |
//! | `registry/registration` | the right to be in it as an open stream |
//! | `registry/{caller, entry, gone, limits, counts}` | who asks; what is told; what is remembered; bounds; counts |
//! | `ring` | fixed channels; their protocol, in prose |
//! | `unpark` | wakes a parked thread |
//! | `sync` | the primitives all of the above are built of |
//!
//! # How it is checked
//!
//! `cargo test -p stream` runs everything. `tests/loom` compiles these very files against loom's
//! primitives in place of `sync` (and a [`SEGMENT_ITEMS`] of 2) and explores the interleavings and
//! the weak memory orders of small scenarios exhaustively up to a bound on preemptions;
//! `tests/shuttle` does so with shuttle's, at random, on larger ones and on the registry. The log,
//! the registry and the ring are each run beside a naive twin by a property test. The one feature,
//! `futures-core`, lets a [`ring::Reader`] be used as a `Stream` too.
//!
//! # What it never does
//!
//! Nothing here reads a clock, starts a thread, draws a random number or knows a client. The log
//! takes no lock: neither an append, nor a read, nor a wake waits for another thread. The registry
//! has one, which is on no token's path.

mod end;
mod log;
mod pool;
mod reader;
mod registry;
pub mod ring;
mod segment;
mod stream_id;
mod sync;
mod tap;
mod unpark;
mod wait;
mod waiter;
mod writer;

pub use end::{Clock, End, FailCode, Stop};
pub use log::{AttachError, open};
pub use pool::{PoolExhausted, PoolLimits, PoolStats, SegmentPool};
pub use reader::{Read, Reader};
pub use registry::{
    Caller, Entry, EntryState, Eviction, Evictions, LIST_PAGE_MAX, ListCursor, Missing, Owner,
    Page, Registration, Registry, RegistryCounts, RegistryFull, RegistryLimits, SWEEP_BATCH,
};
pub use stream_id::{NotAStreamId, StreamId};
pub use tap::Tap;
pub use writer::{Full, Writer};

/// Items in one segment.
pub const SEGMENT_ITEMS: usize = 256;
