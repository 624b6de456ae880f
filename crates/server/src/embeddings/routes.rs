//! Routes of embeddings.

use super::ollama::{self, Route};
use super::{Answer, openai};
use crate::app::App;
use crate::wire::field_table;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::routing::post;
use generate::error::ApiError;
use std::sync::Arc;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/embeddings", post(embeddings))
        .route("/api/embed", post(ollama_embed))
        .route("/api/embeddings", post(ollama_embeddings))
}

async fn embeddings(State(app): State<Arc<App>>, request: Request) -> Response {
    let answer = openai::answer(&app, request).await;
    told(answer, crate::wire::openai::refusal::response)
}

async fn ollama_embed(State(app): State<Arc<App>>, request: Request) -> Response {
    let answer = ollama::answer(&app, Route::Embed, request).await;
    told(answer, crate::wire::ollama::refusal::response)
}

async fn ollama_embeddings(State(app): State<Arc<App>>, request: Request) -> Response {
    let answer = ollama::answer(&app, Route::Embeddings, request).await;
    told(answer, crate::wire::ollama::refusal::response)
}

fn told(answer: Result<Answer, ApiError>, refuse: fn(&ApiError) -> Response) -> Response {
    match answer {
        Ok(Answer { body, ignored }) => {
            let mut response = Response::new(Body::from(body));
            field_table::write_ignored(&ignored, response.headers_mut());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(error) => refuse(&error),
    }
}
