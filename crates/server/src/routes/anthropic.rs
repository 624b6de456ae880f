//! `/v1/messages` and `/v1/messages/count_tokens`.

use crate::app::App;
use crate::router;
use crate::routes::anthropic_count_tokens;
use crate::wire::anthropic::refusal;
use crate::wire::format::Format;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use axum::routing::post;
use std::sync::Arc;

/// The header that every client of Anthropic's sends.
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count))
}

/// Whether a client of Anthropic's asks, on a path that other formats have too.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

async fn messages(State(app): State<Arc<App>>, request: Request) -> Response {
    let answer = router::generate(app, Format::Messages, request).await;
    answer.unwrap_or_else(|error| refusal::response(&error))
}

async fn count(State(app): State<Arc<App>>, request: Request) -> Response {
    let answer = anthropic_count_tokens::answer(app, request).await;
    answer.unwrap_or_else(|error| refusal::response(&error))
}
