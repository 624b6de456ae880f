//! The WebSocket handshake (RFC 6455, section 4).
//!
//! The authentication layer has checked the host and the key. A browser sends no preflight before opening a WebSocket
//! to another origin, and lets the page read the messages. Therefore a request with an `Origin` must come from a page
//! of this host or from an allowed origin. Programs send no `Origin`.

use super::handles::RealtimeHandles;
use super::session::Session;
use crate::access::authentication;
use crate::access::cross_origin::RequestOrigin;
use crate::connection::handover::Upgrade;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use gateway::lifecycle::ServerStage;
use generate::error::{ApiError, ErrorKind};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use wire::shared::error_response;

/// Length of a `Sec-WebSocket-Key`: 16 bytes in base 64.
const KEY_BYTES: usize = 24;

/// Answers 101 and continues the connection as a WebSocket, or answers with an error.
pub(crate) async fn open_websocket(
    State(handles): State<RealtimeHandles>,
    mut request: Request,
) -> Response {
    try_open(handles, &mut request).unwrap_or_else(|error| reject_upgrade(&error))
}

fn try_open(handles: RealtimeHandles, request: &mut Request) -> Result<Response, ApiError> {
    let caller = authentication::caller(request.extensions())?.clone();
    RequestOrigin::of_request(request).expect_allowed()?;
    let accept = accept_key(request.version(), request.headers())?;
    if handles.lifecycle.stage() == ServerStage::Draining {
        let message = "the server is shutting down";
        let retry_after = handles.config.now().retry_after;
        return Err(ApiError::capacity("shutting_down", message, retry_after));
    }
    let max = handles.config.now().realtime.connections_max;
    let permit = handles.sockets.acquire_permit(max).map_err(|retry_after| {
        let message = "too many WebSockets are open";
        ApiError::capacity("too_many_connections", message, retry_after)
    })?;
    let upgrade = request.extensions().get::<Upgrade>().cloned();
    let upgrade = upgrade
        .ok_or_else(|| ApiError::ours("internal_error", "this connection cannot be upgraded"))?;
    let upgraded = hyper::upgrade::on(request);
    upgrade.set_continuation(Box::pin(async move {
        match upgraded.await {
            Ok(socket) => Session::start(handles, caller, socket).await.run().await,
            Err(error) => tracing::debug!(%error, "the WebSocket handshake failed"),
        }
        drop(permit);
    }));
    Ok(switching_protocols(&accept))
}

fn switching_protocols(accept: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(accept) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// The value of `Sec-WebSocket-Accept`. HTTP/1.0 has no upgrades (RFC 9110, 7.8).
fn accept_key(version: Version, headers: &HeaderMap) -> Result<String, ApiError> {
    if version != Version::HTTP_11
        || !contains_word(headers, &header::CONNECTION, "upgrade")
        || !contains_word(headers, &header::UPGRADE, "websocket")
        || !contains_word(headers, &header::SEC_WEBSOCKET_VERSION, "13")
    {
        return Err(ApiError::caller(
            ErrorKind::UpgradeRequired,
            "upgrade_required",
            "this path requires a WebSocket handshake, version 13, over HTTP/1.1",
        ));
    }
    let in_base_64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .map(HeaderValue::as_bytes);
    let key = key.filter(|key| key.len() == KEY_BYTES && key.iter().all(|&b| in_base_64(b)));
    let key = key.ok_or_else(|| {
        let message = "must be 16 bytes in base 64";
        ApiError::field("sec-websocket-key", "invalid_value", message)
    })?;
    Ok(derive_accept_key(key))
}

/// Whether a header field with a list of words contains this word.
fn contains_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut words = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    words.any(|each| each.trim().eq_ignore_ascii_case(word))
}

fn reject_upgrade(error: &ApiError) -> Response {
    let mut response = error_response::to_response(error);
    if error.kind == ErrorKind::UpgradeRequired {
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        );
    }
    response
}
