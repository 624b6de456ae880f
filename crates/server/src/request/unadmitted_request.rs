//! Requests without admission: they use the tokenizer and the chat template of a model, and no slot of the engine.

use crate::request::model_lookup;
use bytes::Bytes;
use gateway::keys::Caller;
use gateway::models::{ModelRegistry, ServedModel};
use gateway::offload::Offload;
use generate::error::ApiError;
use std::sync::Arc;
use wire::fields::Fields;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;

/// Handles that requests without admission use.
#[derive(Clone)]
pub(crate) struct UnadmittedHandles {
    pub(crate) models: Arc<ModelRegistry>,
    pub(crate) offload: Arc<Offload>,
}

impl UnadmittedHandles {
    /// Parses a request with `read` and runs the work that `read` returns, offloaded if the body is long.
    ///
    /// # Errors
    /// An unknown model, or a model that is not ready; errors of `read` and of the work.
    pub(crate) async fn run_request<T, W>(
        &self,
        (caller, body): (Caller, Bytes),
        protocol: Protocol,
        parse: impl FnOnce(Fields<'_>, &Arc<ServedModel>, &Caller) -> Result<W, ApiError>,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        W: FnOnce() -> Result<T, ApiError> + Send + 'static,
    {
        let body = RequestBody::parse(body)?;
        let lease = model_lookup::find_lease(&self.models, protocol, &body).await?;
        let work = parse(body.fields(), &lease.serving.model, &caller)?;
        drop(lease);
        self.offload.run_work(body.text().len(), work).await
    }
}
