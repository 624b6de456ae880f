//! Error responses: each wire protocol has an error object of its own.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};
use wire::protocol::Protocol;
use wire::schema::any_of;

/// The header of a response that names the time to retry.
const RETRY_AFTER: &str = "Retry-After";

/// Paths whose errors are written in the protocol of the request or of a stream, and these protocols.
const OTHER_ERRORS: [(&str, &[Protocol]); 3] = [
    ("/v1/models", &[Protocol::Chat, Protocol::Messages]),
    ("/v1/models/{id}", &[Protocol::Chat, Protocol::Messages]),
    ("/v1/streams/{id}/events", &Protocol::ALL),
];

/// Error responses of a path by status: those of [`Protocol::of_path`], which writes them.
pub(super) fn of_path(path: &str, schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let other = OTHER_ERRORS.iter().find(|(other, _)| *other == path);
    let formats = match other {
        Some((_, formats)) => formats.to_vec(),
        None => vec![Protocol::of_path(path)],
    };
    let schema = any_of(
        formats
            .iter()
            .map(|protocol| (protocol.schemas().error)(schemas)),
    );
    let content = json!({"application/json": {"schema": schema}});
    let wait = json!({RETRY_AFTER: {"schema": {"type": "integer"}, "description": "seconds"}});
    let rejected = json!({"description": "The request was rejected; the error names the reason", "content": content});
    let overloaded = "Overloaded, or the model is not ready: Retry-After and retry-after-ms give the time to retry";
    let overloaded = json!({"description": overloaded, "headers": wait, "content": content});
    let late = json!({"description": "The deadline of the request passed before there was a response", "content": content});
    let failed = json!({"description": "The server failed, or does not support the operation", "content": content});
    let mut responses = Map::new();
    responses.insert("4XX".to_owned(), rejected);
    responses.insert("503".to_owned(), overloaded.clone());
    responses.insert("504".to_owned(), late);
    if formats.contains(&Protocol::Messages) {
        responses.insert("529".to_owned(), overloaded);
    }
    responses.insert("5XX".to_owned(), failed);
    responses
}
