//! `/api/pull`, `/api/create`, `/api/copy`, `/api/delete`: what changes which models there are.

use crate::app::App;
use crate::door;
use crate::gateway::served::{Keep, Library, LibraryError, Made};
use crate::intake;
use crate::routes::ollama::answer;
use crate::routes::ollama_unsupported;
use crate::wire::clock;
use crate::wire::fields::{Fields, Kind, kind};
use crate::wire::framing::Framing;
use crate::wire::ollama::go_template;
use crate::wire::ollama::request;
use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use bytes::Bytes;
use futures_util::stream;
use generate::error::{ApiError, Blame, ErrorKind};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/pull", post(pull))
        .route("/api/create", post(create))
        .route("/api/copy", post(copy))
        .route("/api/delete", delete(forget))
}

async fn pull(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(try_pull(&app, request).await)
}

async fn try_pull(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let bytes = read(app, request).await?;
    let mut fields = Fields::parse(&bytes)?;
    let name = required(&mut fields, &["model", "name"]);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    fields.finish()?;
    let library = library(app, "pulling models")?;
    let mut news = crate::routes::ollama_pull::begin(app, Arc::clone(library), name)?;
    if is_streamed {
        let lines = stream::unfold(news, |mut news| async move {
            let line = news.recv().await?;
            let line = line.unwrap_or_else(|error| told_error(&error));
            Some((Ok::<_, Infallible>(lined(&line)), news))
        });
        return Ok(Framing::Lines.carried(Body::from_stream(lines)));
    }
    let mut last = json!({});
    while let Some(line) = news.recv().await {
        last = line?;
    }
    Ok(Json(last).into_response())
}

async fn create(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(try_create(&app, request).await)
}

async fn try_create(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let bytes = read(app, request).await?;
    let library = Arc::clone(library(app, "creating models")?);
    let mut fields = Fields::parse(&bytes)?;
    let name = required(&mut fields, &["model", "name"]);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    let made = made(&mut fields);
    fields.finish()?;
    changed(app, move || library.make(&name, made)).await?;
    let lines = [
        json!({"status": "writing manifest"}),
        json!({"status": "success"}),
    ];
    if !is_streamed {
        return Ok(Json(&lines[1]).into_response());
    }
    let lines: Vec<Bytes> = lines.iter().map(lined).collect();
    Ok(Framing::Lines.carried(Body::from(lines.concat())))
}

/// What a new model is to be, of what there is here.
fn made(fields: &mut Fields<'_>) -> Made {
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
    Made {
        parent: required(fields, &["from"]),
        system: request::text(fields, "system").filter(|system| !system.is_empty()),
        template,
        options: parameters(fields),
    }
}

/// Options, each as it would be read in a request.
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
    crate::wire::fields::read(raw).unwrap_or_default()
}

async fn copy(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(try_copy(&app, request).await)
}

async fn try_copy(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let bytes = read(app, request).await?;
    let mut fields = Fields::parse(&bytes)?;
    let from = required(&mut fields, &["source"]);
    let to = required(&mut fields, &["destination"]);
    fields.finish()?;
    let library = Arc::clone(library(app, "copying models")?);
    changed(app, move || library.copy(&from, &to)).await?;
    Ok(StatusCode::OK.into_response())
}

async fn forget(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(try_forget(&app, request).await)
}

/// What is loaded of it leaves when nobody needs it any more.
async fn try_forget(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let bytes = read(app, request).await?;
    let mut fields = Fields::parse(&bytes)?;
    let name = required(&mut fields, &["model", "name"]);
    fields.finish()?;
    let library = Arc::clone(library(app, "deleting models")?);
    let named = app.models.look_up(Some(&name)).await?;
    changed(app, move || library.delete(&name)).await?;
    let still = app.models.library().cloned();
    let weights = named.slot.weights.clone();
    let is_used = tokio::task::spawn_blocking(move || {
        let all = still.map(|library| library.all()).unwrap_or_default();
        all.iter().any(|local| local.weights == weights)
    });
    if !is_used.await.unwrap_or(true) {
        named.slot.set_keep(Keep::For(Duration::ZERO));
        app.models.look_again();
    }
    Ok(StatusCode::OK.into_response())
}

/// Does something to the library where it holds nobody up. Names are looked up again afterwards.
async fn changed(
    app: &App,
    change: impl FnOnce() -> Result<(), LibraryError> + Send + 'static,
) -> Result<(), ApiError> {
    let done = tokio::task::spawn_blocking(change).await;
    app.models.forget_names();
    match done {
        Ok(done) => done.map_err(|why| refused(&why)),
        Err(_) => Err(ApiError::ours("internal_error", "the operation failed")),
    }
}

async fn read(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let (head, body) = request.into_parts();
    door::caller(&head.extensions)?.request(clock::now())?;
    intake::expect_json(&head.headers)?;
    intake::read(&head.headers, body, &app.config.now()).await
}

/// The first of these fields that is there.
fn required(fields: &mut Fields<'_>, names: &[&str]) -> String {
    let found = names.iter().find(|name| fields.raw(name).is_some());
    let text = found.and_then(|name| request::text(fields, name));
    let text = text.filter(|text| !text.is_empty());
    if text.is_none() {
        fields.wrong(names[0], "is required: a text");
    }
    text.unwrap_or_default()
}

fn library<'a>(app: &'a App, what: &str) -> Result<&'a Arc<dyn Library>, ApiError> {
    let library = app.models.library();
    library.ok_or_else(|| ollama_unsupported::refuse(what, ollama_unsupported::MODELS))
}

/// In the words of this server.
pub(crate) fn refused(error: &LibraryError) -> ApiError {
    let words = error.to_string();
    match error {
        LibraryError::Unknown(_) => ApiError::caller(ErrorKind::NotFound, "model_not_found", words),
        LibraryError::Invalid(_) => ApiError::bad_request("invalid_value", words),
        LibraryError::Failed(_) | LibraryError::Abandoned => {
            ApiError::new(ErrorKind::Upstream, Blame::Ours, "model_unavailable", words)
        }
    }
}

fn told_error(error: &ApiError) -> Value {
    json!({"error": error.message, "code": error.code})
}

fn lined(line: &Value) -> Bytes {
    Bytes::from(format!("{line}\n"))
}
