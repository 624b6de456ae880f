//! `/api/pull`, `/api/create`, `/api/copy`, `/api/delete`: changes of the model store.

use crate::error_response::Rejected;
use crate::extract::{JsonBody, RateLimited};
use crate::gateway::served::{DerivedModel, Library, LibraryError, ModelKeepAlive, ModelRegistry};
use crate::live_config::LiveConfig;
use crate::routes::ollama_errors::{self, library_error};
use crate::routes::ollama_pull::PullSlots;
use crate::stream_response;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use generate::error::ApiError;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use wire::fields::{Fields, Kind, kind};
use wire::framing::Framing;
use wire::ollama::{go_template, request};

pub(crate) async fn pull(
    State(served): State<Arc<ModelRegistry>>,
    State(slots): State<PullSlots>,
    State(config): State<Arc<LiveConfig>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut fields = Fields::parse(&body)?;
    let name = required(&mut fields, &["model", "name"]);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    fields.finish()?;
    let library = Arc::clone(library(&served, "pulling models")?);
    let retry_after = config.now().retry_after;
    let mut news = slots.begin(served, library, name, retry_after)?;
    if is_streamed {
        let lines = stream::unfold(news, |mut news| async move {
            let line = news.recv().await?;
            let line = line.unwrap_or_else(|error| told_error(&error));
            Some((Ok::<_, Infallible>(lined(&line)), news))
        });
        return Ok(stream_response::framed(
            Framing::Ndjson,
            None,
            Body::from_stream(lines),
        ));
    }
    let mut last = json!({});
    while let Some(line) = news.recv().await {
        last = line?;
    }
    Ok(Json(last).into_response())
}

pub(crate) async fn create(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let library = Arc::clone(library(&served, "creating models")?);
    let mut fields = Fields::parse(&body)?;
    let name = required(&mut fields, &["model", "name"]);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    let made = made(&mut fields);
    fields.finish()?;
    changed(&served, move || library.make(&name, made)).await?;
    let lines = [
        json!({"status": "writing manifest"}),
        json!({"status": "success"}),
    ];
    if !is_streamed {
        return Ok(Json(&lines[1]).into_response());
    }
    let lines: Vec<Bytes> = lines.iter().map(lined).collect();
    Ok(stream_response::framed(
        Framing::Ndjson,
        None,
        Body::from(lines.concat()),
    ))
}

/// Parses the fields of a derived model.
fn made(fields: &mut Fields<'_>) -> DerivedModel {
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
        if request::says_something(fields, name) {
            fields.wrong(name, instead);
        }
    }
    let template = request::text(fields, "template").filter(|template| !template.is_empty());
    let nothing = go_template::Values {
        system: "",
        prompt: "",
    };
    if let Some(Err(why)) = template
        .as_deref()
        .map(|template| go_template::render(template, nothing))
    {
        fields.wrong("template", why);
    }
    DerivedModel {
        parent: required(fields, &["from"]),
        system: request::text(fields, "system").filter(|system| !system.is_empty()),
        template,
        options: parameters(fields),
    }
}

/// Parses options as in a request.
fn parameters(fields: &mut Fields<'_>) -> Map<String, Value> {
    const NAME: &str = "parameters";
    let Some(raw) = fields.raw(NAME) else {
        return Map::new();
    };
    if kind(raw) != Kind::Object {
        fields.wrong(NAME, "must be an object");
        return Map::new();
    }
    fields.within(NAME, request::check_options);
    wire::fields::read(raw).unwrap_or_default()
}

pub(crate) async fn copy(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut fields = Fields::parse(&body)?;
    let from = required(&mut fields, &["source"]);
    let to = required(&mut fields, &["destination"]);
    fields.finish()?;
    let library = Arc::clone(library(&served, "copying models")?);
    changed(&served, move || library.copy(&from, &to)).await?;
    Ok(StatusCode::OK.into_response())
}

/// Removes a model from the store. A loaded model is unloaded when its last generation has ended.
pub(crate) async fn forget(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let mut fields = Fields::parse(&body)?;
    let name = required(&mut fields, &["model", "name"]);
    fields.finish()?;
    let library = Arc::clone(library(&served, "deleting models")?);
    let named = served.look_up(Some(&name)).await?;
    changed(&served, move || library.delete(&name)).await?;
    let still = served.library().cloned();
    let weights = named.entry.weights.clone();
    let is_used = tokio::task::spawn_blocking(move || {
        let all = still.map(|library| library.all()).unwrap_or_default();
        all.iter().any(|local| local.weights == weights)
    });
    if !is_used.await.unwrap_or(true) {
        named.entry.set_keep(ModelKeepAlive::For(Duration::ZERO));
        served.look_again();
    }
    Ok(StatusCode::OK.into_response())
}

/// Changes the model store on a thread that may block. Names are resolved anew afterwards.
async fn changed(
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
fn required(fields: &mut Fields<'_>, names: &[&str]) -> String {
    let found = names.iter().find(|name| fields.raw(name).is_some());
    let text = found.and_then(|name| request::text(fields, name));
    let text = text.filter(|text| !text.is_empty());
    if text.is_none() {
        fields.wrong(names[0], "is required: a text");
    }
    text.unwrap_or_default()
}

fn library<'a>(served: &'a ModelRegistry, what: &str) -> Result<&'a Arc<dyn Library>, ApiError> {
    let library = served.library();
    library.ok_or_else(|| ollama_errors::not_supported(what, ollama_errors::MODELS))
}

fn told_error(error: &ApiError) -> Value {
    json!({"error": error.message, "code": error.code})
}

fn lined(line: &Value) -> Bytes {
    Bytes::from(format!("{line}\n"))
}
