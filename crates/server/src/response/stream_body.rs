//! The body of a streamed response: frames are encoded when the connection can take them.

use crate::request_line::RequestLine;
use admission::QueuePosition;
use bytes::{Bytes, BytesMut};
use gateway::generation::{FollowEvent, Generation, StreamFollower};
use gateway::streams::{EndReceipt, ImageChange, ImageFollower, STREAM_MOVED, moved_error};
use generate::error::ApiError;
use generate::output::event::{Event, EventSink};
use generate::output::generation_reader::Turn;
use http_body::{Body, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use stream::End;
use tokio::time::{Instant, Sleep};
use wire::cursor::{Cursor, EventIds, TerminalMarker};
use wire::encoder::{Encoder, FrameBuffer, FrameWriter};
use wire::framing::Framing;
use wire::protocol::{Encoding, FollowState, ProtocolHeader};
use wire::shared::finish_reason;

/// The body of a streamed response.
///
/// Credit: a poll for the next frame means that the kernel, which holds few unsent bytes, took the previous frame. So
/// a token counts as accepted when it is within those few kilobytes of the network, and the body of a client that
/// does not read is soon not polled any more. Where the HTTP library sends the body (to HTTP/1.0 clients), the
/// library's buffer of `connection_buffer_bytes` comes in addition.
pub(crate) struct StreamBody {
    state: BodyState,
    encoder: Box<dyn Encoder>,
    framing: FramingState,
    header: Option<ProtocolHeader>,
    frames: FrameBuffer,
    keep_alive: KeepAlive,
    follows: FollowState,
    following: StreamFollower,
    /// `Opened` was encoded, now or on an earlier connection.
    opened: bool,
    /// `Started` was encoded.
    started: bool,
    /// Frames that were written before the head of the response was sent.
    ahead: VecDeque<Bytes>,
    /// The failure of a stream without any output.
    failed_empty: Option<End>,
    /// The stream continues at another gateway: the response breaks off.
    is_cut: bool,
    /// After the last frame.
    receipt: Option<EndReceipt>,
    /// Written with the drop of the body.
    line: Option<Arc<RequestLine>>,
}

/// A generation that waits for admission or for its start.
pub(crate) type PendingStart = Pin<Box<dyn Future<Output = Result<Generation, ApiError>> + Send>>;

#[expect(
    clippy::large_enum_variant,
    reason = "one per stream, and nearly always the large one"
)]
enum BodyState {
    /// Waiting for admission or for the start of the generation.
    Waiting {
        pending: PendingStart,
        /// The position in the admission queue; `None` if another request waits for the permit.
        queue_position: Option<QueuePosition>,
        /// Whether the position was reported.
        reported: bool,
        /// Images that another model describes before the start.
        images: Option<Box<ImageFollower>>,
    },
    Running(Generation),
    /// After the last frame; the generation is dropped at once.
    Over,
}

impl StreamBody {
    /// The body of a generation.
    pub(crate) fn new(generation: Generation, encoding: Encoding, keep_alive: Duration) -> Self {
        Self::with_state(BodyState::Running(generation), encoding, keep_alive)
    }

    /// The body of a generation that waits for admission; reports the position in the queue.
    pub(crate) fn waiting(
        pending: PendingStart,
        queue_position: Option<QueuePosition>,
        encoding: Encoding,
        keep_alive: Duration,
    ) -> Self {
        let state = BodyState::Waiting {
            pending,
            queue_position,
            reported: false,
            images: None,
        };
        Self::with_state(state, encoding, keep_alive)
    }

    /// Framing of the body.
    pub(crate) fn framing(&self) -> Framing {
        self.framing.framing
    }

    /// Header of the response by which clients recognize the wire protocol.
    pub(crate) fn header(&self) -> Option<ProtocolHeader> {
        self.header
    }

