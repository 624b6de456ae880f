//! A request's wait for its model.
//!
//! Whoever wants a model that is not loaded has it queued and watches its state. The wait is bounded in number and in
//! time; a model that fails ends it for all who wait for it.

use super::{ModelLease, ModelRegistry, ModelState, ResolvedModel};
use generate::error::ApiError;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A request that waits for its model; its drop leaves.
pub struct PendingLoad {
    models: Arc<ModelRegistry>,
    /// The model that the request waits for.
    pub named: ResolvedModel,
}

impl Drop for PendingLoad {
    fn drop(&mut self) {
        self.named.entry.waits(false);
        self.models.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A model as a request finds it.
pub enum ModelLookup {
    /// The model is ready.
    Ready(ModelLease),
    /// The model has to be waited for.
    Pending(PendingLoad),
}

impl ModelLookup {
    /// The model, after however long it takes.
    ///
    /// # Errors
    /// It will not be ready.
    pub async fn lease(self) -> Result<ModelLease, ApiError> {
        match self {
            Self::Ready(held) => Ok(held),
            Self::Pending(wanted) => wanted.lease().await,
        }
    }
}

impl ModelRegistry {
    /// Finds the model of this name, and has it loaded if it is not.
    ///
    /// # Errors
    /// There is none of that name; it is not ready, and nobody can load it on demand; too many wait.
    pub async fn want_named(self: &Arc<Self>, name: Option<&str>) -> Result<ModelLookup, ApiError> {
        let named = self.look_up(name).await?;
        let refused = match named.hold() {
            Ok(held) => return Ok(ModelLookup::Ready(held)),
            Err(refused) => refused,
        };
        if self.library().is_none() {
            return Err(refused);
        }
        let limits = self.limits();
        let wanted = PendingLoad {
            models: Arc::clone(self),
            named,
        };
        wanted.named.entry.waits(true);
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= limits.models.waiting_max {
            let words = "too many requests wait for models to be loaded";
            // When the model it wants is expected, there may be room as well.
            let again = refused.retry_after.unwrap_or(limits.retry_after);
            return Err(ApiError::capacity("overloaded", words, again));
        }
        self.want(&wanted.named.entry);
        Ok(ModelLookup::Pending(wanted))
    }

    /// The model of this name if it is ready at this moment; if not, it is queued to be loaded. May block
    /// for the look of a name.
    ///
    /// # Errors
    /// There is none of that name, or it is not ready: how far it is.
    pub fn hold_now(&self, name: Option<&str>) -> Result<ModelLease, ApiError> {
        let named = self.find(name)?;
        named.hold().inspect_err(|_| {
            if self.library().is_some() {
                self.want(&named.entry);
            }
        })
    }
}

impl PendingLoad {
    /// Waits.
    ///
    /// # Errors
    /// It could not be loaded, did not come in time, or the server leaves.
    pub async fn lease(self) -> Result<ModelLease, ApiError> {
        let limits = self.models.limits();
        let mut states = self.named.entry.watch();
        let mut closing = self.models.closing();
        let settled = async {
            loop {
                // What comes after this is news, also if it is looked at here.
                let seen = states.borrow_and_update().clone();
                match (self.named.hold(), seen) {
                    (Ok(held), _) => return Ok(held),
                    // It was let go of before this one came to it.
                    (Err(_), ModelState::Unloaded) => self.models.want(&self.named.entry),
                    (Err(refused), ModelState::Failed | ModelState::TooLarge { .. }) => {
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
                let late = self.named.hold();
                late.map_err(|error| ApiError { code: "timeout", ..error })
            }
            _ = closing.wait_for(|&closing| closing) => {
                let words = "the server is shutting down";
                Err(ApiError::capacity("shutting_down", words, limits.retry_after))
            }
        }
    }
}
