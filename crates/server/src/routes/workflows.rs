//! `/v1/workflows*` and `/v1/runs*`.

use crate::app::App;
use crate::arrival;
use crate::door;
use crate::gateway::apart::apart;
use crate::gateway::open::{Asked, open};
use crate::gateway::served::Held;
use crate::gateway::streams::{Entry, Wishes};
use crate::gateway::workflows::folder;
use crate::gateway::workflows::launch::Program;
use crate::gateway::workflows::running::{Ended, NoChannel, Running};
use crate::intake;
use crate::wire::clock;
use crate::wire::fields::{self, Fields};
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::native::refusal;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::SamplingParams;
use generate::error::{ApiError, ErrorKind};
use generate::request::{Ask, Control, Delivery, Prompt};
use generate::tools::Calling;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Tokens a run may tell that says nothing else; and no more than the context has.
const TOKENS_MAX: usize = 4096;
/// Ids that may be written into a channel at one time.
const IDS_MAX: usize = 4096;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/workflows", get(list))
        .route("/v1/workflows/{name}", get(one))
        .route("/v1/workflows/{name}/runs", post(run))
        .route("/v1/runs/{id}", get(show))
        .route("/v1/runs/{id}/channels/{channel}", post(write))
}

async fn list(State(app): State<Arc<App>>) -> Response {
    answer(read(&app, |folder| Ok(folder::list(folder.as_deref()))).await)
}

async fn one(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    let described = read(&app, move |folder| {
        let program = folder::program(folder.as_deref(), &name)?;
        Ok(folder::describe(&name, &program))
    });
    answer(described.await)
}

async fn run(State(app): State<Arc<App>>, Path(name): Path<String>, request: Request) -> Response {
    let ran = try_run(&app, name, request).await;
    ran.unwrap_or_else(|error| refusal::response(&error))
}

async fn try_run(app: &Arc<App>, name: String, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let caller = door::caller(&head.extensions)?;
    caller.request(clock::now())?;
    intake::expect_json(&head.headers)?;
    let deadline = intake::deadline(&head.headers)?;
    let class = intake::class(&head.headers)?;
    let wishes = Wishes {
        resumable: true,
        ..Wishes::parse(&head.headers)?
    };
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let program = read(app, move |folder| folder::program(folder.as_deref(), &name)).await?;
    let held = match arrival::find_held(app, Format::Job, &bytes).await? {
        Some(held) => held,
        None => app.models.hold_now(None)?, // what is wrong with the body is told below
    };
    let long = (bytes.len(), app.config.now().inline_prompt_bytes_max);
    let mut asked = apart(long, move || understood(&bytes, held, program)).await?;
    (asked.wishes, asked.class, asked.deadline) = (wishes, class, deadline);
    Ok(app
        .responder
        .respond(open(&app.gateway.generations, caller, asked)?)
        .await)
}

fn understood(
    body: &Bytes,
    held: Held,
    program: Arc<workflow::Program>,
) -> Result<Asked, ApiError> {
    let mut fields = Fields::parse(body)?;
    fields.string("model"); // whose it is was looked up before
    let context_max = held.serving.model.handle.context_max;
    let most = context_max.min(TOKENS_MAX);
    let told = fields.integer("max_tokens", 1..=context_max as i128);
    let tokens_max = told.and_then(|told| usize::try_from(told).ok());
    let stream = fields.raw("stream").is_none() || fields.boolean("stream") == Some(true);
    let given = match fields.raw("kwargs") {
        None => Map::new(),
        Some(raw) => fields::read(raw).unwrap_or_else(|| {
            fields.wrong("kwargs", "must be an object");
            Map::new()
        }),
    };
    fields.finish()?;
    let tokens_max = tokens_max.unwrap_or(most);
    Ok(Asked {
        format: Format::Job,
        framing: Framing::Events,
        held,
        ask: ask(body, tokens_max, stream),
        body_bytes: body.len(),
        wishes: Wishes::default(),
        class: None,
        deadline: None,
        response_id: None,
        program: Some(Program {
            program,
            given,
            tokens_max,
        }),
    })
}

