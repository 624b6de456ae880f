//! An operation as OpenAPI describes it.

use super::errors;
use super::operations::Operation;
use crate::access::authentication;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::schema::{SchemaFn, any_of};

/// The response of an operation without an error.
#[derive(Clone, Copy)]
pub(super) enum Success {
    /// JSON with this status.
    Json(u16, SchemaFn),
    /// A response of a wire protocol: JSON, or server-sent events for a streaming request.
    Generation(Protocol),
    /// JSON, or server-sent events.
    JsonOrEvents(SchemaFn, SchemaFn),
    /// JSON, or a line per event, or server-sent events.
    Lines(SchemaFn, SchemaFn),
    /// Server-sent events.
    Events(SchemaFn),
    /// The events of a stream in one of these protocols; 204 if the client has them all.
    Resumed(&'static [Protocol]),
    /// A list of messages, or events of such lists and of control events; 204 without a message, 304 if the client has
    /// them.
    Messages(SchemaFn, SchemaFn),
    /// JSON with 200, or with 503 while the server is not ready.
    Probe(SchemaFn),
    TextOrJson(SchemaFn),
    Page,
    /// Plain text, or a page for those who accept one.
    TextOrPage,
    /// A file of the web page; 304 if the client has it.
    File,
    /// No body.
    Empty,
    WebSocket,
    /// Always an error.
    Unsupported,
}

/// The operation object.
pub(super) fn describe(
    &(method, path, tag, summary, body, parameters, success): &Operation,
    schemas: &mut SchemaGenerator,
) -> Value {
    let in_path = path.split(['{', '}']).skip(1).step_by(2).map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let shared = parameters
        .iter()
        .map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
    let mut responses = errors::of_path(path, schemas);
    responses.extend(success_responses(success, schemas));
    let mut operation = json!({
        "operationId": operation_id(method, path),
        "tags": [tag],
        "summary": summary,
        "parameters": in_path.chain(shared).collect::<Vec<_>>(),
        "responses": responses,
    });
    if !body.is_empty() {
        let schema = json!({"$ref": format!("#/components/schemas/{body}")});
        let content = json!({"application/json": {"schema": schema}});
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    if authentication::is_public(path) {
        operation["security"] = json!([]);
    }
    operation
}

/// `post /v1/jobs/{id}/cancel` is `post_v1_jobs_id_cancel`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    std::iter::once(method)
        .chain(words)
        .collect::<Vec<_>>()
        .join("_")
}

/// Responses by status.
fn success_responses(success: Success, schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let content = match success {
        Success::Json(status, schema) => {
            return responses([(status, "Success", json_content(&schema(schemas)))]);
        }
        Success::Generation(protocol) => {
            let of_format = protocol.schemas();
            let json = json_content(&(of_format.collected)(schemas));
            merge(json, event_content(&(of_format.event)(schemas)))
        }
        Success::JsonOrEvents(json, event) => {
            let json = json_content(&json(schemas));
            merge(json, event_content(&event(schemas)))
        }
        Success::Lines(json, line) => {
            let json = json_content(&json(schemas));
            let line = line(schemas);
            merge(merge(line_content(&line), json), event_content(&line))
        }
        Success::Events(event) => event_content(&event(schemas)),
        Success::Resumed(formats) => {
            let content = resumed_content(formats, schemas);
            let all = "The client has all events";
            return responses([(200, "Success", content), (204, all, json!({}))]);
        }
        Success::Messages(message, control) => {
            let list = json_schema!({"type": "array", "items": message(schemas)});
            let events = event_content(&any_of([list.clone(), control(schemas)]));
            let content = merge(json_content(&list), events);
            let none = "No message in time; the header Stream-Closed names an ended stream";
            let same = "The client has these messages";
            return responses([
                (200, "Success", content),
                (204, none, json!({})),
                (304, same, json!({})),
            ]);
        }
        Success::Probe(schema) => {
            let content = json_content(&schema(schemas));
            let unready = "The server is not ready: Retry-After gives the time to retry";
            return responses([(200, "Ready", content.clone()), (503, unready, content)]);
        }
        Success::TextOrJson(schema) => {
            merge(text_content("text/plain"), json_content(&schema(schemas)))
        }
        Success::Page => text_content("text/html"),
        Success::TextOrPage => return file_responses(&["text/plain", "text/html"]),
        Success::File => {
            return file_responses(&["text/javascript", "text/css", "text/html", "image/svg+xml"]);
        }
        Success::Empty => json!({}),
        Success::WebSocket => {
            return responses([(101, "A WebSocket: see docs/realtime.md", json!({}))]);
        }
        Success::Unsupported => return Map::new(),
    };
    responses([(200, "Success", content)])
}

/// A file of one of these types; 304 if the client has it.
fn file_responses(types: &[&str]) -> Map<String, Value> {
    let content = types.iter().map(|name| text_content(name));
    let content = content.fold(json!({}), merge);
    let same = "The client has this file";
    responses([(200, "Success", content), (304, same, json!({}))])
}

fn responses<const N: usize>(rows: [(u16, &str, Value); N]) -> Map<String, Value> {
    let rows = rows.into_iter();
    rows.map(|(status, description, content)| {
        let response = if content.as_object().is_some_and(Map::is_empty) {
            json!({"description": description})
        } else {
            json!({"description": description, "content": content})
        };
        (status.to_string(), response)
    })
    .collect()
}

fn json_content(schema: &Schema) -> Value {
    json!({"application/json": {"schema": schema}})
}

fn text_content(content_type: &str) -> Value {
    json!({content_type: {"schema": {"type": "string"}}})
}

/// Server-sent events with JSON, or with `[DONE]` at the end of a stream.
fn event_content(schema: &Schema) -> Value {
    let data =
        json!({"type": "string", "contentMediaType": "application/json", "contentSchema": schema});
    let data = json!({"anyOf": [data, {"const": "[DONE]"}]});
    let fields = json!({"data": data, "event": {"type": "string"}, "id": {"type": "string"}});
    let event = json!({"type": "object", "properties": fields, "required": ["data"]});
    json!({Framing::Sse.content_type(): {"itemSchema": event}})
}

/// Lines; each may have a cursor.
fn line_content(schema: &Schema) -> Value {
    let cursor =
        json!({"type": "string", "description": "position of the client, as Last-Event-ID"});
    let cursor = json!({"type": "object", "properties": {"cursor": cursor}});
    json!({Framing::Ndjson.content_type(): {"itemSchema": {"allOf": [schema, cursor]}}})
}

/// Events of any of these protocols; lines for those that have lines.
fn resumed_content(formats: &[Protocol], schemas: &mut SchemaGenerator) -> Value {
    let event = |protocol: &Protocol| (protocol.schemas().event)(schemas);
    let content = event_content(&any_of(formats.iter().map(event)));
    let lined = formats
        .iter()
        .filter(|protocol| protocol.framing() == Framing::Ndjson);
    let lines: Vec<Schema> = lined
        .map(|protocol| (protocol.schemas().event)(schemas))
        .collect();
    if lines.is_empty() {
        content
    } else {
        merge(content, line_content(&any_of(lines)))
    }
}

fn merge(mut content: Value, more: Value) -> Value {
    if let (Value::Object(content), Value::Object(more)) = (&mut content, more) {
        content.extend(more);
    }
    content
}
