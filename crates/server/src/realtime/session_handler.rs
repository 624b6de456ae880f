//! The session handler: executes the commands of a client. Nothing here waits.

use super::handles::RealtimeHandles;
use super::message_gate::LongMessage;
use crate::response::stream_body::StreamBody;
use crate::routes::streams::SubscribeOptions;
use bytes::Bytes;
use gateway::keys::Caller;
use gateway::media::LongBody;
use gateway::metrics::MeteredProtocol;
use gateway::open::{OpenedStream, RequestedDelivery, Resumable, StreamRequest};
use gateway::streams::StreamRecord;
use gateway::streams::control::{self, not_running};
use generate::error::{ApiError, ErrorKind};
use generate::output::position::Position;
use http_body::Body;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::StreamId;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use wire::clock;
use wire::control_request::ControlRequest;
use wire::cursor::{Cursor, EventIds, invalid_cursor};
use wire::fields::Fields;
use wire::framing::Framing;
use wire::protocol::{Encoding, FollowState, Protocol};
use wire::realtime_command::{self, Ack, AttachCommand, Command, OpenCommand, StartPosition};
use wire::realtime_encoder::RealtimeEncoder;
use wire::request_body::RequestBody;
use wire::shared::job_outcome::is_retriable;

/// Replies that wait for the socket; while there are this many, no message is read.
const REPLIES_MAX: usize = 32;

/// Executes the commands of one WebSocket, and keeps the replies.
pub(super) struct SessionHandler {
    handles: RealtimeHandles,
    caller: Caller,
    pub(super) streams: MultiplexedStreams,
    /// At most `REPLIES_MAX`, because each message has one reply.
    pub(super) replies: VecDeque<Utf8Bytes>,
}

impl SessionHandler {
    /// A handler without streams; the first reply is the welcome.
    pub(super) fn new(handles: RealtimeHandles, caller: Caller) -> Self {
        let mut handler = Self {
            streams: MultiplexedStreams::default(),
            replies: VecDeque::with_capacity(REPLIES_MAX),
            handles,
            caller,
        };
        handler.push_reply(&welcome_message(&handler.handles));
        handler
    }

    /// Whether another message can be read.
    pub(super) fn has_capacity(&self) -> bool {
        self.replies.len() < REPLIES_MAX
    }

    /// Executes the command of a message. The reply is sent if the client requested one or the command failed.
    /// A long message has its share, or was dropped for the error.
    pub(super) fn handle_message(&mut self, text: &str, long: Option<LongMessage>) {
        let long_body = match long.transpose() {
            Ok(share) => share.map(|share| {
                let plain_max = self.handles.config.now().realtime.message_bytes_max;
                LongBody::new(text.len(), plain_max, share)
            }),
            Err(error) => {
                self.handles.responder.count_rejection(&error);
                return self.push_reply(&error_reply(&error, None, None));
            }
        };
        let message = realtime_command::parse_message(text);
        let (request, stream) = (message.request.as_deref(), message.stream.as_deref());
        let named = stream.unwrap_or_default();
        let outcome = message.command.and_then(|command| match command {
            Command::Open(open) => self.open_stream(&open, long_body, request).map(Some),
            Command::Attach(attach) => self.attach_stream(named, &attach, request).map(Some),
            Command::Ack(acks) => self.acknowledge_tokens(&acks).map(|()| None),
            Command::Control(control) => self.update_stream(named, *control).map(|()| None),
            Command::Pause => self.set_paused(named, true).map(|()| None),
            Command::Resume => self.set_paused(named, false).map(|()| None),
            Command::Cancel => self
                .find_stream(named)
                .map(|record| record.cancel())
                .map(|()| None),
            Command::Detach => self.detach_stream(named).map(|()| None),
        });
        match outcome {
            Ok(Some(reply)) => self.push_reply(&reply),
            Ok(None) => {
                if let Some(request) = request {
                    self.push_reply(&json!({ "type": "ok", "request": request }));
                }
            }
            Err(error) => {
                self.handles.responder.count_rejection(&error);
                self.push_reply(&error_reply(&error, request, stream));
            }
        }
    }

