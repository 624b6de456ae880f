//! A reader of a stream's messages for one request.

use super::{RECOVERY_RETRY, next_cursor, offset_text};
use crate::response::stream_response;
use crate::routes::durable_streams::invalid_offset;
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use gateway::generation::Generation;
use gateway::streams::positions::{OffsetPlace, failure_offset, offset_place};
use gateway::streams::{StreamRecord, Subscriber, lost_error, moved_error};
use generate::error::ApiError;
use generate::output::event::{Event, EventSink};
use generate::output::generation_reader::Turn;
use generate::output::position::Position;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use wire::clock;
use wire::durable_streams::message::{
    self, ControlEvent, LiveCursor, MessageWriter, OffsetText, StepOffset,
};
use wire::encoder::FrameBuffer;
use wire::framing::Framing;

/// Bytes of messages after which a read ends.
const READ_BYTES_ENOUGH: usize = 256 << 10;

/// A state of a client after the messages that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadState {
    /// Whether the client has all messages so far.
    pub(super) is_up_to_date: bool,
    /// Whether the client has all messages of an ended stream.
    pub(super) is_closed: bool,
}

const UP_TO_DATE: ReadState = ReadState {
    is_up_to_date: true,
    is_closed: false,
};
const CLOSED: ReadState = ReadState {
    is_up_to_date: true,
    is_closed: true,
};

/// A reader from an offset to the end of a stream.
pub(super) struct MessageReader {
    record: Arc<StreamRecord>,
    writer: MessageWriter,
    offset: StepOffset,
    source: MessageSource,
}

#[expect(
    clippy::large_enum_variant,
    reason = "one per request, and nearly always the large one"
)]
enum MessageSource {
    /// The stream is not started.
    Waiting,
    Reading(Generation),
    /// The client has all messages.
    Closed,
}

impl MessageReader {
    /// A reader of the messages after an offset.
    ///
    /// # Errors
    /// The stream does not have the offset.
    pub(super) fn open(record: &Arc<StreamRecord>, offset: StepOffset) -> Result<Self, ApiError> {
        let source = if is_recovering(record) {
            MessageSource::Waiting
        } else {
            open_source(record, offset)?
        };
        Ok(Self {
            writer: MessageWriter::new(record.source()),
            record: Arc::clone(record),
            offset,
            source,
        })
    }

    /// The offset after the messages that were read.
    pub(super) fn offset_text(&self) -> OffsetText {
        let choices = self.record.meta().choices;
        self.offset.of_choices(choices)
    }

    /// Appends the messages that exist, up to the limit of a read.
    ///
    /// # Errors
    /// The recovered stream does not have the offset.
    pub(super) async fn read_available(
        &mut self,
        out: &mut BytesMut,
    ) -> Result<ReadState, ApiError> {
        let woken = Arc::new(WakeFlag::default());
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            let polled = self.poll_messages(&mut Context::from_waker(&waker), out);
            match polled {
                Poll::Ready(state) => return state,
                // The output pipeline interrupts the replay of what the client has.
                Poll::Pending if woken.take() => yield_now().await,
                Poll::Pending => return Ok(UP_TO_DATE),
            }
        }
    }

    /// Waits for a message or the end, and appends the messages. May be dropped between two messages.
    ///
    /// # Errors
    /// The recovered stream does not have the offset.
    pub(super) async fn read_next(&mut self, out: &mut BytesMut) -> Result<ReadState, ApiError> {
        if matches!(self.source, MessageSource::Waiting) {
            // A rejection is a message too.
            let _ = self.record.wait_for_start().await;
        }
        poll_fn(|cx| self.poll_messages(cx, out)).await
    }

    /// Returns credit for what was read, when no further read follows.
    pub(super) fn finish(mut self) {
        if let MessageSource::Reading(generation) = &mut self.source {
            generation.return_credit();
        }
    }

    /// `Pending` if there are no messages, without a waker where the stream is not started.
    fn poll_messages(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut BytesMut,
    ) -> Poll<Result<ReadState, ApiError>> {
        if let MessageSource::Reading(generation) = &mut self.source {
            generation.return_credit();
        }
        loop {
            match &mut self.source {
                MessageSource::Closed => return Poll::Ready(Ok(CLOSED)),
                MessageSource::Waiting => {
                    if !self.begin(out)? {
                        return Poll::Pending;
                    }
                }
                MessageSource::Reading(_) if out.len() >= READ_BYTES_ENOUGH => {
                    return Poll::Ready(Ok(ReadState {
                        is_up_to_date: false,
                        is_closed: false,
                    }));
                }
                MessageSource::Reading(generation) if generation.record().has_left() => {
                    return Poll::Ready(Err(moved_error()));
                }
                MessageSource::Reading(generation) => {
                    let mut sink = MessageSink {
                        writer: &self.writer,
                        offset: &mut self.offset,
                        out,
                    };
                    let turn = generation.poll_turn(cx, &mut sink);
                    if let Some(receipt) = generation.take_end_receipt() {
                        receipt.confirm();
                    }
                    match turn {
                        Poll::Pending if out.is_empty() => return Poll::Pending,
                        Poll::Pending => return Poll::Ready(Ok(UP_TO_DATE)),
                        Poll::Ready(Turn::Open) => {}
                        Poll::Ready(Turn::Ended) => self.source = MessageSource::Closed,
                        Poll::Ready(Turn::Broken(end)) => {
                            let tokens = generation.usage().completion_tokens;
                            self.writer.write_failure(end, tokens, out);
                            self.close_after_failure();
                        }
                    }
                }
            }
        }
    }

    /// Begins to read a stream that was not started before; false if the stream still waits. A stream that never starts
    /// has one message, the rejection.
    fn begin(&mut self, out: &mut BytesMut) -> Result<bool, ApiError> {
        let rejection = self.record.rejection();
        if rejection.is_none() && self.record.started().is_none() {
            return Ok(false);
        }
        self.source = open_source(&self.record, self.offset)?;
        if let (Some(error), MessageSource::Waiting) = (rejection, &self.source) {
            self.writer.write_rejection(error, out);
            self.close_after_failure();
        }
        Ok(true)
    }

    fn close_after_failure(&mut self) {
        self.offset = failure_offset(&self.record);
        self.source = MessageSource::Closed;
    }
}

