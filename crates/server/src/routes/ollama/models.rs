//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: the models and their state.

use crate::request::extract::{JsonBody, RateLimited};
use crate::response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gateway::limits::GatewayLimits;
use gateway::models::{ListedModel, ModelEntry, ModelFacts, ModelRegistry, ModelTask, ReadyModel};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use text::{AnswerFormat, Capabilities, ChatTemplate};
use wire::clock::{self, Nanos};
use wire::fields::Fields;
use wire::ollama::{go_template, store_request};

/// The version of Ollama's API. Clients compare this version before they use newer fields.
const API_VERSION: &str = "0.12.11";
/// Expiry of a model that is never unloaded, as Ollama reports it: 2286-11-20.
const NEVER_UNIX_S: u64 = 9_999_999_999;
/// `Retry-After` while the model file is being read.
const UNREAD_RETRY: Duration = Duration::from_secs(1);

/// The supported version of Ollama's API, and the version of the server.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OllamaVersion {
    version: &'static str,
    server: &'static str,
}

/// A list of local or of loaded models.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "{T}List")]
pub(crate) struct OllamaModelList<T> {
    models: Vec<T>,
}

/// A local model.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OllamaModel {
    #[serde(flatten)]
    model: OllamaModelFile,
    modified_at: Nanos,
    capabilities: Vec<&'static str>,
}

/// A loaded model.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OllamaLoadedModel {
    #[serde(flatten)]
    model: OllamaModelFile,
    expires_at: Nanos,
    size_vram: u64,
    context_length: usize,
}

/// Name and file of a model.
#[derive(JsonSchema, Serialize)]
struct OllamaModelFile {
    name: String,
    model: String,
    /// Size of the model file in bytes; for a loaded model the size in memory if larger.
    size: u64,
    digest: String,
    details: OllamaModelDetails,
}

#[derive(JsonSchema, Serialize)]
struct OllamaModelDetails {
    parent_model: String,
    format: &'static str,
    family: String,
    families: [String; 1],
    parameter_size: String,
    quantization_level: String,
    /// Longest context of the model in tokens; of a loaded model the one that it was loaded with.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<u64>,
}

/// Details and metadata of a model.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OllamaModelInfo<'a> {
    modelfile: String,
    parameters: String,
    template: Option<&'a str>,
    details: OllamaModelDetails,
    model_info: &'a Map<String, Value>,
    capabilities: Vec<&'static str>,
    tool_prompt: &'static str,
    /// Turns of conversations: "template" (the model's own), those of a family by the vocabulary, or "base model".
    prompt_format: &'static str,
    modified_at: Nanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    license: Option<&'a Value>,
}

pub(crate) async fn show_version() -> Json<OllamaVersion> {
    Json(OllamaVersion {
        version: API_VERSION,
        server: concat!("millrace ", env!("CARGO_PKG_VERSION")),
    })
}

/// All models, whether they are loaded or not.
pub(crate) async fn list_models(
    State(served): State<Arc<ModelRegistry>>,
) -> Json<OllamaModelList<OllamaModel>> {
    let listed = served.list_models().await;
    let mut models = Vec::with_capacity(listed.len());
    for listed in listed {
        let capabilities = find_capabilities(&listed).await;
        models.push(model_tag(&listed, capabilities));
    }
    Json(OllamaModelList { models })
}

fn model_tag(listed: &ListedModel, capabilities: Capabilities) -> OllamaModel {
    let facts = listed.facts.as_deref();
    let created = u64::try_from(listed.created_unix_s).unwrap_or(0);
    let mut model = model_file(&listed.name, facts);
    if let Some(derived) = &listed.made {
        model.details.parent_model.clone_from(&derived.parent);
    }
    if let Some(context) = listed.context_max {
        model.details.context_length = Some(context as u64);
    }
    OllamaModel {
        model,
        modified_at: facts.map_or_else(|| unix_timestamp(created), |facts| Nanos(facts.modified)),
        capabilities: listed.capability_names(capabilities),
    }
}

/// Loaded models.
pub(crate) async fn list_running(
    State(served): State<Arc<ModelRegistry>>,
) -> Json<OllamaModelList<OllamaLoadedModel>> {
    let all = served.ready_models();
    let models = all
        .map(|(entry, serving)| model_state(&entry, &serving))
        .collect();
    Json(OllamaModelList { models })
}

fn model_state(entry: &ModelEntry, serving: &ReadyModel) -> OllamaLoadedModel {
    let served = &serving.model;
    let mut model = model_file(entry.id(), Some(&served.facts));
    model.size = entry.memory_bytes().max(served.facts.file_bytes);
    OllamaLoadedModel {
        model,
        expires_at: match entry.expires_at() {
            Some(expires) => Nanos(clock::wall(expires)),
            None => unix_timestamp(NEVER_UNIX_S),
        },
        size_vram: 0,
        context_length: served.handle.context_max,
    }
}

