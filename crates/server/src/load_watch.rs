//! `/v1/loading/progress`: how far loading is, until it is over.
//!
//! Telemetry: who reads slowly gets the newest; there is no queue to be full.

use crate::app::App;
use crate::gateway::lifecycle::Stage;
use crate::gateway::served::State;
use axum::body::{Body, Bytes};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch;

/// As it goes on: one event now, one for each news, the last when it is ready, has failed or the server
/// leaves; then `[DONE]`.
pub(crate) fn body(app: Arc<App>) -> Body {
    let progress = Progress {
        model: app.models.first().watch(),
        draining: app.lifecycle.draining(),
        app,
        told: None,
    };
    Body::from_stream(stream::unfold(progress, |mut progress| async move {
        let frame = progress.next().await?;
        Some((Ok::<_, Infallible>(frame), progress))
    }))
}

/// As of now.
pub(crate) fn told(app: &App) -> Value {
    let (slot, stage) = (app.models.first(), app.lifecycle.stage());
    let mut told = json!({ "type": "progress", "model": slot.id, "state": stage.name() });
    match slot.state() {
        State::Ready(_) => told["percent"] = json!(100),
        State::Loading { progress, .. } => {
            told["percent"] = json!(progress.percent());
            told["progress"] = json!(progress);
        }
        State::Unloaded | State::Queued { .. } | State::Failed | State::TooLarge { .. } => {}
    }
    told
}

struct Progress {
    app: Arc<App>,
    model: watch::Receiver<State>,
    draining: watch::Receiver<bool>,
    /// What was told last. The end is told when that was the last event.
    told: Option<Stage>,
}

impl Progress {
    async fn next(&mut self) -> Option<Bytes> {
        match self.told {
            None => {}
            Some(Stage::Loading | Stage::Unloaded) => self.news().await,
            Some(_) => return None,
        }
        // From here on a change is news.
        self.model.mark_unchanged();
        let stage = self.app.lifecycle.stage();
        let event = told(&self.app);
        self.told = Some(stage);
        let done = match stage {
            Stage::Loading | Stage::Unloaded => "",
            Stage::Ready | Stage::Failed | Stage::Draining => "data: [DONE]\n\n",
        };
        Some(Bytes::from(format!("data: {event}\n\n{done}")))
    }

    /// Ready when there is something to tell.
    async fn news(&mut self) {
        let keep_alive = self.app.config.now().keep_alive;
        tokio::select! {
            // The sender lives as long as the application.
            _ = self.model.changed() => {}
            _ = self.draining.wait_for(|&draining| draining) => {}
            // Nothing new is told again: it is the sign of life.
            () = tokio::time::sleep(keep_alive) => {}
        }
    }
}
