//! Routes under `/api`, and `/`.

use crate::app::App;
use crate::arrival::Arrival;
use crate::gateway::streams::Query;
use crate::intake;
use crate::routes::ollama_manage;
use crate::routes::ollama_models;
use crate::routes::ollama_residence::Residence;
use crate::routes::ollama_unsupported;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::ollama::refusal;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use generate::error::ApiError;
use std::sync::Arc;

/// What clients look for to see that somebody is there.
const ALIVE: &str = "Ollama is running (its API, spoken by Millrace)";

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(async || ALIVE))
        .route("/api/generate", post(generate))
        .route("/api/chat", post(chat))
        .merge(ollama_models::routes())
        .merge(ollama_manage::routes())
        .merge(ollama_unsupported::routes())
}

async fn generate(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(asked(&app, Format::OllamaGenerate, request).await)
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(asked(&app, Format::OllamaChat, request).await)
}

/// An answer, or why there is none.
pub(crate) fn answer(result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|error| refusal::response(&error))
}

/// The life of a request, from its head to its answer.
async fn asked(app: &Arc<App>, format: Format, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let asked = Framing::asked(&head.headers, &Query::of(&head.uri)?)?;
    let arrival = Arrival::of(&head, format, Framing::of(format, asked))?;
    intake::expect_json(&head.headers)?;
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let residence = Residence::of(format, &bytes)?;
    if residence.is_all() {
        return residence.answer(app, format).await;
    }
    residence.noted(app).await;
    arrival.with_body(bytes).answer(app).await
}