/// Whether the offsets of a stream are unknown: an earlier process opened the stream, which has not started here.
pub(super) fn is_recovering(record: &StreamRecord) -> bool {
    record.is_recovered() && record.started().is_none() && record.rejection().is_none()
}

/// The messages after an offset.
fn open_source(record: &Arc<StreamRecord>, offset: StepOffset) -> Result<MessageSource, ApiError> {
    Ok(
        match offset_place(record, offset).ok_or_else(invalid_offset)? {
            OffsetPlace::AfterFailure => MessageSource::Closed,
            OffsetPlace::Positions(known) if record.started().is_some() => {
                // The stream may not have come so far.
                let reader = Generation::attach(Subscriber::joining(record), Some(&known));
                MessageSource::Reading(reader.ok_or_else(invalid_offset)?.by_step())
            }
            OffsetPlace::Positions(_) => MessageSource::Waiting,
        },
    )
}

/// Writes the messages of one turn. A turn ends between two steps.
struct MessageSink<'a> {
    writer: &'a MessageWriter,
    offset: &'a mut StepOffset,
    out: &'a mut BytesMut,
}

impl EventSink for MessageSink<'_> {
    fn emit(&mut self, event: Event<'_>) -> bool {
        self.writer.write_event(&event, self.out);
        let position = event.position().filter(|position| position.parts == 0);
        if let (Some(choice), Some(Position { steps, .. })) = (event.choice(), position) {
            *self.offset = StepOffset { choice, steps };
        }
        self.out.len() < READ_BYTES_ENOUGH
    }
}

/// Set if a poll is to be repeated at once.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl WakeFlag {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

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
                message::write_ping(self.chunks.begin_frame());
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
        message::write_messages(&self.messages, out);
        message::write_control(&control, out);
        self.chunks.take_frame()
    }
}

/// Time that a client waits for the messages that it has, where the owner before had not stored their tokens.
const COMPUTED_WAIT: Duration = Duration::from_secs(30);
/// Time between two looks at the tokens.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until the stream has the client's offset, where an owner that is gone has sent it.
///
/// # Errors
/// The stream has ended before the offset; or the tokens are not computed in time.
pub(super) async fn wait_for_offset(
    record: &StreamRecord,
    offset: StepOffset,
) -> Result<(), ApiError> {
    let deadline = tokio::time::Instant::now() + COMPUTED_WAIT;
    while record.may_be_behind() && offset_place(record, offset).is_none() {
        if tokio::time::Instant::now() >= deadline {
            let message = "the messages before the offset are computed again";
            return Err(ApiError::capacity("recovering", message, RECOVERY_RETRY));
        }
        sleep(LOOK).await;
    }
    match record.lost_after(offset.choice) {
        Some(steps) if offset.steps > steps => {
            let place = StepOffset { steps, ..offset };
            Err(lost_error(offset_text(record, place)))
        }
        _ => Ok(()),
    }
}
