//! Query parameters and header fields of requests.

use serde_json::{Value, json};
use stream::LIST_PAGE_MAX;
use wire::metadata::METADATA_MAX;
use wire::openai::generation_fields::DEADLINE_MS_MAX;
use wire::protocol::Protocol;

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
