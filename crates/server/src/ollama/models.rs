//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: what there is.

use super::names;
use super::routes::{answer, expect_body};
use crate::door;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::native::rfc3339;
use crate::router::App;
use crate::served::{ModelFacts, Serving, Slot};
use crate::{clock, intake};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The Ollama whose API this is: what clients compare with before they use a field.
const API_VERSION: &str = "0.12.11";
/// When a model is let go of that is not: as Ollama says for ever, far away. (2286-11-20.)
const FOR_EVER_UNIX_S: u64 = 9_999_999_999;

/// The routes.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/version", get(version))
        .route("/api/tags", get(tags))
        .route("/api/ps", get(ps))
        .route("/api/show", post(show))
}

async fn version() -> Response {
    let server = concat!("millrace ", env!("CARGO_PKG_VERSION"));
    Json(json!({"version": API_VERSION, "server": server})).into_response()
}

/// All models, whether they are loaded or not.
async fn tags(State(app): State<Arc<App>>) -> Response {
    let models: Vec<_> = app.models.all().iter().map(|slot| tag(slot)).collect();
    Json(json!({ "models": models })).into_response()
}

fn tag(slot: &Slot) -> Value {
    let serving = slot.serving();
    let facts = serving.as_ref().map(|serving| &serving.model.facts);
    let created = u64::try_from(slot.created_unix_s).unwrap_or(0);
    let mut tag = named(&slot.id, facts);
    tag["modified_at"] = facts.map_or_else(|| at_unix_s(created), |facts| at(facts.modified));
    tag
}

/// Those that are loaded.
async fn ps(State(app): State<Arc<App>>) -> Response {
    let running = app.models.serving().map(|serving| running(&serving));
    let models: Vec<_> = running.collect();
    Json(json!({ "models": models })).into_response()
}

fn running(serving: &Serving) -> Value {
    let model = &serving.model;
    let mut told = named(&model.id, Some(&model.facts));
    told["expires_at"] = at_unix_s(FOR_EVER_UNIX_S);
    told["size_vram"] = json!(0);
    told["context_length"] = json!(model.context_max);
    told
}

fn named(id: &str, facts: Option<&ModelFacts>) -> Value {
    let name = names::tagged(id);
    json!({
        "name": name,
        "model": name,
        "size": facts.map_or(0, |facts| facts.file_bytes),
        "digest": facts.map_or_else(String::new, ModelFacts::digest),
        "details": details(facts),
    })
}

fn details(facts: Option<&ModelFacts>) -> Value {
    let family = facts.map_or("", |facts| &facts.family);
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": facts.map_or_else(String::new, |facts| for_people(facts.parameters)),
        "quantization_level": facts.map_or("", |facts| &facts.quantization),
    })
}

async fn show(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(try_show(&app, request).await)
}

async fn try_show(app: &App, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    door::caller(&head.extensions)?.request(clock::now())?;
    expect_body(&head.headers)?;
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let mut fields = Fields::parse(&bytes)?;
    // Its former name was `name`.
    let name = fields.string("model").or_else(|| fields.string("name"));
    if name.is_none() {
        fields.wrong("model", "is required");
    }
    fields.finish()?;
    let serving = names::find(&app.models, name.as_deref())?.expect_ready()?;
    Ok(Json(shown(&serving)).into_response())
}

fn shown(serving: &Serving) -> Value {
    let model = &serving.model;
    let facts = &model.facts;
    let name = names::tagged(&model.id);
    let mut shown = json!({
        "modelfile": format!("# made by Millrace from the model's own metadata\nFROM {name}\n"),
        "parameters": format!("num_ctx {}", model.context_max),
        "template": facts.template,
        "details": details(Some(facts)),
        "model_info": facts.info,
        "capabilities": ["completion"],
        "modified_at": at(facts.modified),
    });
    if let Some(license) = facts.info.get("general.license") {
        shown["license"] = license.clone();
    }
    shown
}

fn at_unix_s(seconds: u64) -> Value {
    at(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn at(time: SystemTime) -> Value {
    let mut out = BytesMut::new();
    rfc3339::write_nanos(time, &mut out);
    String::from_utf8_lossy(&out).into()
}

/// `8.0B`, `137M`, `1.5K`.
fn for_people(parameters: u64) -> String {
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
    use super::for_people;

    #[test]
    fn parameters_for_people() {
        for (parameters, want) in [
            (0, "0"),
            (999, "999"),
            (1_234, "1.2K"),
            (137_000_000, "137.0M"),
            (8_030_261_248, "8.0B"),
            (405_853_388_800, "405.8B"),
        ] {
            assert_eq!(for_people(parameters), want);
        }
    }
}
