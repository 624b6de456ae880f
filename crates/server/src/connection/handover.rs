//! A streamed response leaves the HTTP library after the response head is sent.
//!
//! The library reads requests and writes response heads. A streamed body needs only chunked framing, while the
//! library would keep two buffers of 8 KiB for the length of the stream and copy each frame. Therefore the connection
//! takes the socket back for the time of the stream.
//!
//! # States
//!
//! - *Idle*. The library has the socket. The body of a request may be arriving.
//! - *Claimed*. The handler's response is a [`StreamedResponse`], the request's body was read to the end and was not
//!   chunked, and the client speaks HTTP/1.1: the stream waits here, and the library was given a body without an end.
//! - *Written*. The library polled that body for the first frame: the response head is in the library's buffer.
//! - *Out*. The library flushed the socket after that: the whole head is sent. From here on the connection may take
//!   the library apart; bytes that the library has read ahead belong to the next request.
//!
//! All transitions happen in the one task of the connection, which polls the library, which polls the handler, the
//! body and the socket; so the lock is never contended. The flush of an earlier response cannot be mistaken for the
//! flush of this one: the library answers one request at a time, and *Written* follows only *Claimed*.

use crate::request_line::RequestLine;
use crate::response::stream_body::StreamBody;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

/// A streamed body on the way from the handler to the connection, as an extension of the response.
#[derive(Clone)]
pub(crate) struct StreamedResponse(Arc<SharedBody>);

struct SharedBody {
    body: Mutex<Option<Box<StreamBody>>>,
    /// The connection that sends the body, if the library does not.
    claimed_by: OnceLock<Arc<Handover>>,
}

