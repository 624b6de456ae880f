//! A generation as an HTTP body: frames are made when the connection can take them.

use crate::gateway::admission::Place;
use crate::gateway::following::{Followed, Following};
use crate::gateway::generation::Generation;
use crate::keep_alive::KeepAlive;
use crate::wire::cursor::{Closing, Cursor, Marks};
use crate::wire::dialect::Dialect;
use crate::wire::frame_buffer::FrameBuffer;
use crate::wire::framing::Framing;
use crate::wire::json;
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use generate::output::event::{Event, Tell, Usage};
use generate::output::generation_reader::Turn;
use http_body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use stream::End;

/// What a line ends with; the mark is the last field before it.
const LINE_END: &str = "}\n";
/// A frame this long takes no further choice's events.
const FRAME_BYTES_ENOUGH: usize = 16 << 10;

/// The body of a streamed answer.
///
/// Credit: being asked for the next frame means that the kernel, told to keep little unsent, took the one
/// before. So a token counts as accepted when it is within those few kilobytes of the wire; a client that does
/// not read stops being asked for soon after. (Where the HTTP library carries the body, its buffer,
/// `connection_buffer_bytes`, comes on top: for clients of HTTP/1.0.)
pub(crate) struct StreamBody {
    source: Source,
    dialect: Box<dyn Dialect>,
    frames: FrameBuffer,
    keep_alive: KeepAlive,
    following: Following,
    opened: bool,
    closing: Closing,
    /// Where frames say how far the client is, so that it can come back.
    marks: Option<Marks>,
}

/// A generation that is on its way.
pub(crate) type Beginning = Pin<Box<dyn Future<Output = Result<Generation, ApiError>> + Send>>;

#[expect(
    clippy::large_enum_variant,
    reason = "one per stream, and nearly always the large one"
)]
enum Source {
    /// In the wait queue, or on the way from there.
    Waiting {
        beginning: Beginning,
        /// Where that is, for those who wait for a permit of their own.
        place: Option<Place>,
        /// Whether it said so.
        told: bool,
    },
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
        place: Option<Place>,
        dialect: Box<dyn Dialect>,
        keep_alive: Duration,
    ) -> Self {
        let source = Source::Waiting {
            beginning,
            place,
            told: false,
        };
        Self::of(source, dialect, keep_alive)
    }

    /// The same, whose frames say how far the client is.
    pub(crate) fn marked(self, marks: Marks) -> Self {
        Self {
            marks: Some(marks),
            ..self
        }
    }

    /// The same, for a client that was told this before.
    pub(crate) fn resumed(mut self, cursor: &Cursor) -> Self {
        self.dialect.resume(&cursor.reached);
        Self {
            opened: true,
            closing: cursor.closing,
            ..self
        }
    }

    fn of(source: Source, dialect: Box<dyn Dialect>, keep_alive: Duration) -> Self {
        Self {
            source,
            dialect,
            frames: FrameBuffer::default(),
            keep_alive: KeepAlive::new(keep_alive),
            following: Following::default(),
            opened: false,
            closing: Closing::Open,
            marks: None,
        }
    }

    /// Waits for the generation; false when there is nothing to say. The first time it says where
    /// it stands, so that the client knows at once.
    fn wait(&mut self, cx: &mut Context<'_>) -> bool {
        let Source::Waiting {
            beginning,
            place,
            told,
        } = &mut self.source
        else {
            return true;
        };
        match beginning.as_mut().poll(cx) {
            Poll::Ready(Ok(generation)) => {
                self.source = Source::Running(generation);
                true
            }
            Poll::Ready(Err(error)) => {
                let out = self.frames.begin();
                self.dialect.refuse(&error, out);
                json::raw(out, self.dialect.after_fail());
                self.source = Source::Over;
                true
            }
            Poll::Pending if *told => false,
            Poll::Pending => {
                *told = true;
                let position = place.as_ref().and_then(Place::position);
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
            Source::Waiting { place, .. } => match place.as_ref().and_then(Place::position) {
                Some(position) => self.dialect.queued(position, out),
                None => self.dialect.ping(out),
            },
            _ => self.dialect.ping(out),
        }
    }

    /// Writes what is to be said next into the frame buffer; false when there is nothing now.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.source, Source::Waiting { .. }) {
            return self.wait(cx);
        }
        let Source::Running(generation) = &mut self.source else {
            return false;
        };
        let (out, dialect, marks) = (self.frames.begin(), &mut self.dialect, &mut self.marks);
        if !self.opened {
            self.opened = true;
            dialect.open(generation.choices(), generation.usage(), out);
            return true;
        }
        generation.accept();
        let before = out.len();
        dialect.before(generation.usage(), out);
        if out.len() > before {
            return true;
        }
        let mut tell = Writer {
            dialect: &mut **dialect,
            marks: &mut *marks,
            out: &mut *out,
        };
        let end = match generation.poll_turn(cx, &mut tell) {
            Poll::Pending => {
                return match self.following.look(generation, dialect.follows(), cx) {
                    Followed::Nothing => false,
                    Followed::Held => true,
                    Followed::Due(change) => {
                        dialect.change(change, out);
                        true
                    }
                };
            }
            Poll::Ready(Turn::Open) => return true,
            Poll::Ready(Turn::Ended) => None,
            Poll::Ready(Turn::Broken(end)) => Some(end),
        };
        let usage = generation.usage();
        if let (None, Some(first)) = (end, generation.first_end()) {
            dialect.ended_well(first);
        }
        self.close(end, usage);
        self.source = Source::Over;
        true
    }

    /// Writes what comes after the last ending, as far as it was not told before. Each frame has its own
    /// mark.
    fn close(&mut self, broken: Option<End>, usage: Usage) {
        let (out, dialect, marks) = (self.frames.out(), &mut self.dialect, &mut self.marks);
        dialect.before(usage, out);
        let counted = broken.is_none() || usage.completion_tokens > 0;
        if self.closing < Closing::Usage && counted {
            frame(marks, out, closing(Closing::Usage), |out| match broken {
                None => dialect.usage(usage, out),
                Some(end) => dialect.usage_so_far(end, usage, out),
            });
        }
        let Some(end) = broken else {
            return frame(marks, out, closing(Closing::Done), |out| {
                dialect.close(usage, out);
            });
        };
        tracing::debug!(?end, "stream ended with an error");
        let after = dialect.after_fail();
        if self.closing < Closing::Failed {
            let told = match after {
                "" => Closing::Done,
                _ => Closing::Failed,
            };
            frame(marks, out, closing(told), |out| {
                dialect.fail(end, usage, out);
            });
        }
        frame(marks, out, closing(Closing::Done), |out| {
            json::raw(out, after);
        });
    }
}

