//! The right to have a request open.

use crate::error::ApiError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The right to have one request open; given back by its drop.
pub(crate) struct Permit {
    _slot: OwnedSemaphorePermit,
}

/// Hands out permits, never more than its bound.
pub(crate) struct Gate {
    slots: Arc<Semaphore>,
    retry_after: Duration,
}

impl Gate {
    /// `open_max` permits.
    pub(crate) fn new(open_max: usize, retry_after: Duration) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(open_max)),
            retry_after,
        }
    }

    /// A permit, or when to try again. Decided before the prompt is tokenised.
    pub(crate) fn admit(&self) -> Result<Permit, ApiError> {
        Arc::clone(&self.slots)
            .try_acquire_owned()
            .map(|slot| Permit { _slot: slot })
            .map_err(|_| {
                ApiError::capacity(
                    "overloaded",
                    "too many requests are open on this server",
                    self.retry_after,
                )
            })
    }

    /// Permits that are out.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.slots.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_drop_gives_back() {
        let gate = Gate::new(1, Duration::from_secs(3));
        let first = gate.admit().unwrap_or_else(|_| panic!("the only permit"));
        let refused = gate.admit().err().expect("over the bound");
        assert_eq!(
            (refused.status.as_u16(), refused.retry_after),
            (503, Some(Duration::from_secs(3)))
        );
        drop(first);
        assert_eq!(gate.free(), 1);
    }
}
