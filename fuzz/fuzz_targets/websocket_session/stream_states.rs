//! What a client knows of its streams: ids, cursors, and which ends are due.

use serde_json::Value;
use std::collections::BTreeMap;

/// Types of messages about one stream.
const STREAM_TYPES: [&str; 12] = [
    "queued",
    "started",
    "token",
    "backpressure",
    "slow_consumer",
    "parked",
    "resumed",
    "choice_ended",
    "ended",
    "tool_call_start",
    "tool_call_arguments",
    "tool_call_end",
];

/// A stream.
#[derive(Default)]
struct StreamState {
    is_attached: bool,
    /// A command of the script may have detached this stream.
    may_be_detached: bool,
    has_ended: bool,
    cursor: String,
    /// The next token of each choice, once one came.
    next: BTreeMap<u64, u64>,
}

/// All streams of a session.
#[derive(Default)]
pub struct StreamStates {
    /// Ids in the order of opening.
    ids: Vec<String>,
    streams: BTreeMap<String, StreamState>,
    expects_nothing: bool,
}

impl StreamStates {
    /// Bytes without a known meaning were sent.
    pub fn expect_nothing(&mut self) {
        self.expects_nothing = true;
    }

    /// Puts ids in the place of `$0` to `$9`, and cursors in that of `@0` to `@9`.
    pub fn replace_names(&self, text: &[u8]) -> Vec<u8> {
        let (mut replaced, mut bytes) = (
            Vec::with_capacity(text.len()),
            text.iter().copied().peekable(),
        );
        while let Some(byte) = bytes.next() {
            let digit = bytes.peek().filter(|byte| byte.is_ascii_digit());
            let id = digit.and_then(|digit| self.ids.get(usize::from(digit - b'0')));
            match (byte, id) {
                (b'$', Some(id)) => replaced.extend(id.bytes()),
                (b'@', Some(id)) => replaced.extend(self.streams[id].cursor.bytes()),
                _ => {
                    replaced.push(byte);
                    continue;
                }
            }
            bytes.next();
        }
        replaced
    }

    /// A message of the script; one that may be a `detach` concerns every stream.
    pub fn observe_sent(&mut self, payload: &[u8]) {
        // Escapes can spell the word too.
        let may_detach =
            payload.windows(6).any(|word| word == b"detach") || payload.contains(&b'\\');
        for stream in self.streams.values_mut().filter(|_| may_detach) {
            stream.may_be_detached = true;
        }
    }

    /// Streams that may still run.
    pub fn unfinished(&self) -> Vec<String> {
        let running = self.streams.iter().filter(|(_, stream)| !stream.has_ended);
        running.map(|(id, _)| id.clone()).collect()
    }

    /// Whether the end of a stream is due.
    pub fn expects_an_end(&self) -> bool {
        let is_due = |stream: &StreamState| stream.is_attached && !stream.may_be_detached;
        !self.expects_nothing && self.streams.values().any(is_due)
    }

    /// Checks a message, and takes note of what it says.
    pub fn observe(&mut self, message: &Value) {
        let kind = message["type"].as_str().expect("a message has a type");
        match kind {
            "welcome" | "ok" => {}
            "error" => check_error(message),
            "opened" | "attached" => self.attach(kind, message),
            _ => self.observe_event(kind, message),
        }
    }

    fn attach(&mut self, kind: &str, message: &Value) {
        let id = message["stream"].as_str().expect("an id").to_owned();
        let is_new = !self.streams.contains_key(&id);
        assert!(
            is_new || kind == "attached",
            "an id is used once: {message}"
        );
        let stream = self.streams.entry(id.clone()).or_default();
        assert!(
            !stream.is_attached || stream.may_be_detached,
            "attached twice: {message}"
        );
        (stream.is_attached, stream.may_be_detached) = (true, false);
        stream.next.clear();
        if is_new {
            self.ids.push(id);
        }
    }

    fn observe_event(&mut self, kind: &str, message: &Value) {
        assert!(
            STREAM_TYPES.contains(&kind),
            "an undocumented message: {message}"
        );
        let id = message["stream"].as_str().expect("an id");
        let stream = self
            .streams
            .get_mut(id)
            .expect("a stream is opened before its messages");
        assert!(stream.is_attached, "a message after the end: {message}");
        if let Some(cursor) = message["cursor"].as_str() {
            cursor.clone_into(&mut stream.cursor);
        }
        if kind == "token" {
            let choice = message["choice"].as_u64().unwrap_or(0);
            let first = message["i"].as_u64().expect("an index");
            let next = stream.next.entry(choice).or_insert(first);
            assert_eq!(*next, first, "tokens are in order: {message}");
            *next += message
                .get("n")
                .map_or(1, |n| n.as_u64().expect("a number"));
        }
        if kind == "ended" {
            let error = &message["error"]["code"];
            assert!(
                error != "INTERNAL" && error != "INFERENCE_FAILED",
                "{message}"
            );
            (stream.is_attached, stream.has_ended) = (false, true);
        }
    }
}

/// Errors are the client's, and have a code and a message.
fn check_error(message: &Value) {
    let code = message["code"].as_str().expect("a code");
    assert!(code != "internal_error", "{message}");
    assert!(
        message["message"].is_string() && message["retriable"].is_boolean(),
        "{message}"
    );
}
