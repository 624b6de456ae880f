//! Requests about streams wait until the streams of earlier processes are registered.

use crate::response::error_response::Rejected;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway::streams::RegistrationBarrier;
use generate::error::ApiError;
use std::sync::Arc;
use std::time::Duration;

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
/// `Retry-After` of a request that has waited in vain.
const RETRY_AFTER: Duration = Duration::from_secs(1);

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
