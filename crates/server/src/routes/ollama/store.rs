//! `/api/pull`, `/api/create`, `/api/copy`, `/api/delete`: changes of the model store.

use crate::config::live_config::LiveConfig;
use crate::request::extract::{JsonBody, RateLimited};
use crate::response::error_response::Rejected;
use crate::response::stream_response;
use crate::routes::ollama::errors::{self, library_error};
use crate::routes::ollama::pull::{OllamaStatus, PullSlots};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gateway::models::{DerivedModel, Library, LibraryError, ModelKeepAlive, ModelRegistry};
use generate::error::ApiError;
use serde::Serialize;
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use wire::fields::{Fields, JsonType, json_type};
use wire::framing::Framing;
use wire::ollama::error_response::ErrorLine;
use wire::ollama::{go_template, request};

pub(crate) async fn pull_model(
    State(served): State<Arc<ModelRegistry>>,
    State(slots): State<PullSlots>,
    State(config): State<Arc<LiveConfig>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut fields = Fields::parse(&body)?;
    let name = required_text(&mut fields, &["model", "name"]);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    fields.finish()?;
    let library = Arc::clone(model_store(&served, "pulling models")?);
    let retry_after = config.now().retry_after;
    let mut lines = slots.begin_pull(served, library, name, retry_after)?;
    if is_streamed {
        let frames = stream::unfold(lines, |mut lines| async move {
            let line = lines.recv().await?;
            let line = match line {
                Ok(status) => json_line(&status),
                Err(error) => json_line(&ErrorLine::new(&error, 0)),
            };
            Some((Ok::<_, Infallible>(line), lines))
        });
        return Ok(stream_response::framed_response(
            Framing::Ndjson,
            None,
            Body::from_stream(frames),
        ));
    }
    let mut last = None;
    while let Some(line) = lines.recv().await {
        last = Some(line?);
    }
    let last = last.ok_or_else(|| ApiError::ours("internal_error", "the download was lost"))?;
    Ok(Json(last).into_response())
}

pub(crate) async fn create_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let library = Arc::clone(model_store(&served, "creating models")?);
    let mut fields = Fields::parse(&body)?;
    let name = required_text(&mut fields, &["model", "name"]);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    let derived = derived_model(&mut fields);
    fields.finish()?;
    change_store(&served, move || library.make(&name, derived)).await?;
    let lines = ["writing manifest", "success"].map(OllamaStatus::new);
    if !is_streamed {
        return Ok(Json(&lines[1]).into_response());
    }
    let lines: Vec<Bytes> = lines.iter().map(json_line).collect();
    Ok(stream_response::framed_response(
        Framing::Ndjson,
        None,
        Body::from(lines.concat()),
    ))
}

/// Parses the fields of a derived model.
fn derived_model(fields: &mut Fields<'_>) -> DerivedModel {
    for (name, instead) in [
        ("files", "`from` must name a local model"),
        ("adapters", "is not supported yet by this server"),
        ("messages", "is not supported yet by this server"),
        ("quantize", "is not supported yet by this server"),
        (
            "modelfile",
            "use `from`, `system`, `template` and `parameters`",
        ),
    ] {
        if request::is_given(fields, name) {
            fields.reject(name, instead);
        }
    }
    let template =
        request::string_field(fields, "template").filter(|template| !template.is_empty());
    let nothing = go_template::TemplateValues {
        system: "",
        prompt: "",
    };
    if let Some(Err(why)) = template
        .as_deref()
        .map(|template| go_template::render(template, nothing))
    {
        fields.reject("template", why);
    }
    DerivedModel {
        parent: required_text(fields, &["from"]),
        system: request::string_field(fields, "system").filter(|system| !system.is_empty()),
        template,
        options: parse_parameters(fields),
    }
}

/// Parses options as in a request.
fn parse_parameters(fields: &mut Fields<'_>) -> Map<String, Value> {
    const NAME: &str = "parameters";
    let Some(raw) = fields.raw(NAME) else {
        return Map::new();
    };
    if json_type(raw) != JsonType::Object {
        fields.reject(NAME, "must be an object");
        return Map::new();
    }
    fields.within(NAME, request::check_options);
    wire::fields::parse_value(raw).unwrap_or_default()
}

pub(crate) async fn copy_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut fields = Fields::parse(&body)?;
    let from = required_text(&mut fields, &["source"]);
    let to = required_text(&mut fields, &["destination"]);
    fields.finish()?;
    let library = Arc::clone(model_store(&served, "copying models")?);
    change_store(&served, move || library.copy(&from, &to)).await?;
    Ok(StatusCode::OK.into_response())
}

/// Removes a model from the store. A loaded model is unloaded when its last generation has ended.
pub(crate) async fn delete_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut fields = Fields::parse(&body)?;
    let name = required_text(&mut fields, &["model", "name"]);
    fields.finish()?;
    let library = Arc::clone(model_store(&served, "deleting models")?);
    let named = served.look_up(Some(&name)).await?;
    change_store(&served, move || library.delete(&name)).await?;
    let library = served.library().cloned();
    let weights = named.entry.weights.clone();
    let is_used = tokio::task::spawn_blocking(move || {
        let all = library.map(|library| library.all()).unwrap_or_default();
        all.iter().any(|local| local.weights == weights)
    });
    if !is_used.await.unwrap_or(true) {
        named.entry.set_keep(ModelKeepAlive::For(Duration::ZERO));
        served.look_again();
    }
    Ok(StatusCode::OK.into_response())
}

/// Changes the model store on a thread that may block. Names are resolved anew afterwards.
async fn change_store(
    served: &ModelRegistry,
    change: impl FnOnce() -> Result<(), LibraryError> + Send + 'static,
) -> Result<(), ApiError> {
    let done = tokio::task::spawn_blocking(change).await;
    served.forget_names();
    match done {
        Ok(done) => done.map_err(|why| library_error(&why)),
        Err(_) => Err(ApiError::ours("internal_error", "the operation failed")),
    }
}

/// The first of these fields that is present.
fn required_text(fields: &mut Fields<'_>, names: &[&str]) -> String {
    let found = names.iter().find(|name| fields.raw(name).is_some());
    let text = found.and_then(|name| request::string_field(fields, name));
    let text = text.filter(|text| !text.is_empty());
    if text.is_none() {
        fields.reject(names[0], "is required: a text");
    }
    text.unwrap_or_default()
}

fn model_store<'a>(
    served: &'a ModelRegistry,
    what: &str,
) -> Result<&'a Arc<dyn Library>, ApiError> {
    let library = served.library();
    library.ok_or_else(|| errors::not_supported(what, errors::MODELS))
}

fn json_line(line: &impl Serialize) -> Bytes {
    let mut line = wire::json::to_vec(line);
    wire::json::raw(&mut line, "\n");
    line.freeze()
}
