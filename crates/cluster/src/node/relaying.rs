//! A model whose requests this process relays to engines of others.

use super::model_searches::OpenSearch;
use super::served_models::ServedModels;
use std::sync::Arc;

/// A relayed model in the heartbeats and the readiness of this process, until the drop. The requests end with the model's
/// handle.
pub struct Relaying {
    pub(super) served: Arc<ServedModels>,
    pub(super) number: u64,
    /// Ends with the drop.
    pub(super) _search: OpenSearch,
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.served.remove(self.number);
    }
}
