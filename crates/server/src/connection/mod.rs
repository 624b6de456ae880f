//! One connection, from the first byte to the last.
//!
//! ```text
//! client_socket       the socket: TCP, TLS or Unix; its options, a listening Unix socket, and its end while the client still sends
//! connection_limiter  connections of all clients, and one above a limit
//! handover            how a streamed response or an upgrade leaves the HTTP library after the response head
//! tls                 encrypted connections
//! send_buffer         how many bytes the kernel may hold, few of a stream; its chunks on the socket
//! ```

pub(crate) mod client_socket;
pub(crate) mod connection_limiter;
pub(crate) mod handover;
#[cfg(fuzzing)]
pub(crate) mod in_memory;
mod send_buffer;
pub(crate) mod tls;

use crate::access::cross_origin::RequestOrigin;
use crate::app::App;
use crate::config::server_config::ServerConfig;
use crate::connection::handover::Upgrade;
use crate::metrics::CountedSocket;
use crate::request::paths::{self, PrefixPlace};
use crate::request_line::{self, AnsweredStream, RequestLine};
use crate::response;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use client_socket::BufferedStream;
use client_socket::ClientSocket;
use futures_util::FutureExt;
use gateway::streams::ResponseStream;
use generate::error::{ApiError, ErrorKind};
use handover::{ClaimedStream, Handover, RequestFacts};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use send_buffer::SendBuffer;
use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tower::ServiceExt;
use wire::shared::error_response::RejectedWith;

pub(crate) use handover::StreamedResponse;
pub(crate) use send_buffer::AnswerBuffers;

/// Reason of a connection that was closed because the client did not read the end of a stream.
const UNREAD: &str = "unread";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The request id header of Anthropic's API.
const REQUEST_ID_PLAIN: HeaderName = HeaderName::from_static("request-id");

/// For answers that say nothing about caches: they show a state.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Time that a connection without a request yet is given when draining begins: the client, often a proxy with a
/// connection per request, may have sent it already.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(1);

/// Answers requests until the client disconnects or breaks a limit, or until `draining` is true and the current
/// response is sent; then runs the upgrade that the last request left (see [`Upgrade`]). A request head that is half
/// sent when draining begins may be completed and is answered; `header_timeout` bounds the wait. The first request of a
/// connection is waited for, too, for a second at most.
pub(crate) async fn serve_connection(
    stream: Box<ClientSocket>,
    router: Router,
    app: App,
    draining: watch::Receiver<bool>,
) {
    let handover = Arc::new(Handover::default());
    let socket = CountedSocket::new(stream, Arc::clone(&app.metrics));
    let send_buffer = Arc::new(SendBuffer::new(&app.config.now()));
    let mut buffered = BufferedStream::new(socket, Arc::clone(&handover), Arc::clone(&send_buffer));
    let cut = Arc::new(Notify::new());
    let mut connection = HttpConnection {
        service: RequestService {
            router,
            app: app.clone(),
            handover,
            send_buffer,
            cut: Arc::clone(&cut),
        },
        upgrade: Upgrade::default(),
        draining,
    };
    let all = async {
        while let Some((socket, claimed)) = connection.serve_http(buffered).await {
            buffered = socket;
            if let Err(error) = send_buffer::send_stream(&mut buffered, claimed.body).await {
                return tracing::debug!(%error, "connection ended early");
            }
            if claimed.is_last || *connection.draining.borrow() {
                let _ = buffered.shutdown().await;
                return;
            }
        }
        if let Some(next) = connection.upgrade.take_continuation() {
            next.await;
        }
    };
    tokio::select! {
        () = all => {}
        () = cut.notified() => app.metrics.count_rejection(UNREAD),
    }
}

/// State that the requests of one connection share.
struct HttpConnection {
    service: RequestService,
    upgrade: Upgrade,
    draining: watch::Receiver<bool>,
}

/// Handles for answering one request.
#[derive(Clone)]
struct RequestService {
    router: Router,
    app: App,
    handover: Arc<Handover>,
    send_buffer: Arc<SendBuffer>,
    /// Notified when the connection must be closed at once.
    cut: Arc<Notify>,
}

impl HttpConnection {
    /// Lets the HTTP library answer requests up to one with a streamed response. Returns that response and the socket
    /// after the response head is sent; `None` when the connection is closed.
    async fn serve_http(
        &mut self,
        buffered: BufferedStream,
    ) -> Option<(BufferedStream, ClaimedStream)> {
        let service = {
            let (service, upgrade) = (self.service.clone(), self.upgrade.clone());
            service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(upgrade.clone());
                service.clone().respond(request)
            })
        };
        let http = http_settings(&self.service.app.config.now());
        let connection = http.serve_connection(TokioIo::new(buffered), service);
        let mut connection = connection.with_upgrades();
        let handover = &self.service.handover;
        let mut draining = pin!(draining_begun(&mut self.draining, handover));
        let mut is_draining = false;
        let ended = poll_fn(|cx| {
            loop {
                if !is_draining && draining.as_mut().poll(cx).is_ready() {
                    is_draining = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                let had_request = handover.has_request();
                if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                    return Poll::Ready(Err(ended));
                }
                if let Some(claimed) = handover.take_stream() {
                    return Poll::Ready(Ok(claimed));
                }
                if is_draining || had_request == handover.has_request() {
                    return Poll::Pending;
                }
            }
        });
        match ended.await {
            Ok(claimed) => {
                let parts = connection.into_parts()?;
                let mut buffered = parts.io.into_inner();
                buffered.put_back(&parts.read_buf);
                Some((buffered, claimed))
            }
            Err(Ok(())) => {
                if handover.has_unread_body()
                    && let Some(parts) = connection.into_parts()
                {
                    let time_max = self.service.app.config.now().body_timeout;
                    let socket = parts.io.into_inner();
                    // On the heap: few connections end like this.
                    Box::pin(client_socket::drop_rest(socket, time_max)).await;
                }
                None
            }
            Err(Err(error)) => {
                tracing::debug!(%error, "connection ended early");
                None
            }
        }
    }
}

