//! HTTP responses of generations: a stream as a streaming or as a non-streaming response.

use crate::config::live_config::LiveConfig;
use crate::connection::StreamedResponse;
use crate::metrics::Metrics;
use crate::request::model_lookup::{self, NamedModel};
use crate::request_line::AnsweredStream;
use crate::response::deferred_response;
use crate::response::stream_body::StreamBody;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use gateway::generation::Generation;
use gateway::handles::Gateway;
use gateway::metrics::GenerationMetrics;
use gateway::models::ModelLookup;
use gateway::open::{OpenedStream, Resumable, StreamRequest};
use gateway::streams::{ResponseStream, StreamRecord, moved_error};
use generate::error::ApiError;
use generate::output::collected::CollectedAnswer;
use generate::output::event::Event;
use generate::output::generation_reader::Turn;
use generate::output::position::Position;
use generate::request::IgnoredFields;
use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::time::Duration;
use text::Tokenizer;
use tokio::time::{Instant, timeout_at};
use wire::cursor::EventIds;
use wire::encoder::{Collected, Encoder};
use wire::field_table;
use wire::framing::Framing;
use wire::protocol::{EncoderSettings, Encoding, ProtocolHeader};

/// The header with the id of a response's stream.
pub(crate) const STREAM_ID: HeaderName = HeaderName::from_static("x-stream-id");

/// Time for which the head of a response waits for the first sign of another server that computes the answer, unless the first
/// keep-alive is due before.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(8);
/// Time between two looks whether that server has begun.
const HEAD_TICK: Duration = Duration::from_millis(100);

/// The header that states whether a resumable stream continues after a restart of the server.
const STREAM_DURABLE: HeaderName = HeaderName::from_static("x-stream-durable");

/// Builds the responses of opened streams.
#[derive(Clone)]
pub(crate) struct StreamResponder {
    gateway: Box<Gateway>,
    config: Arc<LiveConfig>,
    metrics: Arc<Metrics>,
}

impl StreamResponder {
    /// A responder that writes keep-alives as configured, and counts rejections.
    pub(crate) fn new(gateway: Gateway, config: Arc<LiveConfig>, metrics: Arc<Metrics>) -> Self {
        Self {
            gateway: Box::new(gateway),
            config,
            metrics,
        }
    }

    /// The gateway that opens the streams.
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Metrics of generations.
    pub(crate) fn metrics(&self) -> &Arc<GenerationMetrics> {
        &self.metrics.generations
    }

    /// Counts a rejection that is reported after the status was sent.
    pub(crate) fn count_rejection(&self, error: &ApiError) {
        self.metrics.count_rejection(error.code);
    }

    /// Time without an event after which a body writes a keep-alive.
    pub(crate) fn keep_alive(&self) -> Duration {
        self.config.now().keep_alive
    }

