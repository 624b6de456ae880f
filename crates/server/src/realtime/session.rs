//! One WebSocket, from the welcome to the close.
//!
//! One task runs the session. A message is given to the socket when the socket took the previous one; replies are
//! sent before messages of streams, and the streams take turns. Messages of the client are read as long as there is
//! capacity for their replies, even while the socket accepts nothing; so a client that does not read can still
//! cancel.

use super::handles::RealtimeHandles;
use super::message_gate::MessageGate;
use super::session_handler::SessionHandler;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, SinkExt, StreamExt};
use gateway::keys::Caller;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};
use wire::clock;

/// Bytes of one read; commands are short.
const READ_BYTES: usize = 4 << 10;
/// Bytes of one message that the library may hold while the socket accepts none: a frame is at most 16 KiB and one
/// event, and an event at most 32 tokens with their alternatives.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Time that a client may take for the closing handshake.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// Messages that are read and discarded during the closing handshake.
const CLOSE_MESSAGES_MAX: usize = 128;

type UpgradedSocket = WebSocketStream<MessageGate<TokioIo<Upgraded>>>;

/// A running WebSocket.
pub(super) struct Session {
    socket: UpgradedSocket,
    handler: SessionHandler,
    pings: PingTimer,
    control_rate: ControlRate,
    /// Time in which a long message must arrive.
    body_timeout: Duration,
    /// Ready when the server shuts down.
    draining: BoxFuture<'static, ()>,
    is_draining: bool,
}

/// Why the session ends.
enum SessionEnd {
    /// The client disconnected.
    Gone,
    /// The server closes the WebSocket with a reason.
    Close(CloseCode, &'static str),
}

type SessionPoll = Poll<Result<(), SessionEnd>>;

impl Session {
    /// A session on a socket after the response head (101) was sent.
    pub(super) async fn start(
        handles: RealtimeHandles,
        caller: Caller,
        upgraded: Upgraded,
    ) -> Self {
        let limits = handles.config.now().realtime;
        let messages = handles.message_limits();
        let longest = Some(messages.long_max);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            // Each message is written to the socket at once, so that backpressure is noticed.
            .write_buffer_size(0)
            .max_write_buffer_size(WRITE_BYTES_MAX)
            .max_message_size(longest)
            .max_frame_size(longest);
        let io = MessageGate::new(TokioIo::new(upgraded), messages);
        let mut draining = handles.lifecycle.drain_watch();
        Self {
            socket: WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await,
            pings: PingTimer::new(handles.config.now().keep_alive, limits.idle),
            control_rate: ControlRate::default(),
            body_timeout: handles.config.now().body_timeout,
            draining: Box::pin(async move {
                let _ = draining.wait_for(|draining| *draining).await;
            }),
            handler: SessionHandler::new(handles, caller),
            is_draining: false,
        }
    }

    /// Runs until the client disconnects or the server closes the WebSocket.
    pub(super) async fn run(mut self) {
        let end = poll_fn(|cx| self.poll(cx)).await;
        // Streams that run only for this client end now, before the closing handshake.
        self.handler.streams.clear();
        if let SessionEnd::Close(code, why) = end {
            let reason = Utf8Bytes::from_static(why);
            let closing = async {
                let _ = self.socket.close(Some(CloseFrame { code, reason })).await;
                for _ in 0..CLOSE_MESSAGES_MAX {
                    if !matches!(self.socket.next().await, Some(Ok(_))) {
                        return;
                    }
                }
            };
            let _ = timeout(CLOSE_WAIT, closing).await;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        loop {
            let polled = [
                self.poll_write(cx),
                self.poll_read(cx),
                self.poll_clocks(cx),
            ];
            let mut progressed = false;
            for part in polled {
                match part {
                    Poll::Ready(Err(end)) => return Poll::Ready(end),
                    Poll::Ready(Ok(())) => progressed = true,
                    Poll::Pending => {}
                }
            }
            if !progressed {
                return Poll::Pending;
            }
        }
    }

    /// Writes one message, if the socket took the previous one.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> SessionPoll {
        if ready!(self.socket.poll_ready_unpin(cx)).is_err() {
            return Poll::Ready(Err(SessionEnd::Gone));
        }
        let message = match self.next_message(cx) {
            Poll::Ready(Ok(message)) => message,
            Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
            Poll::Pending => {
                return match self.socket.poll_flush_unpin(cx) {
                    Poll::Ready(Err(_)) => Poll::Ready(Err(SessionEnd::Gone)),
                    _ => Poll::Pending,
                };
            }
        };
        let sent = self.socket.start_send_unpin(message);
        Poll::Ready(sent.map_err(|_| SessionEnd::Gone))
    }

    fn next_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, SessionEnd>> {
        if std::mem::take(&mut self.pings.due) {
            return Poll::Ready(Ok(Message::Ping(Bytes::new())));
        }
        if let Some(reply) = self.handler.replies.pop_front() {
            return Poll::Ready(Ok(Message::Text(reply)));
        }
        if self.is_draining && self.handler.streams.len() == 0 {
            let end = SessionEnd::Close(CloseCode::Away, "the server is shutting down");
            return Poll::Ready(Err(end));
        }
        let text = Utf8Bytes::try_from(ready!(self.handler.streams.poll_next(cx)));
        let ours = |_| SessionEnd::Close(CloseCode::Error, "a message could not be written");
        Poll::Ready(text.map(Message::Text).map_err(ours))
    }