    fn open_stream(
        &mut self,
        open: &OpenCommand<'_>,
        long_body: Option<LongBody>,
        request: Option<&str>,
    ) -> Result<Value, ApiError> {
        self.caller.count_request(clock::now())?;
        self.expect_capacity()?;
        let opened = self.open_request(open, long_body);
        let opened = opened.map_err(in_body)?;
        let record = Arc::clone(&opened.record);
        let reply = stream_reply("opened", &record, request);
        let responder = &self.handles.responder;
        let body = responder.deferred_body(opened, message_encoding(&record));
        let body = body.with_ids(EventIds::new(record.id(), start_positions(&record)));
        self.streams.push(record, body);
        Ok(reply)
    }

    /// Whether another gateway has a job of the name takes two round trips to know, and nothing here waits.
    fn expect_no_shared_name(
        &self,
        protocol: Protocol,
        fields: &Fields<'_>,
    ) -> Result<(), ApiError> {
        let is_named = protocol == Protocol::Job && fields.raw("job_id").is_some();
        if is_named && self.handles.peer_calls.is_clustered() {
            let message = "is not supported on a WebSocket of a cluster: open the job with POST /v1/jobs, and attach \
                           its stream";
            return Err(ApiError::field("job_id", "unsupported_value", message));
        }
        Ok(())
    }

    fn open_request(
        &self,
        open: &OpenCommand<'_>,
        long_body: Option<LongBody>,
    ) -> Result<OpenedStream, ApiError> {
        let body = RequestBody::parse(Bytes::copy_from_slice(open.body.as_bytes()))?;
        self.expect_no_shared_name(open.protocol, &body.fields())?;
        // A job continues without its client unless the client chooses otherwise.
        let is_resumable = open.resumable.unwrap_or(open.protocol == Protocol::Job);
        let request = StreamRequest {
            caller: self.caller.clone(),
            protocol: open.protocol,
            framing: Framing::Sse,
            delivery: RequestedDelivery {
                resumable: Some(Resumable::from_choice(is_resumable)),
                explicit_acks: open.explicit_acks,
                durable: open.durable,
                ..RequestedDelivery::default()
            },
            streamed: true,
            body,
            long_body,
        };
        request.open_now(self.handles.responder.gateway())
    }

    fn attach_stream(
        &mut self,
        id: &str,
        attach: &AttachCommand<'_>,
        request: Option<&str>,
    ) -> Result<Value, ApiError> {
        let record = self.find_stream(id)?;
        if self.streams.contains(record.id()) {
            let message = "this connection already follows that stream";
            return Err(ApiError::caller(
                ErrorKind::Conflict,
                "already_attached",
                message,
            ));
        }
        self.expect_capacity()?;
        let cursor = requested_cursor(&record, &attach.place)?;
        let positions = cursor.as_ref().map(|cursor| cursor.positions.clone());
        let positions = positions.unwrap_or_else(|| start_positions(&record));
        let options = SubscribeOptions {
            encoding: message_encoding(&record),
            cursor,
            protocol: MeteredProtocol::Realtime,
            govern: attach.govern,
        };
        let body = options.open_body(&self.handles.responder, &record)?;
        let body = body.with_ids(EventIds::new(record.id(), positions));
        let reply = stream_reply("attached", &record, request);
        self.streams.push(record, body);
        Ok(reply)
    }

