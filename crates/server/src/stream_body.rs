//! A generation as an HTTP body: frames are made when the connection can take them.

use crate::admission::Place;
use crate::dialect::Dialect;
use crate::error::ApiError;
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
    source: Source,
    dialect: Box<dyn Dialect>,
    frames: FrameBuffer,
    keep_alive: KeepAlive,
    opened: bool,
}

/// A generation that is on its way.
pub(crate) type Beginning = Pin<Box<dyn Future<Output = Result<Generation, ApiError>> + Send>>;

enum Source {
    /// In the wait queue, or on the way from there.
    Waiting(Beginning, Place),
    Running(Generation),
    /// After the last frame: everything the stream held is given back at once.
    Over,
}

impl StreamBody {
    /// A stream nothing was said on yet.
    pub(crate) fn new(
        generation: Generation,
        dialect: Box<dyn Dialect>,
        keep_alive: Duration,
    ) -> Self {
        Self::of(Source::Running(generation), dialect, keep_alive)
    }

    /// A stream whose generation has to wait for its permit. It says where it stands.
    pub(crate) fn waiting(
        beginning: Beginning,
        place: Place,
        dialect: Box<dyn Dialect>,
        keep_alive: Duration,
    ) -> Self {
        Self::of(Source::Waiting(beginning, place), dialect, keep_alive)
    }

    fn of(source: Source, dialect: Box<dyn Dialect>, keep_alive: Duration) -> Self {
        Self {
            source,
            dialect,
            frames: FrameBuffer::default(),
            keep_alive: KeepAlive::new(keep_alive),
            opened: false,
        }
    }

    /// Waits for the generation; false when there is nothing to say. The first time it says where
    /// it stands, so that the client knows at once.
    fn wait(&mut self, cx: &mut Context<'_>) -> bool {
        let Source::Waiting(beginning, place) = &mut self.source else {
            return true;
        };
        match beginning.as_mut().poll(cx) {
            Poll::Ready(Ok(generation)) => {
                self.source = Source::Running(generation);
                self.opened = false;
                true
            }
            Poll::Ready(Err(error)) => {
                self.dialect.refuse(&error, self.frames.begin());
                self.source = Source::Over;
                true
            }
            Poll::Pending if self.opened => false,
            Poll::Pending => {
                self.opened = true;
                let position = place.position();
                let out = self.frames.begin();
                position.inspect(|&position| self.dialect.queued(position, out));
                true
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.source, Source::Over)
    }

    /// Nothing was said for a while.
    fn still_here(&mut self) {
        let out = self.frames.begin();
        match &self.source {
            Source::Waiting(_, place) => match place.position() {
                Some(position) => self.dialect.queued(position, out),
                None => self.dialect.ping(out),
            },
            _ => self.dialect.ping(out),
        }
    }

    /// Writes what is to be said next into the frame buffer; false when there is nothing now.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.source, Source::Waiting(..)) {
            return self.wait(cx);
        }
        let Source::Running(generation) = &mut self.source else {
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
                self.source = Source::Over;
            }
            Poll::Ready(Turn::Broken(end)) => {
                dialect.fail(end, generation.usage(), out);
                tracing::debug!(?end, "stream ended badly");
                self.source = Source::Over;
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
        while !this.is_over() {
            let spoke = this.write(cx);
            if spoke {
                this.keep_alive.spoke();
            } else if this.keep_alive.poll(cx).is_ready() {
                this.still_here();
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
        self.is_over()
    }
}

#[cfg(test)]
mod tests;
