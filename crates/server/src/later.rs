//! A streamed answer whose model is being loaded: its head is out, and its body says how far that is until
//! the answer's own begins.

use crate::app::App;
use crate::arrival::Arrival;
use crate::gateway::served::{State, Wanted};
use crate::gateway::streams::Answers;
use crate::wire::clock;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::json;
use crate::wire::native::rfc3339;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Bytes of a refusal that are repeated.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// An answer that begins when its model is there.
pub(crate) fn answer(app: &Arc<App>, arrival: Arrival, wanted: Wanted) -> Response {
    let (format, framing) = (arrival.format, arrival.framing);
    let later = Later {
        format,
        framing,
        model: Arc::clone(&wanted.named.name),
        states: wanted.named.slot.watch(),
        told: None,
        keep_alive: app.config.now().keep_alive,
        at: At::Waiting(Box::pin(begun(Arc::clone(app), arrival, wanted))),
    };
    framing.carried(Body::from_stream(stream::unfold(
        later,
        |mut later| async move {
            let frame = later.next().await?;
            Some((Ok::<_, Infallible>(frame), later))
        },
    )))
}

/// The answer itself, or what it is refused for in the format's words.
async fn begun(app: Arc<App>, arrival: Arrival, wanted: Wanted) -> Response {
    let format = arrival.format;
    let opened = match wanted.held().await {
        Ok(held) => arrival.open(&app, Some(held)),
        Err(error) => Err(error),
    };
    match opened {
        Ok(opened) => app.responder.respond(opened).await,
        Err(error) => {
            app.metrics.rejected(error.code);
            format.refusal(&error)
        }
    }
}

struct Later {
    format: Format,
    framing: Framing,
    model: Arc<str>,
    states: watch::Receiver<State>,
    /// What was told last.
    told: Option<(&'static str, u64)>,
    keep_alive: Duration,
    at: At,
}

enum At {
    Waiting(Pin<Box<dyn Future<Output = Response> + Send>>),
    /// The answer's own body, and who cuts it when it has ended and nobody reads it.
    Passing(Body, Arc<Notify>),
    Over,
}

/// What woke a wait.
enum Woken {
    Begun(Response),
    News,
}

impl Later {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match &mut self.at {
                At::Over => return None,
                At::Passing(body, cut) => {
                    let frame = tokio::select! {
                        frame = body.frame() => frame,
                        () = cut.notified() => None,
                    };
                    return frame?.ok()?.into_data().ok();
                }
                At::Waiting(begun) => {
                    if let Some(frame) =
                        Self::news(&self.states, &mut self.told, self.framing, || {
                            (self.format, Arc::clone(&self.model))
                        })
                    {
                        return Some(frame);
                    }
                    let woken = tokio::select! {
                        biased;
                        response = begun => Woken::Begun(response),
                        _ = self.states.changed() => Woken::News,
                        // Nothing new is told again: it is the sign of life.
                        () = tokio::time::sleep(self.keep_alive) => {
                            self.told = None;
                            Woken::News
                        }
                    };
                    if let Woken::Begun(response) = woken {
                        return self.begin(response).await;
                    }
                }
            }
        }
    }

    /// What was not told yet of where the model is.
    fn news(
        states: &watch::Receiver<State>,
        told: &mut Option<(&'static str, u64)>,
        framing: Framing,
        asked: impl FnOnce() -> (Format, Arc<str>),
    ) -> Option<Bytes> {
        let now = match &*states.borrow() {
            State::Loading { progress, .. } => ("loading", progress.percent()),
            State::Queued { .. } => ("queued", 0),
            _ => return None,
        };
        if *told == Some(now) {
            return None;
        }
        *told = Some(now);
        let (format, model) = asked();
        let mut out = BytesMut::new();
        match framing {
            Framing::Events => json::raw(&mut out, &format!(": {} {} %\n\n", now.0, now.1)),
            Framing::Lines => line(format, &model, now, &mut out),
        }
        Some(out.freeze())
    }

    /// The first frame of the answer's own.
    async fn begin(&mut self, mut response: Response) -> Option<Bytes> {
        if response.status() == StatusCode::OK {
            let cut = Arc::new(Notify::new());
            if let Some(answers) = response.extensions_mut().remove::<Answers>() {
                answers.carried_by(&cut);
            }
            self.at = At::Passing(response.into_body(), cut);
            return Box::pin(self.next()).await;
        }
        self.at = At::Over;
        let whole = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect();
        let words = whole.await.ok()?.to_bytes();
        let mut out = BytesMut::new();
        if matches!(self.format, Format::Messages | Format::Responses) {
            json::raw(&mut out, "event: error\n");
        }
        self.framing.begin(&mut out);
        match self.format {
            Format::Responses => out.extend_from_slice(typed(&words).as_bytes()),
            _ => out.extend_from_slice(&words),
        }
        self.framing.end(&mut out);
        Some(out.freeze())
    }
}

/// A refusal as an event of the Responses API: the first and last there is.
fn typed(words: &[u8]) -> String {
    let told: Value = serde_json::from_slice(words).unwrap_or_default();
    let error = &told["error"];
    let event = json!({
        "type": "error", "sequence_number": 0, "code": error["code"], "message": error["message"],
        "param": error["param"],
    });
    event.to_string()
}

/// A line that says nothing but where the model is.
fn line(format: Format, model: &str, (state, percent): (&str, u64), out: &mut BytesMut) {
    json::raw(out, "{\"model\":");
    json::string(out, model);
    json::raw(out, ",\"created_at\":\"");
    rfc3339::write_nanos(clock::wall(clock::now()), out);
    json::raw(
        out,
        match format {
            Format::OllamaChat => "\",\"message\":{\"role\":\"assistant\",\"content\":\"\"}",
            _ => "\",\"response\":\"\"",
        },
    );
    json::raw(out, ",\"done\":false,\"state\":\"");
    json::raw(out, state);
    json::raw(out, "\",\"percent\":");
    json::integer(out, percent);
    json::raw(out, "}\n");
}
