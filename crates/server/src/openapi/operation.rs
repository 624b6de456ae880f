//! An operation as OpenAPI describes it.

use super::operations::Operation;
use crate::access::authentication;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use stream::LIST_PAGE_MAX;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::schema::{SchemaFn, any_of};
use wire::shared::generation_fields::DEADLINE_MS_MAX;
use wire::stored_request::METADATA_MAX;

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
    let mut responses = of_path(path, schemas);
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

/// All parameters, by name.
pub(super) fn all() -> Value {
    let query = |name: &str, schema: Value, words: &str| json!({"name": name, "in": "query", "schema": schema, "description": words});
    let header = |name: &str, schema: Value, words: &str| json!({"name": name, "in": "header", "schema": schema, "description": words});
    let flag = || json!({"enum": ["0", "1"]});
    let text = || json!({"type": "string"});
    let number = |max: u64| json!({"type": "integer", "minimum": 0, "maximum": max});
    json!({
        "resumable": header("X-Stream-Resumable", json!({"enum": ["0", "1", "false", "true"]}), "1: the stream goes on when the client disconnects, and can be resumed"),
        "durable": header("X-Stream-Durable", json!({"enum": ["0", "1", "false", "true"]}), "0: a resumable stream is not recorded, and does not outlive the server"),
        "acks": header("X-Stream-Acks", json!({"enum": ["socket", "explicit"]}), "what returns credit: bytes written to the socket, or explicit acknowledgements"),
        "priority": header("X-Priority", json!({"enum": ["critical", "high", "normal", "low", "background"]}), "overrides the body's priority"),
        "deadline": header("Request-Timeout-Ms", json!({"type": "integer", "minimum": 1, "maximum": DEADLINE_MS_MAX}), "deadline of the request in milliseconds"),
        "last_event": header("Last-Event-ID", text(), "cursor of the last event that the client has"),
        "anthropic_version": header("anthropic-version", text(), "any value: the response is in Anthropic's format"),
        "after": query("after", text(), "as Last-Event-ID"),
        "after_item": query("after", text(), "id of the last item of the page before"),
        "after_stream": query("after", number(u64::MAX), "`next` of the page before"),
        "after_id": query("after_id", text(), "with anthropic-version: id of the last model of the page before"),
        "before_id": query("before_id", text(), "with anthropic-version: id of the first model of the page after"),
        "model_limit": query("limit", number(wire::anthropic::model_list::PAGE_MAX), "with anthropic-version: models per page"),
        "dialect": query("dialect", json!({"enum": Protocol::ALL.map(Protocol::name)}), "wire protocol of the events; default: the stream's own"),
        "framing": query("format", json!({"enum": ["sse", "ndjson"]}), "framing of the events, for protocols that have both"),
        "govern": query("govern", flag(), "1: this reader returns credit from now on"),
        "unread": query("unread", json!({"enum": ["true", "false"]}), "true: ended streams of the caller's key whose end no reader has and no client has acknowledged, in the order of their ends"),
        "stream_limit": query("limit", number(LIST_PAGE_MAX as u64), "streams per page"),
        "item_limit": query("limit", number(wire::item_page::PAGE_MAX), "items per page"),
        "scope": query("scope", json!({"enum": ["instance", "cluster"]}), "cluster, the default of lists and of the feed: of all living gateways; instance: of the one that answers"),
        "metrics_scope": query("scope", json!({"enum": ["instance", "cluster"]}), "instance, the default; cluster: of all living instances, engines too"),
        "fail_on_no_slot": query("fail_on_no_slot", flag(), "1: 503 where all slots are in use"),
        "order": query("order", json!({"enum": ["asc", "desc"]}), "desc: newest first"),
        "oldest_first": query("order", json!({"enum": ["asc", "desc"]}), "asc, the default: oldest first"),
        "model": query("model", text(), "the model's name in the completion"),
        "delivery_status": query("status", json!({"enum": ["pending", "dead"]}), "deliveries of this status"),
        "metadata": metadata_filter(),
        "stream": query("stream", json!({"enum": ["true", "false"]}), "true: stream the events"),
        "offset": query("offset", text(), "-1: from the beginning; now: from the end; or an offset that the stream has sent"),
        "live": query("live", json!({"enum": ["long-poll", "sse"]}), "how to wait for further messages"),
        "cursor": query("cursor", text(), "Stream-Cursor of the last live read"),
        "if_none_match": header("If-None-Match", text(), "ETag of messages that the client has"),
        "starting_after": query("starting_after", number(u64::MAX), "a sequence_number; events after it are sent"),
    })
}

/// `metadata[name]=value`.
fn metadata_filter() -> Value {
    json!({
        "name": "metadata",
        "in": "query",
        "style": "deepObject",
        "explode": true,
        "schema": {"type": "object", "maxProperties": METADATA_MAX, "additionalProperties": {"type": "string"}},
        "description": "metadata[name]=value: completions with these entries",
    })
}