    /// Reads one message, if there is capacity for the reply.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> SessionPoll {
        if !self.handler.has_capacity() {
            return Poll::Pending;
        }
        let received = ready!(self.socket.poll_next_unpin(cx));
        self.pings.received_at = clock::now();
        let message = match received {
            None => return Poll::Ready(Err(SessionEnd::Gone)),
            Some(Err(error)) => return Poll::Ready(Err(end_of_error(&error))),
            Some(Ok(message)) => message,
        };
        match message {
            Message::Text(text) => {
                let long = self.socket.get_mut().take_arrival();
                self.handler.handle_message(text.as_str(), long);
            }
            Message::Binary(_) => {
                let reason = "messages must be text";
                return Poll::Ready(Err(SessionEnd::Close(CloseCode::Unsupported, reason)));
            }
            // The library answers pings.
            Message::Ping(_) | Message::Pong(_) if !self.control_rate.count_frame(clock::now()) => {
                let reason = "more than 100 pings and pongs within a second";
                return Poll::Ready(Err(SessionEnd::Close(CloseCode::Policy, reason)));
            }
            // The library answers a close.
            _ => {}
        }
        Poll::Ready(Ok(()))
    }

    fn poll_clocks(&mut self, cx: &mut Context<'_>) -> SessionPoll {
        if !self.is_draining && self.draining.poll_unpin(cx).is_ready() {
            self.is_draining = true;
            return Poll::Ready(Ok(()));
        }
        ready!(self.pings.poll(cx))?;
        let waits_since = self.socket.get_ref().waits_since();
        let waited = waits_since.map(|since| clock::now().saturating_duration_since(since));
        if waited.is_some_and(|waited| waited >= self.body_timeout) {
            let reason = "a long message did not arrive within server.body_timeout_ms";
            return Poll::Ready(Err(SessionEnd::Close(CloseCode::Policy, reason)));
        }
        Poll::Ready(Ok(()))
    }
}

fn end_of_error(error: &Error) -> SessionEnd {
    match error {
        Error::Capacity(_) => {
            SessionEnd::Close(CloseCode::Size, "the message is longer than any may be")
        }
        Error::Utf8(_) => SessionEnd::Close(CloseCode::Invalid, "a text message was not UTF-8"),
        Error::Protocol(_) => {
            SessionEnd::Close(CloseCode::Protocol, "not a valid WebSocket message")
        }
        _ => SessionEnd::Gone,
    }
}

/// Pings, and the timeout of a client that sends nothing.
struct PingTimer {
    timer: Pin<Box<Sleep>>,
    each: Duration,
    idle: Duration,
    /// Time of the last message.
    received_at: Instant,
    /// Whether a ping must be sent.
    due: bool,
}

impl PingTimer {
    fn new(keep_alive: Duration, idle: Duration) -> Self {
        let each = keep_alive.min(idle / 2).max(Duration::from_millis(1));
        Self {
            timer: Box::pin(sleep(each)),
            each,
            idle,
            received_at: clock::now(),
            due: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> SessionPoll {
        ready!(self.timer.as_mut().poll(cx));
        self.timer
            .as_mut()
            .reset(tokio::time::Instant::now() + self.each);
        if clock::now().saturating_duration_since(self.received_at) >= self.idle {
            let reason = "no message and no pong was received in time";
            return Poll::Ready(Err(SessionEnd::Close(CloseCode::Policy, reason)));
        }
        self.due = true;
        Poll::Ready(Ok(()))
    }
}

/// Control frames of one client within a window. A client that checks the connection sends one every few seconds, and
/// answers one for each ping of the server.
const CONTROL_FRAMES_PER_S_MAX: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// Counts the control frames of a window. A window begins with the first frame after the previous window.
#[derive(Debug, Default)]
pub(super) struct ControlRate {
    since: Option<Instant>,
    frames: u32,
}

impl ControlRate {
    /// Counts one frame; false if there were too many.
    fn count_frame(&mut self, now: Instant) -> bool {
        match self.since {
            Some(since) if now.saturating_duration_since(since) < WINDOW => self.frames += 1,
            _ => (self.since, self.frames) = (Some(now), 1),
        }
        self.frames <= CONTROL_FRAMES_PER_S_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::clock;

    #[test]
    fn control_frames_are_limited_in_each_window() {
        let epoch = clock::now();
        let at = |ms: u64| epoch + Duration::from_millis(ms);
        let mut rate = ControlRate::default();
        for start in [0, 1000, 5000] {
            for frame in 0..CONTROL_FRAMES_PER_S_MAX {
                assert!(
                    rate.count_frame(at(start + u64::from(frame))),
                    "{start} {frame}"
                );
            }
        }
        assert!(!rate.count_frame(at(5999)));
        assert!(rate.count_frame(at(6000)));
    }
}