    /// The body with ids in its frames. The first server-sent event sets the client's reconnection time.
    pub(crate) fn with_ids(mut self, ids: EventIds) -> Self {
        self.framing.ids = Some(ids);
        self.framing.retry_due = true;
        self
    }

    /// The body, which reports the progress of images that another model describes.
    pub(crate) fn with_images(mut self, followed: Option<ImageFollower>) -> Self {
        if let BodyState::Waiting { images, .. } = &mut self.state {
            *images = followed.map(Box::new);
        }
        self
    }

    /// The body for a client that has received everything up to this cursor.
    pub(crate) fn resumed(mut self, cursor: &Cursor) -> Self {
        let positions = &cursor.positions;
        self.encoder.replay_event(&Event::Resumed { positions });
        self.opened = true;
        self.framing.known = cursor.terminal;
        self
    }

    fn with_state(state: BodyState, encoding: Encoding, keep_alive: Duration) -> Self {
        Self {
            state,
            encoder: encoding.encoder,
            framing: FramingState {
                framing: encoding.framing,
                ids: None,
                known: TerminalMarker::None,
                retry_due: false,
            },
            header: encoding.header,
            frames: FrameBuffer::default(),
            keep_alive: KeepAlive::new(keep_alive),
            follows: encoding.follows,
            following: StreamFollower::default(),
            opened: false,
            started: false,
            ahead: VecDeque::new(),
            failed_empty: None,
            is_cut: false,
            receipt: None,
            line: None,
        }
    }

    /// After the last frame: the receipt, to be confirmed when the frame is sent. Without this call the drop confirms.
    pub(crate) fn take_end_receipt(&mut self) -> Option<EndReceipt> {
        self.receipt.take()
    }

    /// Keeps the line of the log, which is written when the body is dropped.
    pub(crate) fn keep_line(&mut self, line: &Arc<RequestLine>) {
        self.line = Some(Arc::clone(line));
    }

    fn encode(&mut self, event: &Event<'_>) {
        let mut out = self.framing.writer(self.frames.current_frame());
        self.encoder.encode(event, &mut out);
    }