/// What admission and the stream's description are to know of it.
fn ask(body: &Bytes, tokens_max: usize, stream: bool) -> Ask {
    Ask {
        prompts: vec![Prompt::Text(String::from_utf8_lossy(body).into_owned())],
        n: 1,
        control: Control {
            sampling: SamplingParams::default(),
            max_tokens: Some(tokens_max),
            stops: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            seed: None,
            form: None,
            closed_objects: None,
            calling: Calling::default(),
            bound: Vec::new(),
            thinking_max: None,
            scored: false,
        },
        delivery: Delivery {
            stream,
            ..Delivery::default()
        },
    }
}

/// Reads documents where that holds nobody up.
async fn read<T: Send + 'static>(
    app: &App,
    read: impl FnOnce(Option<PathBuf>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let folder = app.config.now().workflows.clone();
    let read = tokio::task::spawn_blocking(move || read(folder));
    let failed = |_| ApiError::ours("internal_error", "the workflows could not be read");
    read.await.map_err(failed)?
}

async fn show(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let shown = find(&app, &id, &request).map(|(entry, running)| {
        let shown = Shown {
            object: "workflow.run",
            id: entry.id().to_string(),
            model: &entry.meta().model,
            state: entry.state().name(),
            outcome: running.outcome(),
        };
        Json(shown).into_response()
    });
    shown.unwrap_or_else(|error| refusal::response(&error))
}

/// A run, as the API tells it.
#[derive(Serialize)]
struct Shown<'a> {
    object: &'static str,
    id: String,
    model: &'a str,
    state: &'static str,
    /// What it came to, once it has ended.
    #[serde(flatten)]
    outcome: Option<&'a Ended>,
}

async fn write(
    State(app): State<Arc<App>>,
    Path((id, channel)): Path<(String, String)>,
    request: Request,
) -> Response {
    answer(try_write(&app, &id, &channel, request).await)
}

async fn try_write(
    app: &App,
    id: &str,
    channel: &str,
    request: Request,
) -> Result<Value, ApiError> {
    let (_, running) = find(app, id, &request)?;
    let (head, body) = request.into_parts();
    intake::expect_json(&head.headers)?;
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let mut fields = Fields::parse(&bytes)?;
    let items = fields.array("ids", IDS_MAX).unwrap_or_default();
    let mut ids = Vec::with_capacity(items.len());
    for (at, raw) in items.into_iter().enumerate() {
        match fields::read::<u32>(raw) {
            Some(id) => ids.push(id),
            None => fields.wrong(format!("ids[{at}]"), "must be a token id"),
        }
    }
    let close = fields.boolean("close") == Some(true);
    fields.finish()?;
    let written = running.write(channel, &ids).map_err(no_channel)?;
    let closes = close && written == ids.len();
    if closes {
        running.close(channel).map_err(no_channel)?;
    }
    Ok(json!({"object": "workflow.channel", "written": written, "closed": closes}))
}

fn no_channel(_: NoChannel) -> ApiError {
    let words = "the run does not read from a channel of this name now";
    ApiError::caller(ErrorKind::Conflict, "no_channel", words)
}

fn find(app: &App, id: &str, request: &Request) -> Result<(Arc<Entry>, Arc<Running>), ApiError> {
    let found = app.streams.find(id, door::caller(request.extensions())?)?;
    let entry = found.payload;
    if let Some(error) = entry.refused() {
        return Err(error.clone());
    }
    let running = entry.program().cloned();
    let running = running.ok_or_else(|| {
        let words = "this stream is no run of a workflow, or has not begun";
        ApiError::caller(ErrorKind::NotFound, "run_not_found", words)
    })?;
    Ok((entry, running))
}

fn answer(result: Result<Value, ApiError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => refusal::response(&error),
    }
}
