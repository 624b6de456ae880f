//! Requests for streams of other gateways: passed on to the owner, or answered here after the owner's stream was taken
//! over.
//!
//! The caller's key was checked before. The owner checks the key once more, and whether the stream is the key's: the request is
//! passed on with the caller's headers.

use crate::access::authentication;
use crate::access::presented_key::PresentedKeys;
use crate::response::error_response::Rejected;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway::handles::Gateway;
use gateway::stream_owners::{StreamPlace, locate_stream};
use gateway::streams::registry_caller;
use generate::error::ApiError;
use http::header::{CONNECTION, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Uri};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use stream::StreamId;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Marks a request that was passed on, so that two gateways that take each other for the owner do not pass it on for ever.
const FORWARDED: HeaderName = HeaderName::from_static("x-millrace-forwarded");
/// Time for the connection to the owner.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// `Retry-After` of a request whose stream is nowhere at the moment.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Passes the request to the route, or to the gateway that owns the stream.
pub(crate) async fn find_owner(
    State(gateway): State<Gateway>,
    request: Request,
    next: Next,
) -> Response {
    if !gateway.owners.is_set() {
        return next.run(request).await;
    }
    let Some(id) = named_stream(&request) else {
        return next.run(request).await;
    };
    let Ok(caller) = authentication::caller(request.extensions()) else {
        return next.run(request).await;
    };
    let caller = registry_caller(caller);
    match locate_stream(&gateway, id, caller).await {
        // The route answers for a stream that does not exist.
        StreamPlace::Here | StreamPlace::Unknown => next.run(request).await,
        StreamPlace::At(_) if request.headers().contains_key(FORWARDED) => {
            undecided("the stream is on its way to another gateway")
        }
        StreamPlace::At(address) => match forward(&address, request).await {
            Ok(response) => response,
            Err(why) => {
                tracing::warn!(address, "the owner of a stream does not answer: {why}");
                undecided("the gateway that owns the stream does not answer")
            }
        },
        StreamPlace::Undecided(why) => undecided(&why),
    }
}

fn undecided(message: &str) -> Response {
    let error = ApiError::capacity("recovering", message.to_owned(), RETRY_AFTER);
    Rejected::from(error).into_response()
}

/// The stream that the path names, or the position from which a client resumes.
fn named_stream(request: &Request) -> Option<StreamId> {
    let in_path = request.uri().path().split('/').find_map(|p| p.parse().ok());
    in_path.or_else(|| {
        let position = request.headers().get("last-event-id")?.to_str().ok()?;
        position.split(':').next()?.parse().ok()
    })
}

/// Sends the request to another gateway. The body of the response is passed on as it arrives; a client that disconnects
/// closes the connection to the owner.
async fn forward(address: &str, mut request: Request) -> Result<Response, String> {
    let connected = timeout(CONNECT_WAIT, TcpStream::connect(address)).await;
    let socket = connected
        .map_err(|_| "no connection in time".to_owned())?
        .map_err(|why| why.to_string())?;
    socket.set_nodelay(true).map_err(|why| why.to_string())?;
    let connection = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut owner, connection) = connection.map_err(|why| why.to_string())?;
    tokio::spawn(connection);
    let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|why| why.to_string())?;
    *request.version_mut() = http::Version::HTTP_11;
    let keys = request.extensions_mut().remove::<PresentedKeys>();
    let headers = request.headers_mut();
    if let Some(keys) = keys {
        keys.restore(headers);
    }
    // This gateway has checked the page's origin, which the owner would compare with its own host.
    headers.remove(ORIGIN);
    for of_one_connection in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(of_one_connection);
    }
    let host = HeaderValue::from_str(address).map_err(|why| why.to_string())?;
    headers.insert(HOST, host);
    headers.insert(FORWARDED, HeaderValue::from_static("1"));
    let response = owner.send_request(request).await;
    let mut response = response.map_err(|why| why.to_string())?;
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove(TRANSFER_ENCODING);
    Ok(response.map(Body::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_named_in_the_path_or_by_a_position() {
        let id = "0123456789abcdef0123456789abcdef";
        let named = |path: String, position: Option<&str>| {
            let mut request = Request::builder().uri(path);
            if let Some(position) = position {
                request = request.header("Last-Event-ID", position);
            }
            named_stream(&request.body(Body::empty()).unwrap())
        };
        let expected = id.parse().ok();
        assert_eq!(
            named(format!("/v1/streams/{id}/events?a=b"), None),
            expected
        );
        assert_eq!(named(format!("/v1/stream/{id}"), None), expected);
        let position = format!("{id}:17");
        let path = || "/v1/chat/completions".to_owned();
        assert_eq!(named(path(), Some(&position)), expected);
        assert_eq!(named(path(), Some("17")), None);
        assert_eq!(named("/v1/streams".to_owned(), None), None);
    }
}