    /// Waits for the first event after `Opened`, which the body keeps, before the head of the response is sent.
    ///
    /// # Errors
    /// The stream failed without any output.
    pub(crate) fn poll_first_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        while !self.is_over() {
            let was_opened = self.opened;
            let wrote = self.write_frames(cx);
            if let Some(end) = self.failed_empty {
                return Poll::Ready(Err(self.encoder.end_error(end)));
            }
            let frame = self.frames.take_frame();
            let is_event = was_opened && frame.is_some();
            self.ahead.extend(frame);
            if is_event {
                break;
            }
            if !wrote {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the prefill has begun.
    pub(crate) fn has_started(&self) -> bool {
        match &self.state {
            BodyState::Running(generation) => generation.usage().times.started.is_some(),
            BodyState::Waiting { .. } => false,
            BodyState::Over => true,
        }
    }

    /// Waits for the generation; false when there is nothing to write. The first call reports the position in the
    /// queue, so that the client gets the position at once.
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> bool {
        let BodyState::Waiting {
            pending, images, ..
        } = &mut self.state
        else {
            return true;
        };
        self.frames.begin_frame();
        let started = pending.as_mut().poll(cx);
        let changed = images.as_mut().map(|images| images.poll_next(cx));
        if let Some(Poll::Ready(change)) = changed {
            self.write_images(change);
            if started.is_pending() {
                return true;
            }
        }
        match started {
            Poll::Ready(Ok(generation)) => {
                self.state = BodyState::Running(generation);
                true
            }
            Poll::Ready(Err(error)) if error.code == STREAM_MOVED => self.cut(),
            Poll::Ready(Err(error)) => {
                self.encode(&Event::Rejected(&error));
                self.state = BodyState::Over;
                true
            }
            Poll::Pending => self.report_position(),
        }
    }

    /// Writes the position in the queue, if there is one; false after the first call.
    fn report_position(&mut self) -> bool {
        let BodyState::Waiting {
            queue_position,
            reported,
            ..
        } = &mut self.state
        else {
            return false;
        };
        if std::mem::replace(reported, true) {
            return false;
        }
        if let Some(position) = queue_position.as_ref().and_then(QueuePosition::position) {
            self.encode(&Event::Queued { position });
        }
        true
    }

    /// Writes the changes of images up to now, of which this is the first.
    fn write_images(&mut self, first: ImageChange) {
        let mut next = Some(first);
        while let Some(change) = next {
            let ImageChange {
                index,
                count,
                state,
            } = change;
            self.encode(&Event::Image {
                index,
                count,
                state,
            });
            next = match &mut self.state {
                BodyState::Waiting { images, .. } => {
                    images.as_mut().and_then(|images| images.next_now())
                }
                BodyState::Running(_) | BodyState::Over => None,
            };
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, BodyState::Over)
    }

    /// Writes a keep-alive.
    fn write_keep_alive(&mut self) {
        self.frames.begin_frame();
        let position = match &self.state {
            BodyState::Waiting { queue_position, .. } => {
                queue_position.as_ref().and_then(QueuePosition::position)
            }
            _ => None,
        };
        match position {
            Some(position) => self.encode(&Event::Queued { position }),
            None => {
                let mut out = self.framing.writer(self.frames.current_frame());
                self.encoder.keep_alive(&mut out);
            }
        }
    }

    /// Writes the next frames into the frame buffer; false if no events are available.
    fn write_frames(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.state, BodyState::Waiting { .. }) {
            return self.poll_pending(cx);
        }
        let BodyState::Running(generation) = &mut self.state else {
            return false;
        };
        if generation.record().has_left() {
            return self.cut();
        }
        let out = self.frames.begin_frame();
        let mut writer = EventWriter {
            encoder: &mut *self.encoder,
            framing: &mut self.framing,
            started: &mut self.started,
            out,
        };
        if !self.opened {
            self.opened = true;
            writer.encode(&Event::Opened {
                choices: generation.choices(),
                usage: generation.usage(),
            });
            return true;
        }
        generation.return_credit();
        writer.write_start(generation.usage().times.started);
        if !writer.out.is_empty() {
            return true;
        }
        match generation.poll_turn(cx, &mut writer) {
            Poll::Pending => {
                let follows = match self.follows {
                    FollowState::Never => false,
                    FollowState::UntilStarted => !self.started,
                    FollowState::Always => true,
                };
                match self.following.poll_change(generation, follows, cx) {
                    FollowEvent::Nothing => false,
                    FollowEvent::Held => true,
                    FollowEvent::Due(change) => {
                        self.encode(&Event::StateChanged(change));
                        true
                    }
                }
            }
            Poll::Ready(Turn::Open) => true,
            Poll::Ready(Turn::Ended) => {
                let end = generation.first_end();
                self.write_end(end, None)
            }
            Poll::Ready(Turn::Broken(end)) => self.write_end(Some(end), Some(end)),
        }
    }

    /// Ends the body without an end of the stream. Only a WebSocket, which stays open, gets an error.
    fn cut(&mut self) -> bool {
        if self.framing.framing == Framing::WebSocket {
            self.frames.begin_frame();
            self.encode(&Event::Rejected(&moved_error()));
        }
        (self.state, self.is_cut) = (BodyState::Over, true);
        true
    }

    /// Whether the body has broken off.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Writes the terminal frames that the client has not received.
    fn write_end(&mut self, end: Option<End>, failed: Option<End>) -> bool {
        let BodyState::Running(generation) = &mut self.state else {
            return false;
        };
        self.receipt = generation.take_end_receipt();
        let usage = generation.usage();
        let mut writer = EventWriter {
            encoder: &mut *self.encoder,
            framing: &mut self.framing,
            started: &mut self.started,
            out: self.frames.current_frame(),
        };
        writer.write_start(usage.times.started);
        if failed.is_none() || usage.completion_tokens > 0 {
            writer.encode(&Event::Usage { end, usage });
        }
        match failed {
            None => writer.encode(&Event::Finished { end, usage }),
            Some(end) => {
                self.failed_empty = (usage.completion_tokens == 0).then_some(end);
                if let Some(line) = &self.line {
                    line.set_error(finish_reason::end_error(end).code);
                }
                tracing::debug!(?end, "stream ended with an error");
                writer.encode(&Event::Failed { end, usage });
            }
        }
        self.state = BodyState::Over;
        true
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(bytes) = this.ahead.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        while !this.is_over() {
            let wrote = this.write_frames(cx);
            if wrote {
                this.keep_alive.note_frame();
            } else if this.keep_alive.poll(cx).is_ready() {
                this.write_keep_alive();
            }
            match this.frames.take_frame() {
                Some(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None if wrote => {}
                None => return Poll::Pending,
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over() && self.ahead.is_empty()
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.confirm();
        }
    }
}

/// Length of a frame that takes no events of further choices.
const FRAME_BYTES_ENOUGH: usize = 16 << 10;

/// State of the framing around the JSON of the encoder.
pub(super) struct FramingState {
    pub(super) framing: Framing,
    /// Writer of event ids, if the client can resume.
    pub(super) ids: Option<EventIds>,
    /// Terminal frames that the client has.
    pub(super) known: TerminalMarker,
    /// The next event sets the client's reconnection time.
    pub(super) retry_due: bool,
}

impl FramingState {
    pub(super) fn writer<'a>(&'a mut self, out: &'a mut BytesMut) -> FrameWriter<'a> {
        FrameWriter::new(self.framing, out)
            .with_ids(self.ids.as_ref(), self.known)
            .with_retry(&mut self.retry_due)
    }
}

/// Encodes the events of one poll.
pub(super) struct EventWriter<'a> {
    pub(super) encoder: &'a mut dyn Encoder,
    pub(super) framing: &'a mut FramingState,
    pub(super) started: &'a mut bool,
    pub(super) out: &'a mut BytesMut,
}

impl EventWriter<'_> {
    pub(super) fn encode(&mut self, event: &Event<'_>) {
        let mut out = self.framing.writer(self.out);
        self.encoder.encode(event, &mut out);
    }

    /// Encodes the start of the stream when the time of the start is known.
    fn write_start(&mut self, at: Option<std::time::Instant>) {
        if let Some(at) = at
            && !std::mem::replace(self.started, true)
        {
            self.encode(&Event::Started { at });
        }
    }
}

impl EventSink for EventWriter<'_> {
    fn emit(&mut self, event: Event<'_>) -> bool {
        self.write_start(event.usage().and_then(|usage| usage.times.started));
        if let (Some(ids), Some(choice), Some(position)) =
            (&mut self.framing.ids, event.choice(), event.position())
        {
            ids.advance(choice, position);
        }
        self.encode(&event);
        self.out.len() < FRAME_BYTES_ENOUGH
    }

    fn replay(&mut self, event: &Event<'_>) {
        self.encoder.replay_event(event);
    }
}

/// The keep-alive timer of one stream. A frame only records the time; the timer is moved only when due. So a busy
/// stream costs one timer operation per period instead of one per token.
pub(crate) struct KeepAlive {
    timer: Pin<Box<Sleep>>,
    period: Duration,
    last: Instant,
}

impl KeepAlive {
    /// A timer that starts now.
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            timer: Box::pin(tokio::time::sleep(period)),
            period,
            last: Instant::now(),
        }
    }

    /// Records that a frame was written.
    fn note_frame(&mut self) {
        self.last = Instant::now();
    }

    /// Ready after a period without a frame; then the next period begins.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let due = self.last + self.period;
            let now = Instant::now();
            if due <= now {
                self.last = now;
                self.timer.as_mut().reset(now + self.period);
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

#[cfg(test)]
pub(crate) mod tests;
