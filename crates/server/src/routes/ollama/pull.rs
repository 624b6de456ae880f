//! Downloading a model (`/api/pull`), with lines that report the progress.

use crate::routes::ollama::library_error;
use gateway::models::{Library, ModelRegistry, PullNews};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Downloads at one time.
const PULLS_MAX: usize = 2;
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
