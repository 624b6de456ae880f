//! Offloaded work: long CPU work of requests without a permit, one at a time on a thread outside the I/O threads.

use crate::limits::LiveLimits;
use generate::error::ApiError;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Requests without a permit whose work is offloaded at one time: requests with a permit must find a free thread.
const OFFLOADED_MAX: usize = 1;

/// Runs work with a duration that grows with the length of a body.
pub struct Offload {
    limits: Arc<LiveLimits>,
    slots: Arc<Semaphore>,
}

impl Offload {
    /// A runner without work.
    pub fn new(limits: Arc<LiveLimits>) -> Self {
        Self {
            limits,
            slots: Arc::new(Semaphore::new(OFFLOADED_MAX)),
        }
    }

    /// Runs `work` on a body of this length: in place if the body is short (`inline_prompt_bytes_max`), else offloaded
    /// as soon as a slot is free.
    ///
    /// # Errors
    /// Those of `work`, and a panic in `work`.
    pub async fn run_work<T: Send + 'static>(
        &self,
        body_bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if body_bytes <= self.limits.now().inline_prompt_bytes_max {
            return work();
        }
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.map_err(|_| not_processed())?;
        // Running work keeps the slot to the end, also if the request is dropped.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(slot);
            done
        });
        done.await.unwrap_or_else(|_| Err(not_processed()))
    }
}

fn not_processed() -> ApiError {
    ApiError::ours("internal_error", "the request could not be processed")
}
