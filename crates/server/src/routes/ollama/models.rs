//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: the models and their state.

use crate::request::extract::{JsonBody, RateLimited};
use crate::response::error_response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gateway::models::{ListedModel, ModelEntry, ModelFacts, ModelRegistry, ReadyModel};
use generate::error::ApiError;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use text::{AnswerFormat, Capabilities, ChatTemplate, ToolSupport};
use wire::clock;
use wire::fields::Fields;
use wire::ollama::{model_name, modelfile};
use wire::rfc3339::Nanos;

/// The version of Ollama's API. Clients compare this version before they use newer fields.
const API_VERSION: &str = "0.12.11";
/// Expiry of a model that is never unloaded, as Ollama reports it: 2286-11-20.
const NEVER_UNIX_S: u64 = 9_999_999_999;
/// `Retry-After` while the model file is being read.
const UNREAD_RETRY: Duration = Duration::from_secs(1);

pub(crate) async fn show_version() -> Response {
    let server = concat!("millrace ", env!("CARGO_PKG_VERSION"));
    Json(json!({"version": API_VERSION, "server": server})).into_response()
}

/// All models, whether they are loaded or not.
pub(crate) async fn list_models(State(served): State<Arc<ModelRegistry>>) -> Response {
    let models: Vec<_> = served.list().await.iter().map(model_tag).collect();
    Json(json!({ "models": models })).into_response()
}

fn model_tag(listed: &ListedModel) -> Value {
    let facts = listed.facts.as_deref();
    let created = u64::try_from(listed.created_unix_s).unwrap_or(0);
    let mut tag = model_summary(&listed.name, facts);
    let parent = listed.made.as_ref().map(|made| made.parent.as_str());
    tag["details"]["parent_model"] = json!(parent.unwrap_or_default());
    tag["modified_at"] = facts.map_or_else(
        || unix_timestamp(created),
        |facts| timestamp(facts.modified),
    );
    tag
}

/// Loaded models.
pub(crate) async fn list_running(State(served): State<Arc<ModelRegistry>>) -> Response {
    let all = served.serving();
    let models: Vec<_> = all
        .map(|(entry, serving)| model_state(&entry, &serving))
        .collect();
    Json(json!({ "models": models })).into_response()
}

fn model_state(entry: &ModelEntry, serving: &ReadyModel) -> Value {
    let model = &serving.model;
    let mut state = model_summary(&entry.id, Some(&model.facts));
    state["expires_at"] = match entry.expires() {
        Some(expires) => timestamp(clock::wall(expires)),
        None => unix_timestamp(NEVER_UNIX_S),
    };
    // Memory of the model, if known; can be larger than the file.
    state["size"] = json!(entry.bytes().max(model.facts.file_bytes));
    state["size_vram"] = json!(0);
    state["context_length"] = json!(model.handle.context_max);
    state
}

fn model_summary(id: &str, facts: Option<&ModelFacts>) -> Value {
    let name = model_name::with_tag(id);
    json!({
        "name": name,
        "model": name,
        "size": facts.map_or(0, |facts| facts.file_bytes),
        "digest": facts.map_or_else(String::new, ModelFacts::digest),
        "details": model_details(facts),
    })
}

fn model_details(facts: Option<&ModelFacts>) -> Value {
    let family = facts.map_or("", |facts| &facts.family);
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": facts.map_or_else(String::new, |facts| abbreviated_count(facts.parameters)),
        "quantization_level": facts.map_or("", |facts| &facts.quantization),
    })
}

pub(crate) async fn show_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut fields = Fields::parse(&body)?;
    // `name` is the field's former name.
    let name = fields.string("model").or_else(|| fields.string("name"));
    if name.is_none() {
        fields.wrong("model", "is required");
    }
    fields.finish()?;
    let listed = served.listed(name.as_deref()).await?;
    let capabilities = find_capabilities(&listed).await;
    Ok(Json(model_description(&listed, capabilities)?).into_response())
}

/// # Errors
/// The facts of the model are unknown, because the model that the server was started with is still being loaded.
fn model_description(listed: &ListedModel, capabilities: Capabilities) -> Result<Value, ApiError> {
    let unread = "the model is being loaded; the contents of its file are not known yet";
    let facts = listed.facts.as_ref();
    let facts = facts.ok_or_else(|| ApiError::capacity("model_loading", unread, UNREAD_RETRY))?;
    let made = listed.made.as_deref();
    let own = made.and_then(|made| made.template.as_deref());
    let mut details = model_details(Some(facts));
    details["parent_model"] = json!(made.map_or("", |made| &made.parent));
    let mut shown = json!({
        "modelfile": modelfile::modelfile_text(&listed.name, made),
        "parameters": modelfile::parameter_lines(made, listed.context_max),
        "template": own.or(facts.template.as_deref()),
        "details": details,
        "model_info": facts.info,
        "capabilities": capability_names(capabilities),
        "tool_prompt": capabilities.tools.name(),
        "modified_at": timestamp(facts.modified),
    });
    if let Some(system) = made.and_then(|made| made.system.as_deref()) {
        shown["system"] = json!(system);
    }
    if let Some(license) = facts.info.get("general.license") {
        shown["license"] = license.clone();
    }
    Ok(shown)
}

/// The capabilities of a model: those of a loaded model, or those found by trying the chat template.
async fn find_capabilities(listed: &ListedModel) -> Capabilities {
    if let Some(known) = listed.capabilities() {
        return known;
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

/// Capabilities with the names of Ollama's API.
fn capability_names(capabilities: Capabilities) -> Vec<&'static str> {
    let names = [
        ("completion", true),
        ("tools", capabilities.tools != ToolSupport::None),
        ("thinking", capabilities.thinking),
    ];
    names
        .into_iter()
        .filter(|(_, can)| *can)
        .map(|(word, _)| word)
        .collect()
}

fn unix_timestamp(seconds: u64) -> Value {
    timestamp(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn timestamp(time: SystemTime) -> Value {
    json!(Nanos(time))
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
