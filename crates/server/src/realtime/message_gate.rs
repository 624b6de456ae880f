//! The gate before the WebSocket library: it reads the heads of a client's frames, so that a message is bounded before it is held.
//!
//! A message of at most `plain_max` bytes passes. A longer one, which only images make, needs a share of the bytes that all long
//! bodies have together, as over HTTP. It passes in frames of [`PIECE_BYTES`], since the library keeps memory for the longest
//! frame that it has read.
//!
//! A message that is too long, or finds no room, is read and dropped. The library gets its frames without their bytes, and so a
//! message in its place, which the session answers with the error; other streams of the WebSocket continue.

use gateway::media::{ByteBudget, ByteReservation};
use generate::error::{ApiError, ErrorKind};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use wire::clock;

/// Bytes of a frame that the library reads; a multiple of the mask's four bytes.
const PIECE_BYTES: u64 = 32 << 10;
/// Bytes of a message that is dropped; a longer one closes the connection (1009).
const DROPPED_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are read at one time.
const READ_BYTES: usize = 4 << 10;

/// Bits of a frame's first two bytes (RFC 6455, 5.2).
const FINAL: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;
/// Lengths that are in the bytes behind.
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;
/// Bytes of the longest head.
const HEAD_BYTES_MAX: usize = 14;

/// Bounds of the messages of one WebSocket.
pub(super) struct GateLimits {
    /// Bytes of a message without images.
    pub(super) plain_max: usize,
    /// Bytes of any message.
    pub(super) long_max: usize,
    pub(super) bodies: Arc<ByteBudget>,
    /// Bytes of all long bodies together.
    pub(super) bodies_max: u64,
    pub(super) retry_after: Duration,
}

/// A long message: its share of the bytes of long bodies, or the reason for which it was dropped.
pub(super) type LongMessage = Result<ByteReservation, ApiError>;

/// A socket whose messages are bounded.
pub(super) struct MessageGate<S> {
    socket: BufReader<S>,
    frames: FrameFilter,
}

/// The state between two bytes of the client.
struct FrameFilter {
    limits: GateLimits,
    place: Place,
    /// The part of a frame's head that has arrived.
    head: Vec<u8>,
    /// Bytes of a head for the library.
    ready: VecDeque<u8>,
    frame: Frame,
    /// Bytes of the current message.
    message_bytes: u64,
    /// Messages that have begun, and those that the session has.
    begun: u64,
    taken: u64,
    /// Long messages that the session does not have.
    long: VecDeque<ArrivingMessage>,
}

/// A long message by its number.
struct ArrivingMessage {
    number: u64,
    since: Instant,
    arrival: LongMessage,
}

/// A frame whose bytes pass.
#[derive(Clone, Copy, Default)]
struct Frame {
    first: u8,
    mask: Option<[u8; 4]>,
    /// Bytes after the current piece.
    left: u64,
}

/// Which bytes come next, and how many.
enum Place {
    Head,
    Passed(u64),
    Dropped(u64),
}

impl GateLimits {
    fn too_long(&self) -> ApiError {
        let max = self.long_max;
        let setting = if max > self.plain_max {
            "server.media_body_bytes_max"
        } else {
            "realtime.message_bytes_max"
        };
        let message = format!("a message may have at most {max} bytes ({setting})");
        ApiError::caller(ErrorKind::TooLarge, "message_too_large", message)
    }

    /// A share for a message of this length, or of any length.
    fn reserve(&self, length: u64) -> LongMessage {
        let share = self.bodies.reserve(length, self.bodies_max);
        share.ok_or_else(|| {
            let message = "too many requests with long bodies are being read";
            ApiError::capacity("media_full", message, self.retry_after)
        })
    }
}

impl<S: AsyncRead> MessageGate<S> {
    pub(super) fn new(socket: S, limits: GateLimits) -> Self {
        Self {
            socket: BufReader::with_capacity(READ_BYTES, socket),
            frames: FrameFilter {
                limits,
                place: Place::Head,
                head: Vec::with_capacity(HEAD_BYTES_MAX),
                ready: VecDeque::with_capacity(HEAD_BYTES_MAX),
                frame: Frame::default(),
                message_bytes: 0,
                begun: 0,
                taken: 0,
                long: VecDeque::new(),
            },
        }
    }

    /// Counts a message that the library has given; `None`: it is not a long one.
    pub(super) fn take_arrival(&mut self) -> Option<LongMessage> {
        let frames = &mut self.frames;
        frames.taken += 1;
        let taken = frames.taken;
        let long = frames.long.pop_front_if(|long| long.number == taken)?;
        Some(long.arrival)
    }

    /// When the oldest long message began that has not arrived.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.frames.long.front().map(|long| long.since)
    }
}

impl FrameFilter {
    /// Takes bytes of the client. Returns how many; heads for the library are in `ready`.
    fn take(&mut self, input: &[u8], out: &mut ReadBuf<'_>) -> usize {
        match self.place {
            Place::Head => {
                let count = (head_bytes(&self.head) - self.head.len()).min(input.len());
                self.head.extend_from_slice(&input[..count]);
                if self.head.len() == head_bytes(&self.head) {
                    self.begin_frame();
                }
                count
            }
            Place::Passed(left) => {
                let count = at_most(left, input.len().min(out.remaining()));
                out.put_slice(&input[..count]);
                match left - count as u64 {
                    0 if self.frame.left > 0 => self.begin_piece(0),
                    left => self.place = Place::Passed(left).or_head(),
                }
                count
            }
            Place::Dropped(left) => {
                let count = at_most(left, input.len());
                self.place = Place::Dropped(left - count as u64).or_head();
                count
            }
        }
    }

