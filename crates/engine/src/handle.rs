//! The engine seen from other threads. (Stub: signatures only.)

use crate::Request;
use std::sync::Arc;

/// Names a request inside one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Why a request was not taken. The request is handed back.
pub enum Rejected {
    /// The inbox is full: our capacity, try again later.
    Full(Box<Request>),
    /// The engine is shutting down.
    Closed(Box<Request>),
    /// The request breaks a bound; the words name the field and the bound.
    Invalid(Box<Request>, String),
}

/// A clonable way to reach the engine thread. Bounded; never blocks.
#[derive(Clone)]
pub struct Handle {
    _shared: Arc<()>,
}

impl Handle {
    /// Hands a request to the engine.
    pub fn submit(&self, _request: Request) -> Result<RequestId, Rejected> {
        todo!()
    }
    /// Asks for a request to end with `End::Cancelled`; takes effect within one step. Idempotent.
    pub fn cancel(&self, _id: RequestId) {
        todo!()
    }
}