/// Writes a turn's events.
struct Writer<'a> {
    dialect: &'a mut dyn Dialect,
    marks: &'a mut Option<Marks>,
    out: &'a mut BytesMut,
}

impl Tell for Writer<'_> {
    fn event(&mut self, event: Event<'_>) -> bool {
        let Self {
            dialect,
            marks,
            out,
        } = self;
        dialect.before(event.usage(), out);
        dialect.opening(&event, out);
        let mark = |marks: &mut Marks, out: &mut _| {
            marks.event(event.choice(), event.reached(), out);
        };
        frame(marks, out, mark, |out| dialect.event(&event, out));
        out.len() < FRAME_BYTES_ENOUGH
    }

    fn known(&mut self, event: &Event<'_>) {
        self.dialect.known(event);
    }
}

/// The mark of a frame after the last ending.
fn closing(closing: Closing) -> impl FnOnce(&mut Marks, &mut BytesMut) {
    move |marks, out| marks.closing(closing, out)
}

/// Writes a frame under its mark, where there are marks; where it turns out to be empty, neither.
fn frame(
    marks: &mut Option<Marks>,
    out: &mut BytesMut,
    mark: impl FnOnce(&mut Marks, &mut BytesMut),
    write: impl FnOnce(&mut BytesMut),
) {
    let Some(marks) = marks else {
        return write(out);
    };
    let before = out.len();
    match marks.framing() {
        Framing::Events => {
            mark(marks, out);
            let marked = out.len();
            write(out);
            if out.len() == marked {
                out.truncate(before);
            }
        }
        Framing::Lines => {
            write(out);
            let is_empty = out.len() == before;
            out.truncate(out.len() - if is_empty { 0 } else { LINE_END.len() });
            mark(marks, out);
            match is_empty {
                true => out.truncate(before),
                false => json::raw(out, LINE_END),
            }
        }
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
pub(crate) mod tests;
