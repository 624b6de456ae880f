//! Deferred responses: the response head is sent while the model is loaded, and the body reports the progress of
//! loading until the generation starts.

use crate::response::stream_response::{self, StreamResponder};
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use gateway::models::{ModelState, PendingLoad};
use gateway::open::StreamRequest;
use gateway::streams::ResponseStream;
use generate::error::ApiError;
use generate::output::event::Event;
use generate::stream_source::{StreamMeta, StreamSource};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use wire::clock;
use wire::encoder::FrameWriter;
use wire::protocol::{EncoderSettings, Encoding};

/// The response of a request whose model is being loaded.
pub(crate) fn respond(
    responder: &StreamResponder,
    request: StreamRequest,
    pending: PendingLoad,
) -> Response {
    let (protocol, framing) = (request.protocol, request.framing);
    let meta = StreamMeta::unopened(&pending.named.name, clock::now());
    let source = Arc::new(StreamSource::new(meta));
    let encoding = protocol.encoding(&source, framing, EncoderSettings::default());
    let header = encoding.header;
    let deferred = DeferredBody {
        encoding,
        states: pending.named.entry.watch_state(),
        reported: None,
        keep_alive: responder.keep_alive(),
        state: DeferredState::Waiting(Box::pin(start_generation(
            responder.clone(),
            request,
            pending,
        ))),
    };
    let frames = stream::unfold(deferred, |mut deferred| async move {
        let frame = deferred.next_frame().await?;
        Some((Ok::<_, Infallible>(frame), deferred))
    });
    stream_response::framed_response(framing, header, Body::from_stream(frames))
}

/// The response of the generation, after the model is loaded.
async fn start_generation(
    responder: StreamResponder,
    request: StreamRequest,
    pending: PendingLoad,
) -> Result<Response, ApiError> {
    let opened = match pending.lease().await {
        Ok(lease) => Box::pin(request.open(responder.gateway(), lease)).await,
        Err(error) => Err(error),
    };
    let opened = opened.inspect_err(|error| responder.count_rejection(error));
    responder.try_respond(opened?).await
}

struct DeferredBody {
    encoding: Encoding,
    states: watch::Receiver<ModelState>,
    /// State and percent of the last report.
    reported: Option<(&'static str, u64)>,
    keep_alive: Duration,
    state: DeferredState,
}

enum DeferredState {
    Waiting(Pin<Box<dyn Future<Output = Result<Response, ApiError>> + Send>>),
    /// The body of the stream, and the signal that closes an ended body that the client does not read.
    Passing(Body, Arc<Notify>),
    Over,
}

/// The end of a wait.
enum WaitEnd {
    Started(Result<Response, ApiError>),
    StateChanged,
}

impl DeferredBody {
    async fn next_frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.report_state() {
                return Some(frame);
            }
            match &mut self.state {
                DeferredState::Over => return None,
                DeferredState::Passing(body, cut) => {
                    let frame = tokio::select! {
                        frame = body.frame() => frame,
                        () = cut.notified() => None,
                    };
                    return frame?.ok()?.into_data().ok();
                }
                DeferredState::Waiting(start) => {
                    let woken = tokio::select! {
                        biased;
                        response = start => WaitEnd::Started(response),
                        _ = self.states.changed() => WaitEnd::StateChanged,
                        // The last report is sent again to keep the connection open.
                        () = tokio::time::sleep(self.keep_alive) => {
                            self.reported = None;
                            WaitEnd::StateChanged
                        }
                    };
                    match woken {
                        WaitEnd::StateChanged => {}
                        WaitEnd::Started(Ok(response)) => self.pass_through(response),
                        WaitEnd::Started(Err(error)) => {
                            self.state = DeferredState::Over;
                            return Some(self.encode_frame(&Event::Rejected(&error)));
                        }
                    }
                }
            }
        }
    }

    /// A frame with the state of the model, if the state has changed.
    fn report_state(&mut self) -> Option<Bytes> {
        if !matches!(self.state, DeferredState::Waiting(_)) {
            return None;
        }
        let (state, percent) = match &*self.states.borrow() {
            ModelState::Loading { progress, .. } => ("loading", progress.percent()),
            ModelState::Queued { .. } => ("queued", 0),
            _ => return None,
        };
        if self.reported == Some((state, percent)) {
            return None;
        }
        self.reported = Some((state, percent));
        Some(self.encode_frame(&Event::Loading { state, percent }))
    }

    fn encode_frame(&mut self, event: &Event<'_>) -> Bytes {
        let mut out = BytesMut::new();
        let mut writer = FrameWriter::new(self.encoding.framing, &mut out);
        self.encoding.encoder.encode(event, &mut writer);
        out.freeze()
    }

    /// Continues with the body of the stream.
    fn pass_through(&mut self, mut response: Response) {
        let cut = Arc::new(Notify::new());
        if let Some(answers) = response.extensions_mut().remove::<ResponseStream>() {
            answers.carried_by(&cut);
        }
        self.state = DeferredState::Passing(response.into_body(), cut);
    }
}
