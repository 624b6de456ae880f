//! `/openapi.json`, the OpenAPI 3.2 document of the server, and `/docs`, a page that shows the document.
//!
//! ```text
//! operations  every route: parameters, body, responses
//! operation   an operation object: query parameters, header fields, error responses of a path
//! page        `/docs`
//! ```
//!
//! Schemas of responses are derived from the types that the handlers return; schemas of bodies are recorded from the
//! parsers ([`REQUESTS`]). The integration tests validate every response that they read against the document.

mod operation;
mod operations;
#[cfg(test)]
mod tests;

use self::operations::OPERATIONS;
use crate::config::live_config::LiveConfig;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use wire::request_schema::REQUESTS;

/// The description, as it is sent.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());
/// Where the server is, in the description.
const SERVER: &str = r#""servers":[{"url":"/"}]"#;
/// The page that shows it.
const PAGE: &str = include_str!("page.html");
/// Rights of the page: its own script and style, and to ask this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'";

/// All paths; `{name}` is any segment.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    OPERATIONS.iter().map(|&(_, path, ..)| path)
}

/// The document as JSON text.
pub fn text() -> &'static str {
    &DOCUMENT
}

pub(crate) async fn description(State(config): State<Arc<LiveConfig>>) -> Response {
    let json = HeaderValue::from_static("application/json");
    let config = config.now();
    let document = match config.api_prefix.as_str() {
        "" => Cow::Borrowed(DOCUMENT.as_str()),
        prefix => Cow::Owned(DOCUMENT.replacen(SERVER, &SERVER.replace('/', prefix), 1)),
    };
    ([(header::CONTENT_TYPE, json)], document).into_response()
}

pub(crate) async fn page() -> Response {
    let policy = HeaderValue::from_static(POLICY);
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE)).into_response()
}

fn document() -> Value {
    let mut schemas = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for row in OPERATIONS {
        let path = paths.entry(row.1).or_insert_with(|| json!({}));
        path[row.0] = operation::describe(row, &mut schemas);
    }
    let bodies = REQUESTS.iter();
    let bodies = bodies.map(|request| (request.name.to_owned(), request.schema()));
    let mut all: Map<String, Value> = bodies.collect();
    all.extend(schemas.take_definitions(true));
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
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": all,
            "parameters": operation::all(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    })
}

fn tags() -> Value {
    let mut names: Vec<&str> = Vec::new();
    for (_, _, tag, ..) in OPERATIONS {
        if !names.contains(tag) {
            names.push(tag);
        }
    }
    names
        .into_iter()
        .map(|name| json!({"name": name}))
        .collect()
}
