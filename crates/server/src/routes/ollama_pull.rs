//! A pull, told as it goes.

use crate::app::App;
use crate::gateway::served::{Library, PullNews};
use crate::routes::ollama_manage::refused;
use generate::error::ApiError;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pulls at one time.
pub(crate) const PULLS_MAX: usize = 2;
/// Lines that wait for the client; what is far from its end is told again, so that most can be left out.
const LINES_MAX: usize = 16;
/// A file's progress is told so often, at most.
const TOLD_PARTS: u64 = 200;
/// Digits of a sum that people are told.
const SHOWN_DIGITS: usize = 12;

/// A line for the client, or the last: why it ended.
type Line = Result<Value, ApiError>;

/// Begins it on a thread of its own. It goes on as long as somebody reads what it tells.
///
/// # Errors
/// As many as may be are going on, or the system has no thread.
pub(crate) fn begin(
    app: &Arc<App>,
    library: Arc<dyn Library>,
    name: String,
) -> Result<Receiver<Line>, ApiError> {
    let retry_after = app.config.now().retry_after;
    let busy = || {
        let words = format!("{PULLS_MAX} pulls are going on; one more has to wait");
        ApiError::capacity("overloaded", words, retry_after)
    };
    let turn = Arc::clone(&app.pulls)
        .try_acquire_owned()
        .map_err(|_| busy())?;
    let (lines, told) = mpsc::channel(LINES_MAX);
    let app = Arc::clone(app);
    let thread = std::thread::Builder::new().name("pull".to_owned());
    let started = thread.spawn(move || run(&app, &*library, &name, &lines, turn));
    started.map_err(|why| {
        tracing::error!(%why, "cannot start a thread to download a model");
        let words = "the system cannot start a thread to download the model";
        ApiError::capacity("overloaded", words, retry_after)
    })?;
    Ok(told)
}

/// As many as may go on.
pub(crate) fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(PULLS_MAX))
}

fn run(
    app: &App,
    library: &dyn Library,
    name: &str,
    lines: &Sender<Line>,
    turn: OwnedSemaphorePermit,
) {
    let mut told = 0;
    let pulled = library.pull(name, &mut |news| tell(news, &mut told, lines));
    app.models.forget_names();
    drop(turn);
    let last = match pulled {
        Ok(()) => Ok(json!({"status": "success"})),
        Err(why) => {
            tracing::warn!("a download failed: {why}");
            Err(refused(&why))
        }
    };
    // Nobody reads it any more.
    let _ = lines.blocking_send(last);
}

/// Phases wait for the client, progress does not.
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
