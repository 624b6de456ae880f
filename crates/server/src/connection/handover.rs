//! An answer that is a stream leaves the HTTP library once its head is out.
//!
//! The library reads requests and writes heads. A streamed body needs nothing more of it than chunks, and
//! as long as it lasts the library would hold two buffers of 8 KiB and copy each frame. So the connection
//! takes the socket back for the time of the stream.
//!
//! # States
//!
//! - *Idle*. The library has the socket. A request's body may be coming.
//! - *Claimed*. The handler's answer is a [`Streamed`], the request was read to its end and was not in chunks, and the
//!   client speaks HTTP/1.1: the stream waits here, and the library was given a body without an end.
//! - *Written*. The library asked that body for its first frame: the head is in its buffer.
//! - *Out*. It flushed the socket after that: nothing of it is unsent. From here on the connection may take
//!   the library apart, and what that has read ahead belongs to the next request.
//!
//! All of it happens in the one task of the connection, which polls the library, which polls the handler,
//! the body and the socket; so the lock is never waited for. A flush of an earlier answer cannot be taken
//! for this one's: the library answers one request at a time, and *Written* comes only after *Claimed*.

use crate::stream_body::StreamBody;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

/// A streamed body on its way from its handler to the connection: rides on the answer.
#[derive(Clone)]
pub(crate) struct Streamed(Arc<Shared>);

struct Shared {
    body: Mutex<Option<Box<StreamBody>>>,
    /// The connection that sends it, if the library does not.
    claimed_by: OnceLock<Arc<Handover>>,
}

impl Streamed {
    /// The answer's body for whoever carries it, and the stream for a connection that wants it itself.
    pub(crate) fn new(body: StreamBody) -> (StreamedBody, Self) {
        let shared = Arc::new(Shared {
            body: Mutex::new(Some(Box::new(body))),
            claimed_by: OnceLock::new(),
        });
        let carried = StreamedBody {
            shared: Arc::clone(&shared),
            own: None,
        };
        (carried, Self(shared))
    }
}

/// What the HTTP library has for a body: the stream, or nothing, for ever, if the connection sends it.
pub(crate) struct StreamedBody {
    shared: Arc<Shared>,
    own: Option<Box<StreamBody>>,
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(handover) = self.shared.claimed_by.get() {
            handover.written();
            return Poll::Pending;
        }
        let this = self.get_mut();
        if this.own.is_none() {
            this.own = lock(&this.shared.body).take();
        }
        match &mut this.own {
            Some(body) => Pin::new(body.as_mut()).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.own.as_deref().is_some_and(Body::is_end_stream)
    }

    /// Unknown, so that it is sent in chunks.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Where a connection is with the stream that it is to send.
#[derive(Default)]
pub(super) struct Handover(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Claimed(Taken),
    Written(Taken),
    Out(Taken),
}

/// A stream, and what comes after it.
pub(super) struct Taken {
    pub(super) body: Box<StreamBody>,
    /// The client wants no further answer on this connection.
    pub(super) is_last: bool,
}

impl Handover {
    /// Takes the stream from an answer, if this connection can send it itself.
    pub(super) fn claim<B>(self: &Arc<Self>, asked: &Asked, answer: &mut Response<B>) {
        let Some(Streamed(shared)) = answer.extensions_mut().remove::<Streamed>() else {
            return;
        };
        if !asked.is_eligible() || has_close(answer.headers()) {
            return;
        }
        let Some(body) = lock(&shared.body).take() else {
            return;
        };
        let is_last = asked.is_last;
        *self.lock() = State::Claimed(Taken { body, is_last });
        let _ = shared.claimed_by.set(Arc::clone(self));
    }

    /// The head is in the library's buffer.
    fn written(&self) {
        let mut state = self.lock();
        *state = match std::mem::take(&mut *state) {
            State::Claimed(taken) => State::Written(taken),
            state => state,
        };
    }

    /// All that was written is out.
    pub(super) fn flushed(&self) {
        let mut state = self.lock();
        *state = match std::mem::take(&mut *state) {
            State::Written(taken) => State::Out(taken),
            state => state,
        };
    }

    /// The stream, if its head is out.
    pub(super) fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            State::Out(taken) => Some(taken),
            other => {
                *state = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has to be known of a request when it is answered.
pub(super) struct Asked {
    /// HTTP/1.1, and not a question for the head alone.
    has_chunks: bool,
    /// The body had a `Content-Length`, or there was none. The library closes the connection after a request with both
    /// a length and chunks (RFC 9112, 6.1), takes the length out, and tells nobody.
    has_plain_framing: bool,
    is_last: bool,
    is_read: Arc<OnceLock<()>>,
    has_trailers: Arc<OnceLock<()>>,
}

impl Asked {
    /// Notes it, and puts a watch on the request's body.
    pub(super) fn of<B: Body>(request: Request<B>) -> (Self, Request<Watched<B>>) {
        let asked = Self {
            has_chunks: request.version() == Version::HTTP_11 && request.method() != Method::HEAD,
            has_plain_framing: !request.headers().contains_key(header::TRANSFER_ENCODING),
            is_last: has_close(request.headers()),
            is_read: Arc::default(),
            has_trailers: Arc::default(),
        };
        let (is_read, has_trailers) = (Arc::clone(&asked.is_read), Arc::clone(&asked.has_trailers));
        let watched = request.map(|body| Watched::new(body, is_read, has_trailers));
        (asked, watched)
    }

    /// Closes the connection after the answer to a request with trailers. The library takes a bare LF after the last
    /// chunk for the beginning of trailers, so what it took may be the next request. (Nobody's clients send trailers.)
    pub(super) fn close_after_trailers<B>(&self, answer: &mut Response<B>) {
        if self.has_trailers.get().is_some() {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
        }
    }

    /// Whether the answer can be sent without the library: what comes next on the socket is a new request.
    fn is_eligible(&self) -> bool {
        self.has_chunks && self.has_plain_framing && self.is_read.get().is_some()
    }
}

/// A request's body that notes when all of it was read, and whether trailers came.
pub(super) struct Watched<B> {
    body: B,
    is_read: Arc<OnceLock<()>>,
    has_trailers: Arc<OnceLock<()>>,
}

impl<B: Body> Watched<B> {
    fn new(body: B, is_read: Arc<OnceLock<()>>, has_trailers: Arc<OnceLock<()>>) -> Self {
        let watched = Self {
            body,
            is_read,
            has_trailers,
        };
        if watched.body.is_end_stream() {
            watched.note();
        }
        watched
    }

    fn note(&self) {
        let _ = self.is_read.set(());
    }
}

impl<B: Body + Unpin> Body for Watched<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && frame.is_trailers()
        {
            let _ = self.has_trailers.set(());
        }
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.note();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether `Connection: close` is among the fields.
fn has_close(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::CONNECTION).iter();
    let mut options = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    options.any(|option| option.trim().eq_ignore_ascii_case("close"))
}
