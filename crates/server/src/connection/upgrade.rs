//! Protocol upgrades: the continuation of a connection after HTTP.

use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};

/// Slot in which a handler stores the continuation of the connection after the response head (101) is sent. The
/// connection's own task runs the continuation: the connection is counted as open until the end, and a graceful
/// shutdown waits for the continuation.
#[derive(Clone, Default)]
pub(crate) struct Upgrade(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Upgrade {
    /// Sets the continuation.
    pub(crate) fn set_continuation(&self, next: BoxFuture<'static, ()>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Takes the continuation, if there is one.
    pub(crate) fn take_continuation(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
