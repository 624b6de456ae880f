//! Replies and errors that belong to no stream.

use super::handles::RealtimeHandles;
use gateway::streams::StreamRecord;
use generate::error::ApiError;
use serde_json::{Map, Value, json};
use wire::shared::job_error::is_retriable;

/// The first message.
pub(super) fn welcome_message(handles: &RealtimeHandles) -> Value {
    let limits = handles.config.now().realtime;
    json!({
        "type": "welcome", "model": handles.lifecycle.model_registry().first_entry().id(), "streams_max": limits.streams_max,
        "message_bytes_max": limits.message_bytes_max,
    })
}

/// The reply to `open` or `attach`; messages of the stream follow. `kind`: `opened` or `attached`.
pub(super) fn stream_reply(kind: &str, record: &StreamRecord, request: Option<&str>) -> Value {
    let (terms, meta) = (record.terms(), record.meta());
    let acks = if terms.explicit_acks {
        "explicit"
    } else {
        "socket"
    };
    let reply = json!({
        "type": kind, "stream": record.id().to_string(), "response_id": meta.response_id,
        "dialect": terms.protocol.name(), "model": meta.model, "choices": meta.choices,
        "resumable": terms.resumable, "durable": record.is_recorded(), "acks": acks, "credit_window": terms.credit_window,
    });
    with_field(reply, "request", request)
}

/// The reply to a successful command.
pub(super) fn ok_reply(request: &str) -> Value {
    json!({ "type": "ok", "request": request })
}

/// The reply to a failed command.
pub(super) fn error_reply(error: &ApiError, request: Option<&str>, stream: Option<&str>) -> Value {
    let mut reply = Map::new();
    reply.insert("type".to_owned(), "error".into());
    reply.insert("code".to_owned(), error.code.into());
    reply.insert("message".to_owned(), error.message.as_str().into());
    reply.insert("retriable".to_owned(), is_retriable(error).into());
    if let Some(wait) = error.retry_after {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        reply.insert("retry_after_ms".to_owned(), ms.into());
    }
    if !error.problems.is_empty() {
        let problems = error.problems.iter();
        let problems = problems.map(|p| json!({ "field": p.field, "constraint": p.constraint }));
        reply.insert("errors".to_owned(), problems.collect());
    }
    with_field(
        with_field(reply.into(), "request", request),
        "stream",
        stream,
    )
}

fn with_field(mut reply: Value, name: &str, value: Option<&str>) -> Value {
    if let Some(value) = value {
        reply[name] = value.into();
    }
    reply
}
