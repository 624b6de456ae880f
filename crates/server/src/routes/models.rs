//! `/v1/models`, as OpenAI's API and Anthropic's describe them.
//!
//! `/lora-adapters`, compatible with llama.cpp's server: the adapters of the model that the server was started with, and
//! their scales in requests that say nothing about adapters.

use crate::request::extract::{JsonBody, Path, RateLimited};
use crate::response::Rejected;
use crate::routes::generation::is_anthropic_client;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use gateway::models::{ListedModel, ModelRegistry, ReadyModel};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use wire::anthropic;
use wire::item_page::Query;
use wire::openai::model_list;
use wire::shared::lora_field;

pub(crate) async fn list_models(
    State(served): State<Arc<ModelRegistry>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let all: Vec<_> = served
        .list_models()
        .await
        .iter()
        .map(ListedModel::model_card)
        .collect();
    if !is_anthropic_client(&headers) {
        return Json(model_list::model_list(&all)).into_response();
    }
    let query = Query::of(&uri);
    match query.and_then(|query| anthropic::model_list::model_page(&all, &query)) {
        Ok(page) => Json(page).into_response(),
        Err(error) => anthropic::error_response::to_response(&error),
    }
}

pub(crate) async fn one_model(
    State(served): State<Arc<ModelRegistry>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, Rejected> {
    let listed = served.listed_model(Some(&id)).await;
    if is_anthropic_client(&headers) {
        return Ok(anthropic_card(listed));
    }
    Ok(Json(model_list::model_object(&listed?.model_card())).into_response())
}

fn anthropic_card(listed: Result<ListedModel, ApiError>) -> Response {
    match listed {
        Ok(listed) => Json(anthropic::model_list::model_info(&listed.model_card())).into_response(),
        Err(error) => anthropic::error_response::to_response(&error),
    }
}

/// An adapter.
#[derive(JsonSchema, Serialize)]
pub(crate) struct LoraAdapter {
    id: usize,
    /// Name, which is also a model's name in requests.
    name: String,
    /// Name of the file or folder.
    path: String,
    /// Scale in requests that say nothing about adapters.
    scale: f32,
}

/// The scales were set.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ScalesSet {
    success: bool,
}

fn started_model(models: &ModelRegistry) -> Result<Arc<ReadyModel>, ApiError> {
    models.first_entry().expect_ready()
}

/// Lists the adapters.
pub(crate) async fn list_adapters(
    State(models): State<Arc<ModelRegistry>>,
) -> Result<Json<Vec<LoraAdapter>>, Rejected> {
    let serving = started_model(&models)?;
    let all = serving.model.handle.adapters.all().iter().enumerate();
    let listed = all.map(|(id, adapter)| LoraAdapter {
        id,
        name: adapter.name.clone(),
        path: adapter.file.clone(),
        scale: adapter.default_scale(),
    });
    Ok(Json(listed.collect()))
}

/// Sets the scales of later requests that say nothing about adapters; those of adapters that are not named become 0.
pub(crate) async fn set_scales(
    State(models): State<Arc<ModelRegistry>>,
    RateLimited(_): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Json<ScalesSet>, Rejected> {
    let serving = started_model(&models)?;
    let adapters = &serving.model.handle.adapters;
    adapters.set_defaults(&lora_field::parse_scales(&body, adapters)?)?;
    Ok(Json(ScalesSet { success: true }))
}
