//! Images of requests on their way to the engine: checked before admission, decoded on threads of their own, within bounds
//! of bytes that all requests share; or to another model, whose descriptions become text of the prompt.

mod byte_budget;
mod long_body;
mod media_threads;
mod prepared_images;
mod vision_proxy;
mod vision_server;

pub use byte_budget::{ByteBudget, ByteReservation};
pub(crate) use long_body::base64_bytes;
pub use long_body::{LongBody, too_large};
pub(crate) use media_threads::full;
pub use media_threads::{Elapsed, MediaCounts, MediaThreads};
pub use prepared_images::{PREPARED_BYTES_MAX, PreparedImages};
pub use vision_proxy::{
    DESCRIPTION_BYTES_MAX, DescriptionCache, DescriptionCounts, DescriptionKey, DescriptionStats,
    OnFailure, QUESTION, VisionProxy, bounded,
};
pub use vision_server::{DescriptionRequest, InvalidServer, MadeDescription, VisionServer};

use std::sync::Arc;

/// A share of the memory for images; the drop of the last clone returns it.
pub(crate) type ImageShare = Arc<dyn Send + Sync>;

/// Threads and budgets that requests with images share.
#[derive(Default)]
pub struct MediaHandles {
    /// Threads that decode and resize.
    pub threads: MediaThreads,
    /// Bytes of files and pixels.
    pub pixels: Arc<ByteBudget>,
    /// Bytes of bodies that are longer than those of requests without images may be.
    pub bodies: Arc<ByteBudget>,
    /// Images that were decoded and resized before.
    pub prepared: Arc<PreparedImages>,
    /// Descriptions of images that were made before.
    pub descriptions: DescriptionCache,
    /// Counts of descriptions.
    pub described: DescriptionStats,
}