impl StreamedResponse {
    /// The body for the HTTP library, and the stream for a connection that sends the body without the library.
    pub(crate) fn new(body: StreamBody) -> (StreamedBody, Self) {
        let shared = Arc::new(SharedBody {
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

impl StreamedResponse {
    /// Lets the line of the log live as long as the body.
    pub(super) fn keep_line(&self, line: &Arc<RequestLine>) {
        if let Some(body) = lock(&self.0.body).as_mut() {
            body.keep_line(line);
        }
    }
}

/// The body in the hands of the HTTP library: the stream, or an endless body without frames if the connection sends
/// the stream.
pub(crate) struct StreamedBody {
    shared: Arc<SharedBody>,
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
            handover.head_written();
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

    /// Unknown, so that the library uses chunked framing.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// State of a connection and the stream that the connection will send.
#[derive(Default)]
pub(super) struct Handover {
    state: Mutex<HandoverState>,
    /// Whether the connection has had a request.
    has_request: AtomicBool,
    /// Whether the last request was answered before its body was read to the end.
    has_unread_body: AtomicBool,
}

#[derive(Default)]
enum HandoverState {
    #[default]
    Idle,
    Claimed(ClaimedStream),
    Written(ClaimedStream),
    Out(ClaimedStream),
}

/// A stream that the connection sends without the library.
pub(super) struct ClaimedStream {
    pub(super) body: Box<StreamBody>,
    /// Whether the connection is closed after this response.
    pub(super) is_last: bool,
}

impl Handover {
    /// Records that the connection has had a request, whose body arrives now.
    pub(super) fn note_request(&self) {
        self.has_request.store(true, Ordering::Relaxed);
        self.has_unread_body.store(false, Ordering::Relaxed);
    }

    /// Records that the last request is answered before its body was read to the end.
    pub(super) fn note_unread_body(&self) {
        self.has_unread_body.store(true, Ordering::Relaxed);
    }

    /// Whether the client may still send the body of a request that was answered.
    pub(super) fn has_unread_body(&self) -> bool {
        self.has_unread_body.load(Ordering::Relaxed)
    }

    /// Whether the connection has had a request.
    pub(super) fn has_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    /// Takes the stream from a response, if this connection can send the stream without the library.
    pub(super) fn claim_stream<B>(
        self: &Arc<Self>,
        facts: &RequestFacts,
        response: &mut Response<B>,
    ) {
        let Some(StreamedResponse(shared)) = response.extensions_mut().remove::<StreamedResponse>()
        else {
            return;
        };
        if !facts.is_eligible() || has_close(response.headers()) {
            return;
        }
        let Some(body) = lock(&shared.body).take() else {
            return;
        };
        let is_last = facts.is_last;
        *self.lock() = HandoverState::Claimed(ClaimedStream { body, is_last });
        let _ = shared.claimed_by.set(Arc::clone(self));
    }

    /// Records that the response head is in the library's buffer.
    fn head_written(&self) {
        let mut state = self.lock();
        *state = match std::mem::take(&mut *state) {
            HandoverState::Claimed(claimed) => HandoverState::Written(claimed),
            state => state,
        };
    }

    /// Records that all written bytes are sent.
    pub(super) fn head_flushed(&self) {
        let mut state = self.lock();
        *state = match std::mem::take(&mut *state) {
            HandoverState::Written(claimed) => HandoverState::Out(claimed),
            state => state,
        };
    }

    /// The stream, if the response head is sent.
    pub(super) fn take_stream(&self) -> Option<ClaimedStream> {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            HandoverState::Out(claimed) => Some(claimed),
            other => {
                *state = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HandoverState> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Facts about a request that decide how the response is sent.
pub(super) struct RequestFacts {
    /// An HTTP/1.1 request whose response has a body.
    has_chunks: bool,
    /// The body had a `Content-Length`, or there was none. After a request with both a length and chunks (RFC 9112,
    /// 6.1), the library silently removes the length and closes the connection.
    has_plain_framing: bool,
    is_last: bool,
    is_read: Arc<OnceLock<()>>,
    has_trailers: Arc<OnceLock<()>>,
}

impl RequestFacts {
    /// Collects the facts about a request, and wraps the body to notice the end of the body.
    pub(super) fn of_request<B: Body>(request: Request<B>) -> (Self, Request<WatchedBody<B>>) {
        let facts = Self {
            has_chunks: request.version() == Version::HTTP_11 && request.method() != Method::HEAD,
            has_plain_framing: !request.headers().contains_key(header::TRANSFER_ENCODING),
            is_last: has_close(request.headers()),
            is_read: Arc::default(),
            has_trailers: Arc::default(),
        };
        let (is_read, has_trailers) = (Arc::clone(&facts.is_read), Arc::clone(&facts.has_trailers));
        let watched = request.map(|body| WatchedBody::new(body, is_read, has_trailers));
        (facts, watched)
    }

    /// Closes the connection after the response to a request with trailers. The library parses a bare LF after the
    /// last chunk as the beginning of trailers, so the trailers may be the next request. Common clients send no
    /// trailers.
    pub(super) fn close_after_trailers<B>(&self, response: &mut Response<B>) {
        if self.has_trailers.get().is_some() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }

    /// Whether the response can be sent without the library: the next bytes on the socket are a new request.
    fn is_eligible(&self) -> bool {
        self.has_chunks && self.has_plain_framing && self.is_read()
    }

    /// Whether the body was read to its end.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.get().is_some()
    }
}

/// A request's body that records the end of the body, and whether trailers arrived.
pub(super) struct WatchedBody<B> {
    body: B,
    is_read: Arc<OnceLock<()>>,
    has_trailers: Arc<OnceLock<()>>,
}

impl<B: Body> WatchedBody<B> {
    fn new(body: B, is_read: Arc<OnceLock<()>>, has_trailers: Arc<OnceLock<()>>) -> Self {
        let watched = Self {
            body,
            is_read,
            has_trailers,
        };
        if watched.body.is_end_stream() {
            watched.mark_read();
        }
        watched
    }

    fn mark_read(&self) {
        let _ = self.is_read.set(());
    }
}

impl<B: Body + Unpin> Body for WatchedBody<B> {
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
            self.mark_read();
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

/// Whether the header fields contain `Connection: close`.
fn has_close(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::CONNECTION).iter();
    let mut options = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    options.any(|option| option.trim().eq_ignore_ascii_case("close"))
}

/// Slot in which a handler stores the continuation of the connection after the response head (101) is sent. The
/// connection's own task runs the continuation: the connection is counted as open until the end, and a graceful
/// shutdown waits for the continuation.
#[derive(Clone, Default)]
pub(crate) struct Upgrade(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Upgrade {
    /// Sets the continuation.
    pub(crate) fn set_continuation(&self, next: BoxFuture<'static, ()>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Takes the continuation, if there is one.
    pub(crate) fn take_continuation(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