fn model_file(id: &str, facts: Option<&ModelFacts>) -> OllamaModelFile {
    let name = store_request::with_tag(id);
    OllamaModelFile {
        model: name.clone(),
        name,
        size: facts.map_or(0, |facts| facts.file_bytes),
        digest: facts.map_or_else(String::new, ModelFacts::digest),
        details: model_details(facts),
    }
}

fn model_details(facts: Option<&ModelFacts>) -> OllamaModelDetails {
    let family = facts.map_or_else(String::new, |facts| facts.family.to_string());
    OllamaModelDetails {
        parent_model: String::new(),
        format: "gguf",
        families: [family.clone()],
        family,
        parameter_size: facts.map_or_else(String::new, |facts| abbreviated_count(facts.parameters)),
        quantization_level: facts.map_or_else(String::new, |facts| facts.quantization.to_string()),
        context_length: facts.and_then(trained_context),
    }
}

/// The context that a model was trained with, from its metadata.
fn trained_context(facts: &ModelFacts) -> Option<u64> {
    let name = format!("{}.context_length", facts.family);
    facts.info.get(&name).and_then(Value::as_u64)
}

pub(crate) async fn show_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let name = store_request::parse_show(Fields::parse(&body)?)?;
    let listed = served.listed_model(Some(&name)).await?;
    let capabilities = find_capabilities(&listed).await;
    let limits = served.gateway_limits();
    Ok(Json(model_description(&listed, capabilities, &limits)?).into_response())
}

/// # Errors
/// The facts of the model are unknown, because the model that the server was started with is still being loaded.
fn model_description<'a>(
    listed: &'a ListedModel,
    capabilities: Capabilities,
    limits: &GatewayLimits,
) -> Result<OllamaModelInfo<'a>, ApiError> {
    let unread = "the model is being loaded; the contents of its file are not known yet";
    let facts = listed.facts.as_ref();
    let facts = facts.ok_or_else(|| ApiError::capacity("model_loading", unread, UNREAD_RETRY))?;
    let derived = listed.made.as_deref();
    let own_template = derived.and_then(|derived| derived.template.as_deref());
    let mut details = model_details(Some(facts));
    if let Some(derived) = derived {
        details.parent_model.clone_from(&derived.parent);
    }
    Ok(OllamaModelInfo {
        modelfile: go_template::modelfile_text(&listed.name, derived),
        parameters: go_template::parameter_lines(
            derived,
            limits.sampling_defaults(facts.sampling),
            listed.context_max,
        ),
        template: own_template.or(facts.template.as_deref()),
        details,
        model_info: &facts.info,
        capabilities: listed.capability_names(capabilities),
        tool_prompt: capabilities.tools.name(),
        prompt_format: facts.prompt_format,
        modified_at: Nanos(facts.modified),
        system: derived.and_then(|derived| derived.system.as_deref()),
        license: facts.info.get("general.license"),
    })
}

/// The capabilities of a model: those of a loaded model, or those found by trying the chat template.
async fn find_capabilities(listed: &ListedModel) -> Capabilities {
    if let Some(known) = listed.capabilities() {
        return known;
    }
    let facts = listed.facts.as_ref();
    if facts.is_some_and(|facts| facts.task != ModelTask::Generation) {
        return Capabilities::NONE;
    }
    let source = listed
        .facts
        .as_ref()
        .and_then(|facts| facts.template.clone());
    let tried = tokio::task::spawn_blocking(move || {
        let answers = source
            .as_deref()
            .map(AnswerFormat::detect)
            .unwrap_or_default();
        let template = source.and_then(|source| ChatTemplate::new(&source, "", "").ok());
        let template = template.unwrap_or_else(|| ChatTemplate::fallback("", ""));
        template.capabilities(answers.with_json_fallback())
    });
    tried.await.unwrap_or_default()
}

fn unix_timestamp(seconds: u64) -> Nanos {
    Nanos(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// `8.0B`, `137M`, `1.5K`.
fn abbreviated_count(parameters: u64) -> String {
    let units = [(1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K")];
    let unit = units.into_iter().find(|&(size, _)| parameters >= size);
    let Some((size, letter)) = unit else {
        return parameters.to_string();
    };
    let tenths = parameters.saturating_mul(10) / size;
    format!("{}.{}{letter}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::abbreviated_count;

    #[test]
    fn parameter_counts_are_abbreviated() {
        for (parameters, want) in [
            (0, "0"),
            (999, "999"),
            (1_234, "1.2K"),
            (137_000_000, "137.0M"),
            (8_030_261_248, "8.0B"),
            (405_853_388_800, "405.8B"),
        ] {
            assert_eq!(abbreviated_count(parameters), want);
        }
    }
}