    /// Answers a request. If the model must be loaded first, a streamed response reports the progress of loading; the response of
    /// a resumable stream waits, because the response head carries the stream id.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) async fn answer(&self, request: StreamRequest) -> Result<Response, ApiError> {
        let named = NamedModel::of(request.body.fields(), request.protocol);
        let is_deferrable = named.stream && request.delivery.resumable != Some(Resumable::Yes);
        let opened = match named.find(&self.gateway.models).await? {
            ModelLookup::Pending(pending) if is_deferrable => {
                return Ok(deferred_response::respond(self, request, pending));
            }
            found => Box::pin(request.open(&self.gateway, found.lease().await?)).await?,
        };
        Ok(self.respond(opened).await)
    }

    /// Opens the stream of a request, after the model is ready.
    ///
    /// # Errors
    /// All invalid fields at once; a full queue or registry; limits of the key.
    pub(crate) async fn open(&self, request: StreamRequest) -> Result<OpenedStream, ApiError> {
        let models = &self.gateway.models;
        let lease = model_lookup::find_lease(models, request.protocol, &request.body).await?;
        Box::pin(request.open(&self.gateway, lease)).await
    }

    /// The response to the request that opened the stream: events as they arrive, or collected at the end.
    pub(crate) async fn respond(&self, opened: OpenedStream) -> Response {
        let record = Arc::clone(&opened.record);
        let ignored = opened.ignored_fields.clone();
        match self.try_respond(opened).await {
            Ok(response) => response,
            Err(error) => {
                record.wait_written().await;
                let response = record.terms().protocol.error(&error);
                with_stream(response, &record, &ignored)
            }
        }
    }

    /// The response to the request that opened the stream.
    ///
    /// # Errors
    /// The request was rejected, or the generation failed before anything was sent.
    pub(crate) async fn try_respond(&self, opened: OpenedStream) -> Result<Response, ApiError> {
        let record = Arc::clone(&opened.record);
        let ignored = opened.ignored_fields.clone();
        let response = if record.meta().stream_options.stream {
            self.start_streaming(opened).await
        } else {
            non_streaming_response(opened).await
        };
        let response = response?;
        record.wait_written().await;
        Ok(with_stream(response, &record, &ignored))
    }

    /// The body of a response whose head is sent before the request is admitted. A rejection becomes an event of the
    /// body.
    pub(crate) fn deferred_body(&self, opened: OpenedStream, encoding: Encoding) -> StreamBody {
        let images = opened.record.follow_images();
        let (place, started) = (opened.queue_position, opened.start);
        let metrics = Arc::clone(&self.metrics);
        // The HTTP layer counts rejections by status, and the status has been sent.
        let counted = async move {
            let started = started.await;
            started.inspect_err(|error| metrics.count_rejection(error.code))
        };
        let body = StreamBody::waiting(Box::pin(counted), place, encoding, self.keep_alive());
        body.with_images(images)
    }

    async fn start_streaming(&self, opened: OpenedStream) -> Result<Response, ApiError> {
        let record = Arc::clone(&opened.record);
        let terms = record.terms();
        let encoding = stream_encoding(&record);
        let is_remote = opened.ready_model.model.handle.engine.is_remote();
        let is_described = record.describes_images();
        let opened = if is_described {
            Box::pin(self.wait_for_description(opened)).await?
        } else {
            opened
        };
        let is_queued = is_described || opened.queue_position.is_some();
        let body = if is_queued {
            self.deferred_body(opened, encoding)
        } else {
            StreamBody::new(opened.start.await?, encoding, self.keep_alive())
        };
        let mut body = if terms.resumable || terms.detachable {
            let nothing = vec![Position::default(); record.meta().choices];
            body.with_ids(EventIds::new(record.id(), nothing))
        } else {
            body
        };
        if is_remote && !is_queued {
            self.wait_for_sign(&mut body).await?;
        }
        Ok(streaming_response(body))
    }

    /// Waits until a model works on an image of the request, for a limited time: where none can, the response has the status of
    /// the error.
    async fn wait_for_description(&self, opened: OpenedStream) -> Result<OpenedStream, ApiError> {
        let (record, mut start) = (Arc::clone(&opened.record), opened.start);
        let patience = self.keep_alive().min(HEAD_WAIT_MAX);
        let started = tokio::select! {
            biased;
            started = &mut start => Some(started?),
            () = record.description_begun() => None,
            () = tokio::time::sleep(patience) => None,
        };
        let start = match started {
            Some(generation) => Box::pin(ready(Ok(generation))),
            None => start,
        };
        Ok(OpenedStream { start, ..opened })
    }

    /// Waits until another server has begun with the answer, for a limited time: where none can, the response has the status of the
    /// error.
    async fn wait_for_sign(&self, body: &mut StreamBody) -> Result<(), ApiError> {
        let until = Instant::now() + self.keep_alive().min(HEAD_WAIT_MAX);
        while Instant::now() < until && !body.has_started() {
            let tick = until.min(Instant::now() + HEAD_TICK);
            let first = poll_fn(|cx| body.poll_first_event(cx));
            if let Ok(first) = timeout_at(tick, first).await {
                return first;
            }
        }
        Ok(())
    }
}

