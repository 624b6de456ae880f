//! `/v1/workflows*` and `/v1/runs*`.

use crate::config::live_config::LiveConfig;
use crate::request::extract::{Authenticated, GenerationRequest, JsonBody, Path};
use crate::request::model_lookup;
use crate::response::Rejected;
use crate::response::stream_response::StreamResponder;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gateway::handles::Gateway;
use gateway::keys::Caller;
use gateway::limits::Offload;
use gateway::models::ModelLease;
use gateway::open::{ParsedRequest, Resumable, StreamRequest};
use gateway::streams::run_control::{RunControl, RunResult, UnknownChannel};
use gateway::streams::{StreamRecord, StreamRegistry};
use gateway::workflows::folder::{self, Workflow, WorkflowList};
use gateway::workflows::launch::Program;
use generate::error::{ApiError, ErrorKind};
use generate::generation_options::GenerationOptions;
use generate::request::{GenerateRequest, GenerationParams, Prompt, StreamOptions};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use wire::control_request::{ChannelWriteRequest, RunRequest};
use wire::fields::Fields;
use wire::framing::Framing;
use wire::protocol::Protocol;

/// Default of `max_tokens`, if the context is not smaller.
const TOKENS_MAX: usize = 4096;

pub(crate) async fn list_workflows(
    State(config): State<Arc<LiveConfig>>,
) -> Result<Json<WorkflowList>, Rejected> {
    let listed = read_folder(&config, |folder| {
        Ok(folder::list_documents(folder.as_deref()))
    });
    Ok(Json(listed.await?))
}

pub(crate) async fn show_workflow(
    State(config): State<Arc<LiveConfig>>,
    Path(name): Path<String>,
) -> Result<Json<Workflow>, Rejected> {
    let described = read_folder(&config, move |folder| {
        let program = folder::load_program(folder.as_deref(), &name)?;
        Ok(folder::describe_document(&name, &program))
    });
    Ok(Json(described.await?))
}

pub(crate) async fn run_workflow(
    State(responder): State<StreamResponder>,
    State(config): State<Arc<LiveConfig>>,
    State(offload): State<Arc<Offload>>,
    Path(name): Path<String>,
    mut request: GenerationRequest,
) -> Result<Response, Rejected> {
    let gateway: &Gateway = responder.gateway();
    let program = read_folder(&config, move |folder| {
        folder::load_program(folder.as_deref(), &name)
    })
    .await?;
    request.delivery.resumable = Some(Resumable::Yes);
    let request = request.in_protocol(Protocol::Job, Framing::Sse)?;
    let lease = model_lookup::find_lease(&gateway.models, Protocol::Job, &request.body).await?;
    let body_bytes = request.body.text().len();
    let parse = move || parse_run(request, lease, program);
    let parsed = offload.run_work(body_bytes, parse).await?;
    Ok(responder.respond(parsed.open(gateway)?).await)
}

fn parse_run(
    stream_request: StreamRequest,
    lease: ModelLease,
    program: Arc<workflow::Program>,
) -> Result<ParsedRequest, ApiError> {
    let context_max = lease.serving.model.handle.context_max;
    let body = &stream_request.body;
    let request = RunRequest::parse(body.fields(), context_max)?;
    let tokens_max = request
        .max_tokens
        .unwrap_or_else(|| context_max.min(TOKENS_MAX));
    Ok(ParsedRequest {
        lease,
        ask: run_request(
            body.text(),
            tokens_max,
            StreamOptions {
                stream: request.stream,
                ignored_fields: request.ignored_fields,
                ..StreamOptions::default()
            },
        ),
        body_bytes: body.text().len(),
        request: stream_request,
        response_id: None,
        program: Some(Program {
            program,
            given: request.kwargs,
            tokens_max,
        }),
        stored_request: None,
        webhook_place: None,
        images: None,
        key: None,
    })
}

/// The run as a generate request, for admission and for the stream metadata.
fn run_request(body: &str, tokens_max: usize, stream_options: StreamOptions) -> GenerateRequest {
    GenerateRequest {
        images: Vec::new(),
        prompts: vec![Prompt::Text(body.to_owned())],
        n: 1,
        params: GenerationParams {
            max_tokens: Some(tokens_max),
            ..GenerationOptions::default().resolve()
        },
        stream_options,
    }
}

/// Reads the workflow folder on a thread that may block.
async fn read_folder<T: Send + 'static>(
    config: &LiveConfig,
    read: impl FnOnce(Option<PathBuf>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let folder = config.now().workflows.clone();
    let read = tokio::task::spawn_blocking(move || read(folder));
    let failed = |_| ApiError::ours("internal_error", "the workflows could not be read");
    read.await.map_err(failed)?
}

pub(crate) async fn show_run(
    State(streams): State<Arc<StreamRegistry>>,
    Authenticated(caller): Authenticated,
    Path(id): Path<String>,
) -> Result<Response, Rejected> {
    let (record, running) = find_run(&streams, &caller, &id)?;
    let description = RunDescription {
        object: "workflow.run",
        id: record.id().to_string(),
        model: &record.meta().model,
        state: record.state().name(),
        outcome: running.run_result(),
    };
    Ok(Json(description).into_response())
}

/// A workflow run.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "WorkflowRun")]
pub(crate) struct RunDescription<'a> {
    object: &'static str,
    id: String,
    model: &'a str,
    state: &'static str,
    /// Result of the run; absent before the end of the run.
    #[serde(flatten)]
    outcome: Option<&'a RunResult>,
}

pub(crate) async fn write_channel(
    State(streams): State<Arc<StreamRegistry>>,
    Authenticated(caller): Authenticated,
    Path((id, channel)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<Json<ChannelWrite>, Rejected> {
    let (_, running) = find_run(&streams, &caller, &id)?;
    let request = ChannelWriteRequest::parse(Fields::parse(&body)?)?;
    let written = running
        .write_channel(&channel, &request.ids)
        .map_err(no_channel)?;
    let closes = request.close && written == request.ids.len();
    if closes {
        running.close_channel(&channel).map_err(no_channel)?;
    }
    Ok(Json(ChannelWrite {
        object: "workflow.channel",
        written,
        closed: closes,
    }))
}

/// Result of a write to a channel.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ChannelWrite {
    object: &'static str,
    /// Number of token ids that were written; the channel has no capacity for the others.
    written: usize,
    closed: bool,
}

fn no_channel(_: UnknownChannel) -> ApiError {
    let message = "the run does not read from a channel of this name now";
    ApiError::caller(ErrorKind::Conflict, "no_channel", message)
}

fn find_run(
    streams: &StreamRegistry,
    caller: &Caller,
    id: &str,
) -> Result<(Arc<StreamRecord>, Arc<RunControl>), ApiError> {
    let found = streams.find_stream(id, caller)?;
    let record = found.payload;
    if let Some(error) = record.rejection() {
        return Err(error.clone());
    }
    let running = record.program().cloned();
    let running = running.ok_or_else(|| {
        let message = "this stream is not a workflow run, or has not started";
        ApiError::caller(ErrorKind::NotFound, "run_not_found", message)
    })?;
    Ok((record, running))
}
