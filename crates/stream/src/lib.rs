//! Token logs: what a model writes once and many clients read, each at its own pace.
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
//! # The files
//!
//! | file | noun |
//! |---|---|
//! | `log` | what writer, readers and taps share; the protocol between them, in prose |
//! | `writer`, `reader`, `tap` | the three holders of a log |
//! | `wait`, `waiter` | who is to be woken; one waker slot |
//! | `pool`, `segment` | the bounded storage |
//! | `end` | why writing stopped |
//! | `sync` | the primitives all of the above are built of |
//!
//! # How it is checked
//!
//! `cargo test -p stream` runs everything. `tests/loom` compiles these very files against loom's
//! primitives in place of `sync` (and a [`SEGMENT_ITEMS`] of 2) and explores the interleavings and
//! the weak memory orders of small scenarios exhaustively up to a bound on preemptions;
//! `tests/shuttle` does so with shuttle's, at random, on larger ones. No feature and no flag
//! changes what the crate is.
//!
//! # What it never does
//!
//! Nothing here reads a clock, starts a thread, knows a client or takes a lock: neither an append,
//! nor a read, nor a wake waits for another thread.

mod end;
mod log;
mod pool;
mod reader;
mod segment;
mod sync;
mod tap;
mod wait;
mod waiter;
mod writer;

pub use end::{Clock, End, FailCode, Stop};
pub use log::{AttachError, open};
pub use pool::{PoolExhausted, PoolLimits, PoolStats, SegmentPool};
pub use reader::{Read, Reader};
pub use tap::Tap;
pub use writer::{Full, Writer};

/// Items in one segment.
pub const SEGMENT_ITEMS: usize = 256;
