//! Deferred responses: the head is sent while the model is loaded, and the body reports the progress of loading until
//! the generation begins.

use crate::gateway::served::{State, Wanted};
use crate::gateway::streams::Answers;
use crate::incoming_request::IncomingRequest;
use crate::stream_response::StreamResponder;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::native::rfc3339;
use crate::wire::{clock, json};
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

/// Longest error response that is written into the body.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The response of a request whose model is being loaded.
pub(crate) fn respond(
    responder: &StreamResponder,
    request: IncomingRequest,
    wanted: Wanted,
) -> Response {
    let (format, framing) = (request.format, request.framing);
    let deferred = DeferredBody {
        format,
        framing,
        model: Arc::clone(&wanted.named.name),
        states: wanted.named.slot.watch(),
        reported: None,
        keep_alive: responder.keep_alive(),
        at: At::Waiting(Box::pin(started(responder.clone(), request, wanted))),
    };
    framing.carried(Body::from_stream(stream::unfold(
        deferred,
        |mut deferred| async move {
            let frame = deferred.next().await?;
            Some((Ok::<_, Infallible>(frame), deferred))
        },
    )))
}

/// The generation's own response, or an error response.
async fn started(responder: StreamResponder, request: IncomingRequest, wanted: Wanted) -> Response {
    let format = request.format;
    let opened = match wanted.held().await {
        Ok(held) => request.open(responder.gateway(), Some(held)),
        Err(error) => Err(error),
    };
    match opened {
        Ok(opened) => responder.respond(opened).await,
        Err(error) => {
            responder.count_rejection(&error);
            format.refusal(&error)
        }
    }
}

struct DeferredBody {
    format: Format,
    framing: Framing,
    model: Arc<str>,
    states: watch::Receiver<State>,
    /// The progress reported last.
    reported: Option<(&'static str, u64)>,
    keep_alive: Duration,
    at: At,
}

enum At {
    Waiting(Pin<Box<dyn Future<Output = Response> + Send>>),
    /// The generation's own body, and the signal that cuts it if it has ended and is not read.
    Passing(Body, Arc<Notify>),
    Over,
}

/// The event that ended a wait.
enum Woken {
    Begun(Response),
    News,
}

impl DeferredBody {
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
                        Self::news(&self.states, &mut self.reported, self.framing, || {
                            (self.format, Arc::clone(&self.model))
                        })
                    {
                        return Some(frame);
                    }
                    let woken = tokio::select! {
                        biased;
                        response = begun => Woken::Begun(response),
                        _ = self.states.changed() => Woken::News,
                        // Unchanged progress is reported again as a keep-alive.
                        () = tokio::time::sleep(self.keep_alive) => {
                            self.reported = None;
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

    /// A frame with the progress of loading, if the progress has changed.
    fn news(
        states: &watch::Receiver<State>,
        reported: &mut Option<(&'static str, u64)>,
        framing: Framing,
        asked: impl FnOnce() -> (Format, Arc<str>),
    ) -> Option<Bytes> {
        let now = match &*states.borrow() {
            State::Loading { progress, .. } => ("loading", progress.percent()),
            State::Queued { .. } => ("queued", 0),
            _ => return None,
        };
        if *reported == Some(now) {
            return None;
        }
        *reported = Some(now);
        let (format, model) = asked();
        let mut out = BytesMut::new();
        match framing {
            Framing::Events => json::raw(&mut out, &format!(": {} {} %\n\n", now.0, now.1)),
            Framing::Lines => line(format, &model, now, &mut out),
        }
        Some(out.freeze())
    }

    /// The first frame of the generation's own body.
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

/// An error as the only event of a stream of the Responses API.
fn typed(words: &[u8]) -> String {
    let told: Value = serde_json::from_slice(words).unwrap_or_default();
    let error = &told["error"];
    let event = json!({
        "type": "error", "sequence_number": 0, "code": error["code"], "message": error["message"],
        "param": error["param"],
    });
    event.to_string()
}

/// An Ollama line that reports only the progress of loading.
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
