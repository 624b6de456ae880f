//! A generation as an HTTP body: frames are made when the connection can take them.

use crate::dialect::Dialect;
use crate::event::Event;
use crate::frame_buffer::FrameBuffer;
use crate::generation::{Generation, Turn};
use crate::keep_alive::KeepAlive;
use bytes::Bytes;
use http_body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A frame this long takes no further choice's events.
const FRAME_BYTES_ENOUGH: usize = 16 << 10;

/// The body of a streamed answer.
///
/// Credit: being asked for the next frame means that the connection took the one before into its
/// own buffer, which is small (`connection_buffer_bytes`) and is only refilled when the kernel, told
/// to keep little unsent, took from it. So a token counts as accepted when it is within those
/// few kilobytes of the wire; a client that does not read stops being asked for soon after.
pub(crate) struct StreamBody {
    /// `None` after the last frame: everything the stream held is given back at once.
    generation: Option<Generation>,
    dialect: Box<dyn Dialect>,
    frames: FrameBuffer,
    keep_alive: KeepAlive,
    opened: bool,
}

impl StreamBody {
    /// A stream nothing was said on yet.
    pub(crate) fn new(
        generation: Generation,
        dialect: Box<dyn Dialect>,
        keep_alive: Duration,
    ) -> Self {
        Self {
            generation: Some(generation),
            dialect,
            frames: FrameBuffer::default(),
            keep_alive: KeepAlive::new(keep_alive),
            opened: false,
        }
    }

    /// Writes what is to be said next into the frame buffer; false when there is nothing now.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(generation) = &mut self.generation else {
            return false;
        };
        let (out, dialect) = (self.frames.begin(), &mut self.dialect);
        if !self.opened {
            self.opened = true;
            dialect.open(generation.choices(), generation.usage(), out);
            return true;
        }
        generation.accept();
        let mut tell = |event: Event<'_>| {
            dialect.event(&event, out);
            out.len() < FRAME_BYTES_ENOUGH
        };
        match generation.poll_turn(cx, &mut tell) {
            Poll::Pending => return false,
            Poll::Ready(Turn::Open) => {}
            Poll::Ready(Turn::Ended) => {
                dialect.close(generation.usage(), out);
                self.generation = None;
            }
            Poll::Ready(Turn::Broken(end)) => {
                dialect.fail(end, generation.usage(), out);
                tracing::debug!(?end, "stream ended badly");
                self.generation = None;
            }
        }
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
        while this.generation.is_some() {
            let spoke = this.write(cx);
            if spoke {
                this.keep_alive.spoke();
            } else if this.keep_alive.poll(cx).is_ready() {
                this.dialect.ping(this.frames.begin());
            }
            match this.frames.take() {
                Some(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None if spoke => {}
                None => return Poll::Pending,
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.generation.is_none()
    }
}

#[cfg(test)]
mod tests;
