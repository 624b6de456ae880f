//! Downloading a model (`/api/pull`), with lines that report the progress.

use crate::gateway::served::{Library, ModelRegistry, PullNews};
use crate::routes::ollama_errors::library_error;
use generate::error::ApiError;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Downloads at one time.
pub(crate) const PULLS_MAX: usize = 2;
/// Lines that wait for the client. Progress lines that find the channel full are dropped; later ones replace them.
const LINES_MAX: usize = 16;
/// Most progress lines of one file.
const TOLD_PARTS: u64 = 200;
/// Digits of a checksum in a status text.
const SHOWN_DIGITS: usize = 12;

/// A line for the client, or the error that ended the download.
type Line = Result<Value, ApiError>;

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
    pub(crate) fn begin(
        &self,
        models: Arc<ModelRegistry>,
        library: Arc<dyn Library>,
        name: String,
        retry_after: Duration,
    ) -> Result<Receiver<Line>, ApiError> {
        let busy = || {
            let words = format!("{PULLS_MAX} pulls are going on; one more has to wait");
            ApiError::capacity("overloaded", words, retry_after)
        };
        let slot = Arc::clone(&self.0)
            .try_acquire_owned()
            .map_err(|_| busy())?;
        let (lines, received) = mpsc::channel(LINES_MAX);
        let thread = std::thread::Builder::new().name("pull".to_owned());
        let started = thread.spawn(move || run(&models, &*library, &name, &lines, slot));
        started.map_err(|why| {
            tracing::error!(%why, "cannot start a thread to download a model");
            let words = "the system cannot start a thread to download the model";
            ApiError::capacity("overloaded", words, retry_after)
        })?;
        Ok(received)
    }
}

fn run(
    models: &ModelRegistry,
    library: &dyn Library,
    name: &str,
    lines: &Sender<Line>,
    slot: OwnedSemaphorePermit,
) {
    let mut told = 0;
    let pulled = library.pull(name, &mut |news| tell(news, &mut told, lines));
    models.forget_names();
    drop(slot);
    let last = match pulled {
        Ok(()) => Ok(json!({"status": "success"})),
        Err(why) => {
            tracing::warn!("a download failed: {why}");
            Err(library_error(&why))
        }
    };
    // Fails if the client has disconnected.
    let _ = lines.blocking_send(last);
}

/// Sends a line: phases wait for the client, progress does not.
fn tell(news: PullNews<'_>, told: &mut u64, lines: &Sender<Line>) -> ControlFlow<()> {
    if lines.is_closed() {
        return ControlFlow::Break(());
    }
    let line = match news {
        PullNews::Listing => json!({"status": "pulling manifest"}),
        PullNews::Fetching {
            digest,
            total,
            completed,
        } => {
            let part = completed.saturating_mul(TOLD_PARTS) / total.max(1) + 1;
            if part == *told {
                return ControlFlow::Continue(());
            }
            *told = part;
            let digits = digest.split_once(':').map_or(digest, |(_, digits)| digits);
            let shown = &digits[..digits.len().min(SHOWN_DIGITS)];
            let line = json!({
                "status": format!("pulling {shown}"), "digest": digest,
                "total": total, "completed": completed,
            });
            if completed < total {
                let _ = lines.try_send(Ok(line));
                return ControlFlow::Continue(());
            }
            line
        }
        PullNews::Verifying => json!({"status": "verifying sha256 digest"}),
        PullNews::Naming => json!({"status": "writing manifest"}),
    };
    match lines.blocking_send(Ok(line)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}
