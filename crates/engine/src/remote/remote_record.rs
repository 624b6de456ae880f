//! What a request takes along to an engine of another process.

use crate::RequestUpdate;
use std::sync::Arc;

/// A request as a record for an engine of another process.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteRecord {
    /// The record.
    pub bytes: Arc<[u8]>,
    /// The request of an earlier process that this one continues: an engine may still compute that one.
    pub continued: Option<Box<ContinuedRequest>>,
}

impl RemoteRecord {
    /// The record of a request that is new.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self {
            bytes: bytes.into(),
            continued: None,
        }
    }
}

/// One answer to a prompt of a stream. Equal for all processes that have owned the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamChoice {
    /// Id of the stream.
    pub stream: u128,
    /// Number of the prompt in the stream.
    pub prompt: u32,
    /// Number of the choice among those of the prompt.
    pub choice: u32,
}

/// A choice that an earlier process had submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContinuedRequest {
    /// The choice.
    pub choice: StreamChoice,
    /// Processes that have continued the stream before this one.
    pub generation: u64,
    /// Control updates in effect, merged, without their injected tokens. No other updates were accepted.
    pub in_effect: RequestUpdate,
}