    /// Applies all acknowledgements, or none if one is invalid.
    fn acknowledge_tokens(&self, acks: &[Ack<'_>]) -> Result<(), ApiError> {
        let mut found = Vec::with_capacity(acks.len());
        for ack in acks {
            let record = self.find_stream(&ack.stream)?;
            let choices = record.meta().choices;
            let choice = ack.choice.map(usize::try_from).transpose();
            match choice {
                Ok(choice) if choice.is_none_or(|choice| choice < choices) => {
                    found.push((record, ack.index, choice));
                }
                _ => {
                    let message = format!("must be less than {choices}");
                    return Err(ApiError::field("choice", "invalid_value", message));
                }
            }
        }
        for (record, index, choice) in found {
            record.acknowledge(index, choice);
        }
        Ok(())
    }

    fn update_stream(&self, id: &str, control: ControlRequest) -> Result<(), ApiError> {
        control::apply_control(control, self.find_stream(id)?.as_ref())
    }

    fn set_paused(&self, id: &str, paused: bool) -> Result<(), ApiError> {
        if self.find_stream(id)?.pause(paused) {
            Ok(())
        } else {
            Err(not_running())
        }
    }

    /// Detaches this WebSocket from a stream. A stream that is not resumable is cancelled by that.
    fn detach_stream(&mut self, id: &str) -> Result<(), ApiError> {
        let record = self.find_stream(id)?;
        if self.streams.remove(record.id()) {
            return Ok(());
        }
        let message = "this connection does not follow that stream";
        Err(ApiError::caller(
            ErrorKind::Conflict,
            "not_attached",
            message,
        ))
    }

    /// Finds a stream of the caller. The error does not reveal whether another caller has such a stream.
    fn find_stream(&self, id: &str) -> Result<Arc<StreamRecord>, ApiError> {
        let gateway = self.handles.responder.gateway();
        gateway
            .generations
            .streams
            .find_stream(id, &self.caller)
            .map(|stream| stream.payload)
    }

    fn expect_capacity(&self) -> Result<(), ApiError> {
        let max = self.handles.config.now().realtime.streams_max;
        if self.streams.len() < max {
            return Ok(());
        }
        let message = format!("a connection follows at most {max} streams");
        Err(ApiError::caller(
            ErrorKind::RateLimited,
            "too_many_streams",
            message,
        ))
    }

    fn push_reply(&mut self, reply: &Value) {
        self.replies.push_back(reply.to_string().into());
    }
}

/// The encoder of a stream as WebSocket messages.
fn message_encoding(record: &StreamRecord) -> Encoding {
    Encoding {
        encoder: Box::new(RealtimeEncoder::new(record.source())),
        framing: Framing::WebSocket,
        header: None,
        follows: FollowState::Always,
    }
}

/// The position of a client without any output.
fn start_positions(record: &StreamRecord) -> Vec<Position> {
    vec![Position::default(); record.meta().choices]
}

/// The cursor of a requested position. A client that attaches at the very end gets the terminal event again: each
/// attachment has exactly one.
fn requested_cursor(
    record: &StreamRecord,
    place: &StartPosition<'_>,
) -> Result<Option<Cursor>, ApiError> {
    let choices = record.meta().choices;
    match place {
        StartPosition::Beginning | StartPosition::From(0) => Ok(None),
        StartPosition::After(after) => Cursor::parse(after, record.id(), choices)
            .map(|cursor| Some(cursor.before_ending()))
            .ok_or_else(invalid_cursor),
        StartPosition::From(tokens) => record
            .cursor_at(*tokens)
            .map(Some)
            .ok_or_else(invalid_cursor),
    }
}

/// Renames the fields of a body to fields of the message.
fn in_body(mut error: ApiError) -> ApiError {
    for problem in &mut error.problems {
        problem.field.insert_str(0, "body.");
    }
    error
}

/// The first message.
fn welcome_message(handles: &RealtimeHandles) -> Value {
    let limits = handles.config.now().realtime;
    json!({
        "type": "welcome", "model": handles.lifecycle.model_registry().first_entry().id(), "streams_max": limits.streams_max,
        "message_bytes_max": limits.message_bytes_max,
    })
}

/// The reply to `open` or `attach`; messages of the stream follow. `kind`: `opened` or `attached`.
fn stream_reply(kind: &str, record: &StreamRecord, request: Option<&str>) -> Value {
    let (terms, meta) = (record.terms(), record.meta());
    let acks = if terms.explicit_acks {
        "explicit"
    } else {
        "socket"
    };
    let reply = json!({
        "type": kind, "stream": record.id().to_string(), "response_id": meta.response_id,
        "dialect": terms.protocol.name(), "model": meta.model, "choices": meta.choices,
        "resumable": terms.resumable, "durable": record.is_recorded(), "acks": acks, "credit_window": terms.credit_window,
    });
    with_field(reply, "request", request)
}

/// The reply to a failed command.
fn error_reply(error: &ApiError, request: Option<&str>, stream: Option<&str>) -> Value {
    let mut reply = Map::new();
    reply.insert("type".to_owned(), "error".into());
    reply.insert("code".to_owned(), error.code.into());
    reply.insert("message".to_owned(), error.message.as_str().into());
    reply.insert("retriable".to_owned(), is_retriable(error).into());
    if let Some(wait) = error.retry_after {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        reply.insert("retry_after_ms".to_owned(), ms.into());
    }
    if !error.problems.is_empty() {
        let problems = error.problems.iter();
        let problems = problems.map(|p| json!({ "field": p.field, "constraint": p.constraint }));
        reply.insert("errors".to_owned(), problems.collect());
    }
    with_field(
        with_field(reply.into(), "request", request),
        "stream",
        stream,
    )
}

fn with_field(mut reply: Value, name: &str, value: Option<&str>) -> Value {
    if let Some(value) = value {
        reply[name] = value.into();
    }
    reply
}

/// One stream of a WebSocket.
struct MultiplexedStream {
    record: Arc<StreamRecord>,
    body: StreamBody,
    /// Encoded messages that were not sent, one per line.
    rest: Bytes,
}

/// The streams of one WebSocket.
#[derive(Default)]
pub(super) struct MultiplexedStreams {
    streams: Vec<MultiplexedStream>,
    /// Index of the stream that is polled next.
    next: usize,
}

impl MultiplexedStreams {
    /// Number of streams.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether this stream is attached.
    pub(super) fn contains(&self, id: StreamId) -> bool {
        self.streams.iter().any(|stream| stream.record.id() == id)
    }

