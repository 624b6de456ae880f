//! Images of requests on their way to the engine: checked before admission, decoded on threads of their own, within bounds
//! of bytes that all requests share.

mod byte_budget;
mod long_body;
mod media_threads;

pub use byte_budget::{ByteBudget, ByteReservation};
pub(crate) use long_body::base64_bytes;
pub use long_body::{LongBody, too_large};
pub(crate) use media_threads::full;
pub use media_threads::{Elapsed, MediaCounts, MediaThreads};

use std::sync::Arc;

/// Threads and budgets that requests with images share.
#[derive(Default)]
pub struct MediaHandles {
    /// Threads that decode and resize.
    pub threads: MediaThreads,
    /// Bytes of files and pixels.
    pub pixels: Arc<ByteBudget>,
    /// Bytes of bodies that are longer than those of requests without images may be.
    pub bodies: Arc<ByteBudget>,
}
