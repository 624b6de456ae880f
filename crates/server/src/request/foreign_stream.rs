//! Requests for streams of other gateways: passed on to the owner, or answered here after the owner's stream was taken
//! over.
//!
//! The caller's key was checked before. The owner checks whether the stream is the key's: the request is passed on with the
//! caller's headers, in the name of the key's owner.

use crate::access::authentication;
use crate::app::App;
use crate::peers::{FORWARDED, LivingBody, PassedRequest, Peer, ask};
use crate::request::request_body;
use crate::response::Rejected;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cluster::messages::Role;
use cluster::names::InstanceId;
use gateway::stream_owners::{StreamPlace, locate_stream, wait_until_lost};
use gateway::streams::{RegistrationBarrier, registry_caller};
use generate::error::ApiError;
use http::{Method, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use stream::StreamId;
use tokio::time::Instant;
use wire::responses::ID_PREFIX;

/// `Retry-After` of a request whose stream is nowhere at the moment.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Time in which a reader waits for another owner instead of the one that is lost.
const OWNER_WAIT: Duration = Duration::from_secs(10);
/// Time between two looks for the owner.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Why it is not known where a stream is told.
pub(super) const OWNER_SILENT: &str = "the gateway that owns the stream does not answer";

/// Passes the request to the route, or to the gateway that owns the stream. A reader (`GET`, `HEAD`) whose owner is lost
/// before the response begins waits until another gateway, or this one, owns the stream.
pub(crate) async fn find_owner(State(app): State<App>, request: Request, next: Next) -> Response {
    if !app.gateway.owners.is_set() {
        return next.run(request).await;
    }
    let Some(id) = named_stream(&request) else {
        return next.run(request).await;
    };
    let Ok(caller) = authentication::caller(request.extensions()) else {
        return next.run(request).await;
    };
    let caller = registry_caller(caller);
    let is_first = !request.headers().contains_key(FORWARDED);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let deadline = Instant::now() + OWNER_WAIT;
    let mut request = request;
    loop {
        match locate_stream(&app.gateway, id, caller).await {
            // The route answers for a stream that does not exist.
            StreamPlace::Here | StreamPlace::Unknown => return next.run(request).await,
            StreamPlace::At(..) if !is_first => {
                return undecided("the stream is on its way to another gateway");
            }
            StreamPlace::At(instance, address) => {
                let again = is_read.then(|| without_body(&request));
                if let Some(response) = ask_owner(&app, (instance, &address), request).await {
                    return response;
                }
                match again {
                    Some(again) => request = again,
                    None => return undecided(OWNER_SILENT),
                }
            }
            StreamPlace::Silent => {}
            StreamPlace::Undecided(why) => {
                // A stored answer outlives its stream: this gateway may have it, whatever the records would say.
                let here = next.run(request).await;
                let is_missing = matches!(
                    here.status(),
                    StatusCode::NOT_FOUND | StatusCode::NO_CONTENT
                );
                return if is_missing {
                    owner_unknown(&why)
                } else {
                    here
                };
            }
        }
        if !(is_first && is_read) || Instant::now() >= deadline {
            return owner_unknown(OWNER_SILENT);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The owner's response; `None`: the owner is lost, or cannot be reached.
async fn ask_owner(app: &App, owner: (InstanceId, &str), request: Request) -> Option<Response> {
    let answered = tokio::select! {
        answered = forward(app, owner, request) => answered,
        () = wait_until_lost(&app.gateway, owner.0) => Err("no heartbeat".to_owned()),
    };
    let note = |why: &String| {
        let address = owner.1;
        tracing::warn!(address, "the owner of a stream does not answer: {why}");
    };
    answered.inspect_err(note).ok()
}

/// The request once more; a read has no body.
fn without_body(request: &Request) -> Request {
    let mut again = Request::new(Body::empty());
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    *again.extensions_mut() = request.extensions().clone();
    again
}

/// Marks the response for a stream whose records do not say where it is: another gateway may have it.
#[derive(Clone, Copy)]
pub(super) struct OwnerUnknown;

fn owner_unknown(why: &str) -> Response {
    let mut response = undecided(why);
    response.extensions_mut().insert(OwnerUnknown);
    response
}

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

/// Sends the request, whose body is read before, to another gateway. The body of the response is passed on as it arrives, until the gateway is gone; a
/// client that disconnects closes the connection to the owner.
pub(super) async fn forward(
    app: &App,
    (instance, address): (InstanceId, &str),
    request: Request,
) -> Result<Response, String> {
    let (head, body) = request.into_parts();
    // Complete, since the seal is over the body, too.
    let body = request_body::read(&head.headers, body, &app.config.now()).await;
    let body = match body {
        Ok(body) => body,
        Err(error) => return Ok(Rejected::from(error).into_response()),
    };
    let peers = &app.peer_calls.peers;
    let owner = Peer {
        id: instance,
        role: Role::Gateway,
        address: Ok(address.to_owned()),
    };
    let response = ask(peers, &owner, &PassedRequest::of(&head, body)).await?;
    Ok(response.map(|body| Body::new(LivingBody::new(body, peers, instance))))
}

/// Paths, with all paths below, that concern no stream: the page, health, metrics, descriptions and models.
const WITHOUT_STREAMS: [&str; 14] = [
    "/page",
    "/health",
    "/metrics",
    "/version",
    "/docs",
    "/openapi.json",
    "/v1/ready",
    "/v1/loading",
    "/v1/heartbeats",
    "/v1/models",
    "/api/version",
    "/api/tags",
    "/api/ps",
    "/api/show",
];

/// Passes the request on when the streams are registered.
pub(crate) async fn wait_for_registration(
    State(barrier): State<Arc<RegistrationBarrier>>,
    request: Request,
    next: Next,
) -> Response {
    if concerns_streams(request.uri().path()) && !barrier.wait().await {
        let message = "the streams of the last process are still being read";
        let error = ApiError::capacity("recovering", message, RETRY_AFTER);
        return Rejected::from(error).into_response();
    }
    next.run(request).await
}

fn concerns_streams(path: &str) -> bool {
    let is_under = |root: &&str| {
        let rest = path.strip_prefix(*root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    path != "/" && !WITHOUT_STREAMS.iter().any(is_under)
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

    #[test]
    fn requests_about_streams_wait() {
        let waiting = [
            "/v1/streams",
            "/v1/streams/0123/events",
            "/v1/stream/0123",
            "/v1/jobs/mine",
            "/v1/responses/resp_1",
            "/v1/chat/completions",
            "/v1/chat/completions/chatcmpl-1/messages",
            "/api/chat",
            "/v1/ai-sdk/chat/1/stream",
            "/healthy",
        ];
        for path in waiting {
            assert!(concerns_streams(path), "{path}");
        }
        let others = [
            "/",
            "/health/readiness",
            "/metrics",
            "/v1/models/org/name",
            "/v1/loading/progress",
        ];
        for path in others {
            assert!(!concerns_streams(path), "{path}");
        }
    }
}
