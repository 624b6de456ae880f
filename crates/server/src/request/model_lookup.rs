//! The model of a request, found before the wire protocol's parser reads the fields.

use gateway::models::{ListedModel, ModelLease, ModelLookup, ModelRegistry, ModelTask};
use generate::error::ApiError;
use std::sync::Arc;
use wire::fields::{Fields, as_text};
use wire::protocol::Protocol;
use wire::request_body::RequestBody;

/// The lease of the requested model, after the model is loaded; `None` for invalid fields, which the parser rejects.
///
/// # Errors
/// An unknown model, too many waiting requests, or a model that cannot be loaded.
pub(crate) async fn find_lease(
    models: &Arc<ModelRegistry>,
    protocol: Protocol,
    body: &RequestBody,
) -> Result<Option<ModelLease>, ApiError> {
    lease(NamedModel::of(body.fields(), protocol).find(models).await?).await
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
) -> Result<Option<ModelLease>, ApiError> {
    let named = body.fields().raw("model");
    let is_named = named.is_some_and(|raw| as_text(raw).as_deref() != Some(""));
    let only = if is_named {
        None
    } else {
        only_model_for(task, models).await
    };
    match only {
        Some(name) => lease(Some(models.want_named(Some(&name)).await?)).await,
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

/// The lease of a request whose fields are parsed next. Without a lease, an invalid `model` is added to the problems
/// of `fields`.
///
/// # Errors
/// An unknown model, or a model that is not ready.
pub(crate) fn expect_lease(
    lease: Option<ModelLease>,
    fields: &mut Fields<'_>,
    models: &ModelRegistry,
) -> Result<ModelLease, ApiError> {
    match lease {
        Some(lease) => Ok(lease),
        None => models.hold_now(fields.string("model").as_deref()),
    }
}

/// The lease, after the model is loaded.
///
/// # Errors
/// A model that cannot be loaded.
pub(crate) async fn lease(found: Option<ModelLookup>) -> Result<Option<ModelLease>, ApiError> {
    match found {
        Some(found) => found.lease().await.map(Some),
        None => Ok(None),
    }
}

/// Fields that are read before the wire protocol's parser reads all of them.
pub(crate) struct NamedModel {
    /// `Err` for invalid fields.
    model: Result<Option<String>, ()>,
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
        Self {
            model: fields.finish().map(|()| model).map_err(|_| ()),
            stream,
        }
    }

    /// The lookup result, after requesting the load of a model that is not ready; `None` for invalid fields.
    pub(crate) async fn find(
        self,
        models: &Arc<ModelRegistry>,
    ) -> Result<Option<ModelLookup>, ApiError> {
        match self.model {
            Ok(model) => models.want_named(model.as_deref()).await.map(Some),
            Err(()) => Ok(None),
        }
    }
}
