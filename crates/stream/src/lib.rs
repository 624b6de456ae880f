//! Token logs: what a model writes once and many clients read, each at its own pace.
//!
//! One [`Writer`] appends plain items to a log; any number of [`Reader`]s follow it, each with
//! its own cursor. Storage is fixed-size segments taken from a [`SegmentPool`] and returned to
//! it when the last holder of the log is gone. A log ends exactly once, with an [`End`].

mod end;
mod log;
mod pool;

pub use end::{Clock, End, FailCode, Stop};
pub use log::{AttachError, Full, Read, Reader, Tap, Writer, open};
pub use pool::{PoolExhausted, PoolLimits, PoolStats, SEGMENT_ITEMS, SegmentPool};
