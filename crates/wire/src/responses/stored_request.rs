//! Stored responses as the parser of a later request sees them.

use serde_json::{Map, Value};
use stream::StreamId;

/// The part of a request that is stored, for retrieval and for continuation.
#[derive(Debug, PartialEq)]
pub struct StoredRequest {
    /// Input items as JSON objects; some have an id.
    pub items: Vec<Map<String, Value>>,
    /// The response that this one continues.
    pub previous: Option<StreamId>,
}

/// The conversation up to and including a stored response.
pub trait History {
    /// Stream of the last response.
    fn id(&self) -> Option<StreamId>;
    /// All items as JSON, oldest first.
    fn items(&self) -> Box<dyn Iterator<Item = &str> + '_>;
}
