//! A live read as server-sent events: messages, and after them the client's position.

use super::message_reader::{MessageReader, ReadState};
use super::next_cursor;
use crate::response::stream_response;
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wire::clock;
use wire::durable_streams::live_read::{self, ControlEvent, LiveCursor};
use wire::frame_writer::FrameBuffer;
use wire::framing::Framing;

/// Age at which a body ends; the client continues with a new request. Required by the protocol, so that caches can
/// join the requests of several clients.
const BODY_AGE_MAX: Duration = Duration::from_secs(60);

/// The response with the messages of a reader, to the end of the stream.
pub(super) fn event_response(
    reader: MessageReader,
    cursor: Option<String>,
    keep_alive: Duration,
) -> Response {
    let body = EventBody {
        reader,
        cursor,
        keep_alive,
        ends_at: clock::now() + BODY_AGE_MAX,
        has_begun: false,
        is_over: false,
        messages: BytesMut::new(),
        chunks: FrameBuffer::default(),
    };
    let chunks = unfold(body, |mut body| async move {
        let chunk = body.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), body))
    });
    stream_response::framed_response(Framing::Sse, None, Body::from_stream(chunks))
}

struct EventBody {
    reader: MessageReader,
    /// The cursor of the client.
    cursor: Option<String>,
    keep_alive: Duration,
    ends_at: Instant,
    has_begun: bool,
    is_over: bool,
    /// Messages of one chunk; kept for reuse.
    messages: BytesMut,
    chunks: FrameBuffer,
}

impl EventBody {
    /// The next messages with the position after them, or a keep-alive. The first chunk has a position also without
    /// messages.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        self.messages.clear();
        if !std::mem::replace(&mut self.has_begun, true) {
            let state = self.reader.read_available(&mut self.messages).await;
            return self.encode_read(state.ok()?);
        }
        let left = self.ends_at.saturating_duration_since(clock::now());
        let wait = self.keep_alive.min(left);
        match timeout(wait, self.reader.read_next(&mut self.messages)).await {
            Ok(Ok(state)) => self.encode_read(state),
            // The next request for the offset is rejected.
            Ok(Err(_)) => None,
            Err(_) if wait == left => None,
            Err(_) => {
                live_read::write_ping(self.chunks.begin_frame());
                self.chunks.take_frame()
            }
        }
    }

    fn encode_read(&mut self, state: ReadState) -> Option<Bytes> {
        self.is_over = state.is_closed;
        let control = ControlEvent {
            stream_next_offset: self.reader.offset_text(),
            stream_cursor: (!state.is_closed)
                .then(|| LiveCursor(next_cursor(self.cursor.as_deref()))),
            up_to_date: state.is_up_to_date,
            stream_closed: state.is_closed,
        };
        let out = self.chunks.begin_frame();
        live_read::write_messages(&self.messages, out);
        live_read::write_control(&control, out);
        self.chunks.take_frame()
    }
}