/// Ready when draining has begun, or when the sender was dropped, and the connection had time for its first request. To be
/// polled after each request as well, which wakes nobody here.
async fn draining_begun(draining: &mut watch::Receiver<bool>, handover: &Handover) {
    let _ = draining.wait_for(|&draining| draining).await;
    // On the heap: an idle connection has no room for a timer.
    let mut time = Box::pin(sleep(FIRST_REQUEST_MAX));
    poll_fn(|cx| {
        if handover.has_request() {
            Poll::Ready(())
        } else {
            time.poll_unpin(cx)
        }
    })
    .await;
}

/// Settings of the HTTP library. Vectored writes are off: where the library sends a stream (to HTTP/1.0 clients),
/// each frame is copied into one small buffer, whose size bounds what a slow reader can hide.
fn http_settings(config: &ServerConfig) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_headers(config.headers_max)
        .max_header_size(config.header_bytes_max)
        .max_buf_size(config.connection_buffer_bytes)
        .writev(false);
    http
}

impl RequestService {
    async fn respond(self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        self.handover.note_request();
        let config = self.app.config.now();
        let place = paths::enter_prefix(request.uri_mut(), &config.api_prefix);
        let source = RequestOrigin::of(request.headers(), &config.origins);
        request.extensions_mut().insert(source.clone());
        let uri = request.uri().clone();
        let ids = &self.app.gateway.generations.ids;
        let id = request_line::given_id(request.headers());
        let id = id.unwrap_or_else(|| ids.prefixed_id("req-"));
        let line = Arc::new(RequestLine::new(id, request.method()));
        request.extensions_mut().insert(Arc::clone(&line));
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (facts, request) = RequestFacts::of_request(request);
        let answered = match place {
            PrefixPlace::Below => {
                let answer = self.router.oneshot(request.map(Body::new));
                AssertUnwindSafe(answer).catch_unwind().await
            }
            PrefixPlace::Root => Ok(Ok(to_root(&config.api_prefix))),
            PrefixPlace::Outside => Ok(Ok(outside_prefix(uri.path(), &config.api_prefix))),
        };
        let mut response = match answered {
            Ok(Ok(response)) => response,
            Err(_) => {
                let message = "this request failed; others are not affected";
                response::for_path(uri.path(), &ApiError::ours("internal_error", message))
            }
        };
        if !facts.is_read() {
            self.handover.note_unread_body();
        }
        note_response(&line, &mut response);
        if let Some(answers) = response.extensions_mut().remove::<ResponseStream>() {
            answers.carried_by(&self.cut);
        }
        self.handover.claim_stream(&facts, &mut response);
        facts.close_after_trailers(&mut response);
        if let Ok(id) = HeaderValue::try_from(line.id()) {
            response.headers_mut().insert(REQUEST_ID, id.clone());
            response.headers_mut().insert(REQUEST_ID_PLAIN, id);
        }
        if is_read {
            let caching = response.headers_mut().entry(header::CACHE_CONTROL);
            caching.or_insert(NO_STORE);
        }
        source.add_headers(&mut response);
        let piece_bytes = config.connection_buffer_bytes;
        let buffers = &self.app.answer_buffers;
        Ok(self
            .send_buffer
            .prepare_response(response, buffers, piece_bytes))
    }
}

/// Notes status, error and generation of a response. The line of a streamed response stays with its body.
fn note_response(line: &Arc<RequestLine>, response: &mut Response<Body>) {
    line.set_status(response.status().as_u16());
    let extensions = response.extensions_mut();
    if let Some(RejectedWith(code)) = extensions.get() {
        line.set_error(code);
    }
    if let Some(AnsweredStream(source)) = extensions.remove() {
        line.set_source(source);
    }
    if let Some(streamed) = extensions.get::<StreamedResponse>() {
        line.set_streamed();
        streamed.keep_line(line);
    }
}

/// The redirection from the prefix to the prefix with a slash, by which the links of the page are relative.
fn to_root(prefix: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(root) = HeaderValue::try_from(format!("{prefix}/")) {
        response.headers_mut().insert(header::LOCATION, root);
    }
    response
}

/// The response to a request for a path that is not below the prefix.
fn outside_prefix(path: &str, prefix: &str) -> Response<Body> {
    let message = format!("unknown path: all paths begin with {prefix} (server.api_prefix)");
    let error = ApiError::caller(ErrorKind::NotFound, "not_found", message);
    response::for_path(path, &error)
}