    /// Decides about a frame whose head is complete.
    fn begin_frame(&mut self) {
        let (first, length, mask) = parse_head(&self.head);
        self.head.clear();
        let (is_final, opcode) = (first & FINAL != 0, first & OPCODE);
        let left = length;
        self.frame = Frame { first, mask, left };
        if opcode & CONTROL != 0 {
            return self.begin_piece(first);
        }
        if opcode != 0 {
            self.begun += 1;
            self.message_bytes = 0;
        }
        self.message_bytes = self.message_bytes.saturating_add(length);
        if self.message_bytes > DROPPED_BYTES_MAX.max(self.limits.long_max as u64) {
            // The library refuses this length, and the session closes the connection.
            self.push_head(first, u64::MAX >> 1);
            self.place = Place::Dropped(u64::MAX);
        } else if self.may_pass(is_final && opcode != 0) {
            self.begin_piece(first);
        } else {
            self.push_head(first, 0);
            self.place = Place::Dropped(length).or_head();
        }
    }

    /// Whether the bytes of the message may pass, up to the end of a frame. `is_whole`: it has one frame.
    fn may_pass(&mut self, is_whole: bool) -> bool {
        let (bytes, limits) = (self.message_bytes, &self.limits);
        if bytes <= limits.plain_max as u64 {
            return true;
        }
        let long_max = limits.long_max as u64;
        let number = self.begun;
        let is_known = self.long.back().is_some_and(|long| long.number == number);
        if !is_known {
            let longest = if is_whole { bytes } else { long_max };
            self.long.push_back(ArrivingMessage {
                number,
                since: clock::now(),
                arrival: if bytes > long_max {
                    Err(limits.too_long())
                } else {
                    limits.reserve(longest)
                },
            });
        }
        let Some(message) = self.long.back_mut() else {
            return false;
        };
        if bytes > long_max && message.arrival.is_ok() {
            message.arrival = Err(limits.too_long());
        }
        message.arrival.is_ok()
    }

    /// Begins a piece of a frame; further pieces continue the first one.
    fn begin_piece(&mut self, first: u8) {
        let piece = self.frame.left.min(PIECE_BYTES);
        self.frame.left -= piece;
        let is_last = self.frame.left == 0;
        let end = if is_last { self.frame.first & FINAL } else { 0 };
        self.push_head(first & !FINAL | end, piece);
        self.place = Place::Passed(piece).or_head();
    }

    fn push_head(&mut self, first: u8, length: u64) {
        let mask = self.frame.mask;
        let masked = mask.map_or(0, |_| MASKED);
        self.ready.push_back(first);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(length), _) if length < LENGTH_16 => self.ready.push_back(masked | length),
            (_, Ok(length)) => {
                self.ready.push_back(masked | LENGTH_16);
                self.ready.extend(length.to_be_bytes());
            }
            _ => {
                self.ready.push_back(masked | LENGTH_64);
                self.ready.extend(length.to_be_bytes());
            }
        }
        self.ready.extend(mask.into_iter().flatten());
    }

    /// Moves bytes of heads to the library.
    fn hand_out(&mut self, out: &mut ReadBuf<'_>) {
        let count = self.ready.len().min(out.remaining());
        for byte in self.ready.drain(..count) {
            out.put_slice(&[byte]);
        }
    }
}

impl Place {
    /// The place, or the next head where no bytes are left.
    fn or_head(self) -> Self {
        match self {
            Self::Passed(0) | Self::Dropped(0) => Self::Head,
            place => place,
        }
    }
}

/// Bytes of the head that begins with these, as far as they tell.
fn head_bytes(head: &[u8]) -> usize {
    let Some(second) = head.get(1) else {
        return 2;
    };
    let length = match second & !MASKED {
        LENGTH_16 => 2,
        LENGTH_64 => 8,
        _ => 0,
    };
    let mask = if second & MASKED == 0 { 0 } else { 4 };
    2 + length + mask
}

/// First byte, length and mask of a complete head.
fn parse_head(head: &[u8]) -> (u8, u64, Option<[u8; 4]>) {
    let (first, second) = (head[0], head[1]);
    let short = second & !MASKED;
    let (length, mask) = match short {
        LENGTH_16 => head[2..].split_at(2),
        LENGTH_64 => head[2..].split_at(8),
        _ => head[1..].split_at(1),
    };
    let length = match short {
        LENGTH_16 | LENGTH_64 => length
            .iter()
            .fold(0, |length, &byte| length << 8 | u64::from(byte)),
        short => u64::from(short),
    };
    (first, length, mask.first_chunk().copied())
}

fn at_most(left: u64, count: usize) -> usize {
    usize::try_from(left).map_or(count, |left| left.min(count))
}

impl<S: AsyncRead + Unpin> AsyncRead for MessageGate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { socket, frames } = self.get_mut();
        let before = out.filled().len();
        loop {
            frames.hand_out(out);
            if out.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut socket = Pin::new(&mut *socket);
            let input = match socket.as_mut().poll_fill_buf(cx) {
                Poll::Pending if out.filled().len() == before => return Poll::Pending,
                Poll::Pending | Poll::Ready(Ok([])) => return Poll::Ready(Ok(())),
                Poll::Ready(input) => input?,
            };
            let count = frames.take(input, out);
            socket.consume(count);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MessageGate<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

// The path holds also where an example has this file as its own module.
#[cfg(test)]
#[path = "message_gate/tests.rs"]
mod tests;
