//! `/v1/stream/{id}`: the read side of the Durable Streams protocol.

mod headers;
mod immutability;
mod live;

use crate::support::Rig;
use crate::support::client::{Client, Head, Reply};
use crate::support::named::{CHAT, RESUMABLE, call, chat, get, send, stream_id};
use serde_json::{Value, json};

/// The beginning of a stream with one choice.
pub(crate) const BEGINNING: &str = "0000000000000000";

/// A part of each message with text.
pub(crate) const TOKEN: &str = "\"type\":\"token\"";

/// Reads `/v1/stream/{id}` with this query.
pub(crate) fn read(rig: &Rig, id: &str, query: &str) -> Reply {
    get(rig, &format!("/v1/stream/{id}?{query}"), "")
}

/// The head of a response to `HEAD`.
pub(crate) fn head(rig: &Rig, id: &str) -> Head {
    let path = format!("/v1/stream/{id}");
    send(rig, "HEAD", &path, "", &Value::Null).head()
}

/// The id of a resumable chat that was answered to its end.
pub(crate) fn ended_chat(rig: &Rig, over: &Value) -> String {
    let reply = call(rig, "POST", CHAT, RESUMABLE, &chat(over));
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    stream_id(&reply.head)
}

/// A running resumable chat: the client and the id.
pub(crate) fn running_chat(rig: &Rig, over: &Value) -> (Client, String) {
    let mut client = send(rig, "POST", CHAT, RESUMABLE, &chat(over));
    let id = stream_id(&client.head());
    (client, id)
}

/// The bytes of the messages of a list, without its brackets.
pub(crate) fn inner(reply: &Reply) -> String {
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let list = reply
        .body
        .strip_prefix('[')
        .and_then(|list| list.strip_suffix(']'));
    list.expect("a list").to_owned()
}

/// Two parts of a list.
pub(crate) fn joined(first: &str, second: &str) -> String {
    if first.is_empty() || second.is_empty() {
        format!("{first}{second}")
    } else {
        format!("{first},{second}")
    }
}

/// The value of a header field of a response that must have it.
pub(crate) fn field<'a>(head: &'a Head, name: &str) -> &'a str {
    head.get(name)
        .unwrap_or_else(|| panic!("no {name}: {head:?}"))
}

/// The text of the messages, and the type of the last one.
pub(crate) fn text_and_last(list: &str) -> (String, Value) {
    let messages: Vec<Value> = serde_json::from_str(&format!("[{list}]")).expect("JSON");
    let texts = messages.iter().filter(|message| message["type"] == "token");
    let texts = texts.map(|message| message["t"].as_str().expect("text"));
    (
        texts.collect(),
        messages.last().cloned().unwrap_or_default(),
    )
}

/// Messages and control events of a body of server-sent events.
#[derive(Default)]
pub(crate) struct EventBody {
    /// Each control event, with the bytes of all messages before.
    pub(crate) controls: Vec<(String, Value)>,
}

impl EventBody {
    /// Parses the complete events at the beginning of a body: each is of messages or of control.
    pub(crate) fn of(text: &str) -> Self {
        let (mut body, mut messages) = (Self::default(), String::new());
        let mut rest = text;
        while let Some((event, after)) = rest.split_once("\n\n") {
            rest = after;
            if let Some(list) = event.strip_prefix("event: data\ndata: [") {
                messages = joined(&messages, list.strip_suffix(']').expect("a list"));
            } else if let Some(control) = event.strip_prefix("event: control\ndata: ") {
                let control = serde_json::from_str(control).expect("JSON");
                body.controls.push((messages.clone(), control));
            } else {
                assert_eq!(event, ": ping");
            }
        }
        body
    }

    /// The messages of a body that ends with the end of its stream, and the last offset.
    pub(crate) fn closed(self) -> (String, String) {
        let (messages, last) = self.controls.last().expect("a control event").clone();
        let offset = last["streamNextOffset"]
            .as_str()
            .expect("an offset")
            .to_owned();
        let closed = json!({"streamNextOffset": offset, "upToDate": true, "streamClosed": true});
        assert_eq!(last, closed);
        (messages, offset)
    }
}
