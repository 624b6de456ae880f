//! What a connection does after it has stopped being HTTP.

use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a handler leaves what its connection is to do once the answer's head is out (101). The
/// connection does it itself: so it counts among the connections as long as it lasts, and who waits
/// for connections to end waits for it.
#[derive(Clone, Default)]
pub(crate) struct Upgrade(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Upgrade {
    /// To be done next.
    pub(crate) fn then(&self, next: BoxFuture<'static, ()>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// What there is to do.
    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
