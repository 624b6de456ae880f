//! One connection, from the first byte to the last.
//!
//! ```text
//! line         the socket, with bytes that were read ahead
//! handover     how a streamed response leaves the HTTP library after the response head
//! chunks       a streamed response on the socket
//! send_buffer  how many bytes the kernel may hold: few of a stream, more of a response of known length
//! ```

mod chunks;
mod handover;
mod line;
mod send_buffer;

use crate::app::App;
use crate::config::ServerConfig;
use crate::cross_origin::Source;
use crate::gateway::streams::ResponseStream;
use crate::metrics::Wire;
use crate::{error_response, paths};

use crate::upgrade::Upgrade;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, Response};
use futures_util::FutureExt;
use generate::error::ApiError;
use handover::{Asked, Handover, Taken};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use line::Line;
use send_buffer::SendBuffer;
use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tower::ServiceExt;

pub(crate) use handover::Streamed;
pub(crate) use send_buffer::AnswerBuffers;

/// Reason of a connection that was closed because the client did not read the end of a stream.
const UNREAD: &str = "unread";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The request id header of Anthropic's API.
const REQUEST_ID_PLAIN: HeaderName = HeaderName::from_static("request-id");

/// Answers requests until the client disconnects or breaks a limit, or until `draining` is true and the current
/// response is sent; then runs the upgrade that the last request left (see [`Upgrade`]). A request head that is half
/// sent when draining begins may be completed and is answered; `header_timeout` bounds the wait.
pub(crate) async fn run(
    stream: TcpStream,
    router: Router,
    app: App,
    draining: watch::Receiver<bool>,
) {
    let handover = Arc::new(Handover::default());
    let wire = Wire::new(stream, Arc::clone(&app.metrics));
    let send_buffer = Arc::new(SendBuffer::new(&app.config.now()));
    let mut line = Line::new(wire, Arc::clone(&handover), Arc::clone(&send_buffer));
    let cut = Arc::new(Notify::new());
    let mut talk = Talk {
        exchange: Exchange {
            router,
            app: app.clone(),
            handover,
            send_buffer,
            cut: Arc::clone(&cut),
        },
        upgrade: Upgrade::default(),
        draining,
    };
    let whole = async {
        while let Some((socket, taken)) = talk.http(line).await {
            line = socket;
            if let Err(error) = chunks::send(&mut line, taken.body).await {
                return tracing::debug!(%error, "connection ended early");
            }
            if taken.is_last || *talk.draining.borrow() {
                let _ = line.shutdown().await;
                return;
            }
        }
        if let Some(next) = talk.upgrade.take() {
            next.await;
        }
    };
    tokio::select! {
        () = whole => {}
        () = cut.notified() => app.metrics.rejected(UNREAD),
    }
}

/// State that the requests of one connection share.
struct Talk {
    exchange: Exchange,
    upgrade: Upgrade,
    draining: watch::Receiver<bool>,
}

/// Handles for answering one request.
#[derive(Clone)]
struct Exchange {
    router: Router,
    app: App,
    handover: Arc<Handover>,
    send_buffer: Arc<SendBuffer>,
    /// Notified when the connection must be closed at once.
    cut: Arc<Notify>,
}

impl Talk {
    /// Lets the HTTP library answer requests up to one with a streamed response. Returns that response and the socket
    /// after the response head is sent; `None` when the connection is closed.
    async fn http(&mut self, line: Line) -> Option<(Line, Taken)> {
        let service = {
            let (exchange, upgrade) = (self.exchange.clone(), self.upgrade.clone());
            service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(upgrade.clone());
                exchange.clone().respond(request)
            })
        };
        let http = protocol(&self.exchange.app.config.now());
        let connection = http.serve_connection(TokioIo::new(line), service);
        let mut connection = connection.with_upgrades();
        let mut draining = pin!(began(&mut self.draining));
        let mut is_draining = false;
        let handover = &self.exchange.handover;
        let ended = poll_fn(|cx| {
            if !is_draining && draining.as_mut().poll(cx).is_ready() {
                is_draining = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            match Pin::new(&mut connection).poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Err(ended)),
                Poll::Pending => handover
                    .take()
                    .map_or(Poll::Pending, |t| Poll::Ready(Ok(t))),
            }
        });
        match ended.await {
            Ok(taken) => {
                let parts = connection.into_parts()?;
                let mut line = parts.io.into_inner();
                line.put_back(&parts.read_buf);
                Some((line, taken))
            }
            Err(ended) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended early");
                }
                None
            }
        }
    }
}

/// Ready when draining has begun, or when the sender was dropped.
async fn began(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|&draining| draining).await;
}

/// Settings of the HTTP library. Vectored writes are off: where the library sends a stream (to HTTP/1.0 clients),
/// each frame is copied into one small buffer, whose size bounds what a slow reader can hide.
fn protocol(config: &ServerConfig) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_headers(config.headers_max)
        .max_header_size(config.header_bytes_max)
        .max_buf_size(config.connection_buffer_bytes)
        .writev(false);
    http
}

impl Exchange {
    async fn respond(self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        paths::canonicalize(request.uri_mut());
        let source = Source::of(request.headers(), &self.app.config.now().origins);
        request.extensions_mut().insert(source.clone());
        let uri = request.uri().clone();
        let (asked, request) = Asked::of(request);
        let answered = AssertUnwindSafe(self.router.oneshot(request.map(Body::new)))
            .catch_unwind()
            .await;
        let mut response = match answered {
            Ok(Ok(response)) => response,
            Err(_) => {
                let words = "this request failed; others are not affected";
                error_response::response(uri.path(), &ApiError::ours("internal_error", words))
            }
        };
        if let Some(answers) = response.extensions_mut().remove::<ResponseStream>() {
            answers.carried_by(&self.cut);
        }
        self.handover.claim(&asked, &mut response);
        asked.close_after_trailers(&mut response);
        if let Ok(id) = HeaderValue::try_from(self.app.gateway.generations.ids.id("req-")) {
            response.headers_mut().insert(REQUEST_ID, id.clone());
            response.headers_mut().insert(REQUEST_ID_PLAIN, id);
        }
        source.mark(&mut response);
        let piece_bytes = self.app.config.now().connection_buffer_bytes;
        let buffers = &self.app.answer_buffers;
        Ok(self.send_buffer.fit(response, buffers, piece_bytes))
    }
}
