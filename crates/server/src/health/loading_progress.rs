//! `/v1/loading/progress`: progress of loading the default model, until loading has ended.
//!
//! A slow reader gets the newest progress; nothing is queued.

use axum::body::{Body, Bytes};
use futures_util::stream;
use gateway::lifecycle::{Lifecycle, ServerStage};
use gateway::models::{LoadProgress, ModelState};
use schemars::JsonSchema;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// One event now and one for each change. The last event reports a model that is ready, a failed load or the
/// shutdown; `[DONE]` follows.
pub(crate) fn progress_body(lifecycle: Arc<Lifecycle>, keep_alive: Duration) -> Body {
    let progress = ProgressStream {
        model: lifecycle.model_registry().first_entry().watch_state(),
        draining: lifecycle.drain_watch(),
        lifecycle,
        keep_alive,
        reported: None,
    };
    Body::from_stream(stream::unfold(progress, |mut progress| async move {
        let frame = progress.next_event().await?;
        Some((Ok::<_, Infallible>(frame), progress))
    }))
}

/// The progress now.
pub(crate) fn progress_report(lifecycle: &Lifecycle) -> LoadingEvent {
    let (entry, stage) = (lifecycle.model_registry().first_entry(), lifecycle.stage());
    let mut report = LoadingEvent {
        r#type: "progress",
        model: entry.id().to_owned(),
        state: stage.name(),
        percent: None,
        progress: None,
    };
    match entry.state() {
        ModelState::Ready(_) => report.percent = Some(100),
        ModelState::Loading { progress, .. } => {
            report.percent = Some(progress.percent());
            report.progress = Some(progress);
        }
        ModelState::Unloaded
        | ModelState::Queued { .. }
        | ModelState::Failed
        | ModelState::NoEngine(_)
        | ModelState::TooLarge { .. } => {}
    }
    report
}

/// Progress of loading the default model.
#[derive(JsonSchema, Serialize)]
pub(crate) struct LoadingEvent {
    r#type: &'static str,
    model: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<LoadProgress>,
}

struct ProgressStream {
    lifecycle: Arc<Lifecycle>,
    keep_alive: Duration,
    model: watch::Receiver<ModelState>,
    draining: watch::Receiver<bool>,
    /// The stage reported last. A stage other than loading ends the stream.
    reported: Option<ServerStage>,
}

impl ProgressStream {
    async fn next_event(&mut self) -> Option<Bytes> {
        match self.reported {
            None => {}
            Some(ServerStage::Loading | ServerStage::Unloaded) => self.wait_for_change().await,
            Some(_) => return None,
        }
        // Changes from here on are reported by the next event.
        self.model.mark_unchanged();
        let stage = self.lifecycle.stage();
        let event = progress_report(&self.lifecycle);
        self.reported = Some(stage);
        let done = match stage {
            ServerStage::Loading | ServerStage::Unloaded => "",
            ServerStage::Ready
            | ServerStage::Unavailable
            | ServerStage::Failed
            | ServerStage::Draining => "data: [DONE]\n\n",
        };
        Some(Bytes::from(format!(
            "data: {}\n\n{done}",
            serde_json::to_string(&event).unwrap_or_default()
        )))
    }

    /// Waits for a change, or for the time of a keep-alive.
    async fn wait_for_change(&mut self) {
        tokio::select! {
            // The sender lives as long as `lifecycle`.
            _ = self.model.changed() => {}
            _ = self.draining.wait_for(|&draining| draining) => {}
            // Unchanged progress is reported again as a keep-alive.
            () = tokio::time::sleep(self.keep_alive) => {}
        }
    }
}
