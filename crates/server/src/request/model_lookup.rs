//! The model of a request, found before the wire protocol's parser reads the fields.

use bytes::Bytes;
use gateway::keys::Caller;
use gateway::limits::Offload;
use gateway::models::{
    ListedModel, ModelLease, ModelLookup, ModelRegistry, ModelTask, ServedModel,
};
use gateway::requested_images::ImageRefusal;
use generate::error::ApiError;
use std::sync::Arc;
use wire::fields::{Fields, as_text};
use wire::protocol::Protocol;
use wire::request_body::RequestBody;

/// The lease of the requested model, after the model is loaded.
///
/// # Errors
/// An unknown model, too many waiting requests, or a model that cannot be loaded.
pub(crate) async fn find_lease(
    models: &Arc<ModelRegistry>,
    protocol: Protocol,
    body: &RequestBody,
) -> Result<ModelLease, ApiError> {
    let named = NamedModel::of(body.fields(), protocol);
    named.find(models).await?.lease().await
}

/// The lease of a model for one task. Without `model` in the body, the only model for the task is meant, where the model
/// that the server was started with is for another one.
///
/// # Errors
/// An unknown model, too many waiting requests, or a model that cannot be loaded.
pub(crate) async fn find_lease_for(
    task: ModelTask,
    models: &Arc<ModelRegistry>,
    protocol: Protocol,
    body: &RequestBody,
) -> Result<ModelLease, ApiError> {
    let named = body.fields().raw("model");
    let is_named = named.is_some_and(|raw| as_text(raw).as_deref() != Some(""));
    let only = if is_named {
        None
    } else {
        only_model_for(task, models).await
    };
    match only {
        Some(name) => models.want_named(Some(&name)).await?.lease().await,
        None => find_lease(models, protocol, body).await,
    }
}

/// Name of the only model for a task, unless the first model is for the task.
async fn only_model_for(task: ModelTask, models: &ModelRegistry) -> Option<String> {
    let listed = models.list_models().await;
    let is_for = |model: &ListedModel| model.facts.as_ref().is_some_and(|facts| facts.task == task);
    if listed.first().is_some_and(is_for) {
        return None;
    }
    // Further names of the same weights are no further models.
    let mut found = listed
        .into_iter()
        .filter(|model| is_for(model) && model.made.is_none());
    let only = found.next()?;
    found.next().is_none().then_some(only.name)
}

/// Fields that are read before the wire protocol's parser reads all of them. Where they are invalid, they are those of a request
/// for the first model that is not streamed: the parser, which needs a model, rejects all invalid fields at once.
pub(crate) struct NamedModel {
    model: Option<String>,
    pub(crate) stream: bool,
}

impl NamedModel {
    /// Reads the fields.
    pub(crate) fn of(mut fields: Fields<'_>, protocol: Protocol) -> Self {
        let model = fields.string("model").map(std::borrow::Cow::into_owned);
        // Clients without a choice of models send an empty name.
        let model = model.filter(|name| !name.is_empty());
        let stream = fields.boolean("stream");
        let stream = stream.unwrap_or(protocol.defers_by_default());
        let is_valid = fields.finish().is_ok();
        Self {
            model: model.filter(|_| is_valid),
            stream: stream && is_valid,
        }
    }

    /// The lookup result, after requesting the load of a model that is not ready.
    pub(crate) async fn find(self, models: &Arc<ModelRegistry>) -> Result<ModelLookup, ApiError> {
        models.want_named(self.model.as_deref()).await
    }
}

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
        parse: impl FnOnce(Fields<'_>, &Arc<ServedModel>, &Caller) -> Result<W, ImageRefusal>,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        W: FnOnce() -> Result<T, ApiError> + Send + 'static,
    {
        let body = RequestBody::parse(body)?;
        let lease = find_lease(&self.models, protocol, &body).await?;
        let work = match parse(body.fields(), &lease.serving.model, &caller) {
            Ok(work) => work,
            Err(refusal) => return Err(Box::pin(refusal.into_error(&self.models)).await),
        };
        drop(lease);
        self.offload.run_work(body.text().len(), work).await
    }
}
