//! `/api/pull`, `/api/create`, `/api/copy`, `/api/delete`: changes of the model store.

use crate::config::live_config::LiveConfig;
use crate::request::extract::{JsonBody, RateLimited};
use crate::response::{Rejected, stream_response};
use crate::routes::ollama::{self, library_error, not_supported};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gateway::models::{Library, LibraryError, ModelKeepAlive, ModelRegistry, PullNews};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::fields::Fields;
use wire::framing::Framing;
use wire::ollama::response_line::ErrorLine;
use wire::ollama::store_request;

pub(crate) async fn pull_model(
    State(served): State<Arc<ModelRegistry>>,
    State(slots): State<PullSlots>,
    State(config): State<Arc<LiveConfig>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let request = store_request::parse_pull(Fields::parse(&body)?)?;
    let library = Arc::clone(model_store(&served, "pulling models")?);
    let retry_after = config.now().retry_after;
    let mut lines = slots.begin_pull(served, library, request.model, retry_after)?;
    if request.is_streamed {
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
    let request = store_request::parse_create(Fields::parse(&body)?)?;
    let is_streamed = request.is_streamed;
    change_store(&served, move || {
        library.make(&request.model, request.derived)
    })
    .await?;
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

pub(crate) async fn copy_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let request = store_request::parse_copy(Fields::parse(&body)?)?;
    let library = Arc::clone(model_store(&served, "copying models")?);
    change_store(&served, move || {
        library.copy(&request.source, &request.destination)
    })
    .await?;
    Ok(StatusCode::OK.into_response())
}

/// Removes a model from the store. A loaded model is unloaded when its last generation has ended.
pub(crate) async fn delete_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let name = store_request::parse_delete(Fields::parse(&body)?)?;
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

fn model_store<'a>(
    served: &'a ModelRegistry,
    what: &str,
) -> Result<&'a Arc<dyn Library>, ApiError> {
    let library = served.library();
    library.ok_or_else(|| ollama::not_supported(what, ollama::MODELS))
}

fn json_line(line: &impl Serialize) -> Bytes {
    let mut line = wire::json::to_vec(line);
    wire::json::raw(&mut line, "\n");
    line.freeze()
}

/// Downloads at one time.
pub(crate) const PULLS_MAX: usize = 2;
/// Lines that wait for the client. Progress lines that find the channel full are dropped; later ones replace them.
const LINES_MAX: usize = 16;
/// Most progress lines of one file.
const PROGRESS_LINES_MAX: u64 = 200;
/// Digits of a checksum in a status text.
const SHOWN_DIGITS: usize = 12;

/// A line for the client, or the error that ended the download.
type PullLine = Result<OllamaStatus, ApiError>;

/// Progress or result of an operation on a model.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct OllamaStatus {
    status: String,
    /// Digest of the file that is downloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// Size of the file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    /// Number of bytes downloaded so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<u64>,
}

impl OllamaStatus {
    /// A phase of an operation.
    pub(crate) fn new(status: &str) -> Self {
        Self {
            status: status.to_owned(),
            digest: None,
            total: None,
            completed: None,
        }
    }
}

/// Slots for downloads, shared by all requests.
#[derive(Clone)]
pub(crate) struct PullSlots(Arc<Semaphore>);

impl Default for PullSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PULLS_MAX)))
    }
}

impl PullSlots {
    /// Begins a download on a separate thread. The download continues while the receiver exists.
    pub(crate) fn begin_pull(
        &self,
        models: Arc<ModelRegistry>,
        library: Arc<dyn Library>,
        name: String,
        retry_after: Duration,
    ) -> Result<Receiver<PullLine>, ApiError> {
        let busy = || {
            let message = format!("{PULLS_MAX} models are being downloaded; retry later");
            ApiError::capacity("overloaded", message, retry_after)
        };
        let slot = Arc::clone(&self.0)
            .try_acquire_owned()
            .map_err(|_| busy())?;
        let (lines, received) = mpsc::channel(LINES_MAX);
        let thread = std::thread::Builder::new().name("pull".to_owned());
        let started = thread.spawn(move || run_pull(&models, &*library, &name, &lines, slot));
        started.map_err(|why| {
            tracing::error!(%why, "cannot start a thread to download a model");
            let message = "the system cannot start a thread to download the model";
            ApiError::capacity("overloaded", message, retry_after)
        })?;
        Ok(received)
    }
}

fn run_pull(
    models: &ModelRegistry,
    library: &dyn Library,
    name: &str,
    lines: &Sender<PullLine>,
    slot: OwnedSemaphorePermit,
) {
    let mut reported = 0;
    let pulled = library.pull(name, &mut |news| {
        report_progress(news, &mut reported, lines)
    });
    models.forget_names();
    drop(slot);
    let last = match pulled {
        Ok(()) => Ok(OllamaStatus::new("success")),
        Err(why) => {
            tracing::warn!("a download failed: {why}");
            Err(library_error(&why))
        }
    };
    // Fails if the client has disconnected.
    let _ = lines.blocking_send(last);
}

/// Sends a line: phases wait for the client, progress does not.
fn report_progress(
    news: PullNews<'_>,
    reported: &mut u64,
    lines: &Sender<PullLine>,
) -> ControlFlow<()> {
    if lines.is_closed() {
        return ControlFlow::Break(());
    }
    let line = match news {
        PullNews::Listing => OllamaStatus::new("pulling manifest"),
        PullNews::Fetching {
            digest,
            total,
            completed,
        } => {
            let part = completed.saturating_mul(PROGRESS_LINES_MAX) / total.max(1) + 1;
            if part == *reported {
                return ControlFlow::Continue(());
            }
            *reported = part;
            let digits = digest.split_once(':').map_or(digest, |(_, digits)| digits);
            let shown = &digits[..digits.len().min(SHOWN_DIGITS)];
            let line = OllamaStatus {
                status: format!("pulling {shown}"),
                digest: Some(digest.to_owned()),
                total: Some(total),
                completed: Some(completed),
            };
            if completed < total {
                let _ = lines.try_send(Ok(line));
                return ControlFlow::Continue(());
            }
            line
        }
        PullNews::Verifying => OllamaStatus::new("verifying sha256 digest"),
        PullNews::Naming => OllamaStatus::new("writing manifest"),
    };
    match lines.blocking_send(Ok(line)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

const BLOBS: &str = "pull the model, or put its file into a directory of models";
const PUSH: &str = "this server does not upload models";

/// `POST /api/push`.
pub(crate) async fn push_model() -> Rejected {
    not_supported("pushing models", PUSH).into()
}

/// `/api/blobs/{digest}`, with any method.
pub(crate) async fn store_blob() -> Rejected {
    not_supported("storing blobs", BLOBS).into()
}
