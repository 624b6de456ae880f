//! One connection, from its first byte to its last.

use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::metrics::Wire;
use crate::refusal;
use crate::router::App;
use crate::streams::Answers;
use crate::upgrade::Upgrade;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tower::ServiceExt;

/// Why a connection was cut whose answer has ended and was not read.
const UNREAD: &str = "unread";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Anthropic's name for it.
const REQUEST_ID_PLAIN: HeaderName = HeaderName::from_static("request-id");

/// Answers requests until the client leaves, breaks a limit, or `draining` becomes true and the
/// answer under way is out; then does what the last request left to do (see [`Upgrade`]). (A head that is half sent by then may be completed and is answered;
/// `header_timeout` bounds it.)
pub(crate) async fn run(
    stream: TcpStream,
    router: Router,
    app: Arc<App>,
    mut draining: watch::Receiver<bool>,
) {
    let http = protocol(&app.config.now());
    let wire = Wire::new(stream, Arc::clone(&app.metrics));
    let (upgrade, cut) = (Upgrade::default(), Arc::new(Notify::new()));
    let service = {
        let (app, cut) = (Arc::clone(&app), Arc::clone(&cut));
        let upgrade = upgrade.clone();
        service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(upgrade.clone());
            respond(router.clone(), Arc::clone(&app), Arc::clone(&cut), request)
        })
    };
    let connection = http.serve_connection(TokioIo::new(wire), service);
    let mut connection = pin!(connection.with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = began(&mut draining) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = cut.notified() => return app.metrics.rejected(UNREAD),
            }
        }
        () = cut.notified() => return app.metrics.rejected(UNREAD),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
    if let Some(next) = upgrade.take() {
        next.await;
    }
}

/// Ready when draining began. (The sender's drop counts: then nobody is left to say so.)
async fn began(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|&draining| draining).await;
}

/// Writes are not gathered: a frame is copied into one small buffer, whose size then bounds what a
/// slow reader can hide, and its own memory is free for the next frame.
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

async fn respond(
    router: Router,
    app: Arc<App>,
    cut: Arc<Notify>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let uri = request.uri().clone();
    let answered = AssertUnwindSafe(router.oneshot(request.map(Body::new)))
        .catch_unwind()
        .await;
    let mut response = match answered {
        Ok(Ok(response)) => response,
        Err(_) => {
            let words = "this request failed; others are not affected";
            refusal::response(uri.path(), &ApiError::ours("internal_error", words))
        }
    };
    if let Some(answers) = response.extensions_mut().remove::<Answers>() {
        answers.carried_by(&cut);
    }
    if let Ok(id) = HeaderValue::try_from(app.idents.id("req-")) {
        response.headers_mut().insert(REQUEST_ID, id.clone());
        response.headers_mut().insert(REQUEST_ID_PLAIN, id);
    }
    Ok(response)
}
