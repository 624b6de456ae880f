//! `/lora-adapters`, compatible with llama.cpp's server: the adapters of the model that the server was started with, and
//! their scales in requests that say nothing about adapters.

use crate::request::extract::{JsonBody, RateLimited};
use crate::response::error_response::Rejected;
use axum::Json;
use axum::extract::State;
use gateway::models::{ModelRegistry, ReadyModel};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use wire::shared::lora_field;

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