    /// Attaches a stream.
    pub(super) fn push(&mut self, record: Arc<StreamRecord>, body: StreamBody) {
        self.streams.push(MultiplexedStream {
            record,
            body,
            rest: Bytes::new(),
        });
    }

    /// Detaches a stream; false if the stream was not attached.
    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        let before = self.streams.len();
        self.streams.retain(|stream| stream.record.id() != id);
        self.streams.len() < before
    }

    /// Detaches all streams.
    pub(super) fn clear(&mut self) {
        self.streams.clear();
    }

    /// The next message; streams take turns. A call means that the previous messages were sent.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let mut quiet = 0;
        while quiet < self.streams.len() {
            let at = self.next % self.streams.len();
            match self.streams[at].poll_next(cx) {
                Poll::Ready(Some(message)) => {
                    self.next = at + 1;
                    if self.streams[at].is_over() {
                        // A client that has received the end may attach again at once.
                        self.streams.remove(at);
                        self.next = at;
                    }
                    return Poll::Ready(message);
                }
                Poll::Ready(None) => {
                    // The next stream has moved to this index.
                    self.streams.remove(at);
                    self.next = at;
                }
                Poll::Pending => {
                    self.next = at + 1;
                    quiet += 1;
                }
            }
        }
        Poll::Pending
    }
}

impl MultiplexedStream {
    /// Whether all messages were taken.
    fn is_over(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let message = self.rest.split_to(end);
                let _ = self.rest.split_to(1);
                return Poll::Ready(Some(message));
            }
            // An empty `rest` would keep the memory that the next frames are written into.
            self.rest = Bytes::new();
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.rest = frame.into_data().unwrap_or_default();
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests;