async fn non_streaming_response(opened: OpenedStream) -> Result<Response, ApiError> {
    let encoder = stream_encoding(&opened.record).encoder;
    let generation = opened.start.await?;
    let tokenizer = &opened.ready_model.model.handle.tokenizer;
    let body = collect_response(generation, encoder, tokenizer).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The encoder of a stream in the wire protocol of its request.
fn stream_encoding(record: &StreamRecord) -> Encoding {
    let terms = record.terms();
    let (protocol, framing) = (terms.protocol, terms.framing);
    let settings = EncoderSettings {
        reasoning_field: terms.reasoning_field,
    };
    protocol.encoding(record.source(), framing, settings)
}

/// A response that the connection sends frame by frame, without the HTTP library.
pub(crate) fn streaming_response(body: StreamBody) -> Response {
    let (framing, header) = (body.framing(), body.header());
    let (body, streamed) = StreamedResponse::new(body);
    let mut response = framed_response(framing, header, Body::new(body));
    response.extensions_mut().insert(streamed);
    response
}

/// A response with a body of frames.
pub(crate) fn framed_response(
    framing: Framing,
    header: Option<ProtocolHeader>,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    let headers = [
        ("content-type", framing.content_type()),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ];
    for (name, value) in headers.into_iter().chain(header) {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Adds the stream id, the ignored fields and the link to the stream to a response.
fn with_stream(
    response: Response,
    record: &Arc<StreamRecord>,
    ignored: &IgnoredFields,
) -> Response {
    let mut response = with_stream_id(response, record);
    field_table::write_ignored(ignored, response.headers_mut());
    let answers = ResponseStream::new(record);
    response.extensions_mut().insert(answers);
    let source = AnsweredStream(Arc::clone(record.source()));
    response.extensions_mut().insert(source);
    response
}

/// Adds the header with the stream id to a response, and for a resumable stream the header of durability.
pub(crate) fn with_stream_id(mut response: Response, record: &StreamRecord) -> Response {
    if let Ok(id) = HeaderValue::try_from(record.id().to_string()) {
        response.headers_mut().insert(STREAM_ID, id);
    }
    if record.terms().resumable {
        let is_durable = if record.is_durable() {
            HeaderValue::from_static("1")
        } else {
            HeaderValue::from_static("0")
        };
        response.headers_mut().insert(STREAM_DURABLE, is_durable);
    }
    response
}

/// Waits for the end of all choices. Dropping the future (the client has disconnected) cancels the generation.
async fn collect_response(
    mut generation: Generation,
    encoder: Box<dyn Encoder>,
    tokenizer: &Tokenizer,
) -> Result<Bytes, ApiError> {
    let mut answers = Vec::new();
    answers.resize_with(generation.choices(), CollectedAnswer::default);
    loop {
        let turn = poll_fn(|cx| {
            generation.poll_turn(cx, &mut |event: Event<'_>| add_event(&mut answers, &event))
        })
        .await;
        generation.return_credit();
        if let Some(receipt) = generation.take_end_receipt() {
            receipt.confirm();
        }
        if generation.record().has_left() {
            return Err(moved_error());
        }
        match turn {
            Turn::Open => {}
            Turn::Ended => break,
            Turn::Broken(end) => return Err(encoder.end_error(end)),
        }
    }
    let mut out = BytesMut::new();
    let collected = Collected {
        answers: &answers,
        tokenizer,
        usage: generation.usage(),
    };
    encoder.encode_collected(collected, &mut out);
    Ok(out.freeze())
}

/// Adds an event to the answer of its choice.
fn add_event(answers: &mut [CollectedAnswer], event: &Event<'_>) -> bool {
    if let Some(choice) = event.choice() {
        answers[choice].take(event);
    }
    true
}
