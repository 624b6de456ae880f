//! What this server answers, described: `/openapi.json` (OpenAPI 3.2), and `/docs`, a page that shows it and needs
//! no other host.
//!
//! ```text
//! operations  every route: who may, what it takes, what it gives      schemas  objects that several share
//! fields      the fields of requests, with their bounds               page     `/docs`
//! ```
//!
//! Bounds are those the parsers check with, and names of formats are those they know. A test reads the
//! sources for routes, and refuses one that is not described.

mod errors;
mod fields;
mod operations;
mod schemas;
#[cfg(test)]
mod tests;

use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The description, as it is sent.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());
/// The page that shows it.
const PAGE: &str = include_str!("page.html");
/// What the page may do: its own script and style, and to ask this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'";

/// All paths, as they are described: `{name}` stands for any segment.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    operations::paths()
}

/// Whether a path is one of these.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, "/openapi.json" | "/docs")
}

pub(crate) async fn description() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], DOCUMENT.as_str()).into_response()
}

pub(crate) async fn page() -> Response {
    let policy = HeaderValue::from_static(POLICY);
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE)).into_response()
}

/// The whole description.
fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations::all() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.told;
    }
    json!({
        "openapi": "3.2.0",
        "info": {
            "title": "Millrace",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A language-model server with the APIs of OpenAI, Anthropic and Ollama, and its own jobs API, over \
                the same resumable streams. Request fields without a meaning here are ignored and named in the \
                header x-millrace-ignored-fields; all invalid fields are reported in one error.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"key": []}, {}],
        "tags": operations::tags(),
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "parameters": schemas::parameters(),
            "responses": errors::responses(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    })
}
