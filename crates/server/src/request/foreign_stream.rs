//! Requests for streams of other gateways: passed on to the owner, or answered here after the owner's stream was taken
//! over.
//!
//! The caller's key was checked before. The owner checks the key once more, and whether the stream is the key's: the request is
//! passed on with the caller's headers.

use crate::access::authentication;
use crate::peers::{self, FORWARDED, PassedRequest};
use crate::response::error_response::Rejected;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway::handles::Gateway;
use gateway::stream_owners::{StreamPlace, locate_stream, wait_until_lost};
use gateway::streams::registry_caller;
use generate::error::ApiError;
use std::time::Duration;
use stream::StreamId;
use wire::responses::ID_PREFIX;

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
        StreamPlace::At(..) if request.headers().contains_key(FORWARDED) => {
            undecided("the stream is on its way to another gateway")
        }
        StreamPlace::At(instance, address) => {
            let answered = tokio::select! {
                answered = forward(&address, request) => answered,
                () = wait_until_lost(&gateway, instance) => Err("no heartbeat".to_owned()),
            };
            answered.unwrap_or_else(|why| {
                tracing::warn!(address, "the owner of a stream does not answer: {why}");
                undecided("the gateway that owns the stream does not answer")
            })
        }
        StreamPlace::Undecided(why) => {
            let mut response = undecided(&why);
            response.extensions_mut().insert(OwnerUnknown);
            response
        }
    }
}

/// Marks the response for a stream whose records do not say where it is: another gateway may have it.
#[derive(Clone, Copy)]
pub(super) struct OwnerUnknown;

/// The response while it is not known where something is.
pub(super) fn undecided(message: &str) -> Response {
    let error = ApiError::capacity("recovering", message.to_owned(), RETRY_AFTER);
    Rejected::from(error).into_response()
}

/// The stream that the path names, also as that of a response, or the position from which a client resumes.
fn named_stream(request: &Request) -> Option<StreamId> {
    let named = |part: &str| part.strip_prefix(ID_PREFIX).unwrap_or(part).parse().ok();
    let in_path = request.uri().path().split('/').find_map(named);
    in_path.or_else(|| {
        let position = request.headers().get("last-event-id")?.to_str().ok()?;
        position.split(':').next()?.parse().ok()
    })
}

/// Sends the request to another gateway. The body of the response is passed on as it arrives; a client that disconnects
/// closes the connection to the owner.
pub(super) async fn forward(address: &str, request: Request) -> Result<Response, String> {
    let (head, body) = request.into_parts();
    let mut passed = PassedRequest::of(&head, Bytes::new()).build(address)?;
    *passed.body_mut() = body;
    let response = peers::send(address, passed).await?;
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
        assert_eq!(named(format!("/v1/responses/resp_{id}"), None), expected);
        let position = format!("{id}:17");
        let path = || "/v1/chat/completions".to_owned();
        assert_eq!(named(path(), Some(&position)), expected);
        assert_eq!(named(path(), Some("17")), None);
        assert_eq!(named("/v1/streams".to_owned(), None), None);
    }
}
