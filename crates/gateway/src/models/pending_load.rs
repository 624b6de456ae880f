//! A request's wait for a model.
//!
//! A request for a model that is not loaded queues the model and watches the model's state. The number and the
//! duration of waits are bounded; the failure of a model ends the waits of all requests for that model.

use super::model_entry::NO_ENGINE;
use super::{ModelLease, ModelRegistry, ModelState, ResolvedModel};
use generate::error::ApiError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::spawn_blocking;

/// A request that waits for a model; the drop ends the wait.
pub struct PendingLoad {
    models: Arc<ModelRegistry>,
    /// The model that the request waits for.
    pub named: ResolvedModel,
}

impl Drop for PendingLoad {
    fn drop(&mut self) {
        self.named.entry.count_waiting(false);
        self.models.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Result of looking up a request's model.
pub enum ModelLookup {
    /// The model is ready.
    Ready(ModelLease),
    /// The model has to be waited for.
    Pending(PendingLoad),
}

impl ModelLookup {
    /// Waits for the model.
    ///
    /// # Errors
    /// The model will not be ready.
    pub async fn lease(self) -> Result<ModelLease, ApiError> {
        match self {
            Self::Ready(held) => Ok(held),
            Self::Pending(wanted) => wanted.lease().await,
        }
    }
}

impl ModelRegistry {
    /// Finds the model of this name, and queues the model for loading if needed.
    ///
    /// # Errors
    /// The name is unknown; the model is not ready and cannot be loaded on demand; too many requests wait.
    pub async fn want_named(self: &Arc<Self>, name: Option<&str>) -> Result<ModelLookup, ApiError> {
        let named = self.look_up(name).await?;
        let refused = match named.try_lease() {
            Ok(held) => return Ok(ModelLookup::Ready(held)),
            Err(refused) => refused,
        };
        let is_ready = matches!(named.entry.state(), ModelState::Ready(_));
        let Some(library) = self
            .library()
            .filter(|_| !(is_ready && is_no_engine(&refused)))
        else {
            return Err(refused);
        };
        let limits = self.gateway_limits();
        let (library, wanted) = (Arc::clone(library), named.clone());
        let obstacle = move || library.obstacle(&wanted.name, wanted.entry.weights.as_deref());
        let obstacle = spawn_blocking(obstacle).await;
        if let Some(why) = obstacle.unwrap_or_default() {
            return Err(ApiError::capacity(NO_ENGINE, why, limits.retry_after));
        }
        let wanted = PendingLoad {
            models: Arc::clone(self),
            named,
        };
        wanted.named.entry.count_waiting(true);
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= limits.models.waiting_max {
            let words = "too many requests wait for models to be loaded";
            // Once the model is expected, a waiting request may have left as well.
            let again = refused.retry_after.unwrap_or(limits.retry_after);
            return Err(ApiError::capacity("overloaded", words, again));
        }
        self.request_load(&wanted.named.entry);
        Ok(ModelLookup::Pending(wanted))
    }

    /// The model of this name if ready; else the model is queued for loading. May block for the lookup of the name.
    ///
    /// # Errors
    /// The name is unknown, or the model is not ready: the error has the loading progress.
    pub fn hold_now(&self, name: Option<&str>) -> Result<ModelLease, ApiError> {
        let named = self.find_blocking(name)?;
        named.try_lease().inspect_err(|_| {
            if self.library().is_some() {
                self.request_load(&named.entry);
            }
        })
    }
}

fn is_no_engine(error: &ApiError) -> bool {
    error.code == NO_ENGINE
}

impl PendingLoad {
    /// Waits for the model.
    ///
    /// # Errors
    /// The load failed or timed out, or the server shuts down.
    pub async fn lease(self) -> Result<ModelLease, ApiError> {
        let limits = self.models.gateway_limits();
        let mut states = self.named.entry.watch_state();
        let mut closing = self.models.close_watch();
        let settled = async {
            loop {
                // Later changes wake this wait, also if they are read here.
                let seen = states.borrow_and_update().clone();
                match (self.named.try_lease(), seen) {
                    (Ok(held), _) => return Ok(held),
                    // The model was unloaded before this request got a lease.
                    (Err(_), ModelState::Unloaded) => self.models.request_load(&self.named.entry),
                    (
                        Err(refused),
                        ModelState::Failed | ModelState::TooLarge { .. } | ModelState::NoEngine(_),
                    ) => return Err(refused),
                    (Err(refused), ModelState::Ready(_)) if is_no_engine(&refused) => {
                        return Err(refused);
                    }
                    (
                        Err(_),
                        ModelState::Queued { .. }
                        | ModelState::Loading { .. }
                        | ModelState::Ready(_),
                    ) => {}
                }
                // The sender lives as long as the slot.
                let _ = states.changed().await;
            }
        };
        tokio::select! {
            settled = settled => settled,
            () = tokio::time::sleep(limits.models.patience) => {
                let late = self.named.try_lease();
                late.map_err(|error| ApiError { code: "timeout", ..error })
            }
            _ = closing.wait_for(|&closing| closing) => {
                let words = "the server is shutting down";
                Err(ApiError::capacity("shutting_down", words, limits.retry_after))
            }
        }
    }
}
