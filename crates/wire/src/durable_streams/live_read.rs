//! Live reads: the cursor that keeps caches from answering with an old response again, and the control event after the
//! messages of an event stream.

use super::step_offset::OffsetText;
use crate::json;
use crate::schema::written_as;
use bytes::BytesMut;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Beginning of the protocol's time in seconds since the Unix epoch: 2024-10-09T00:00:00Z.
const CURSOR_EPOCH_S: u64 = 1_728_432_000;
/// Length of an interval of the protocol's time in seconds.
const INTERVAL_S: u64 = 20;
/// Limit of the intervals by which a cursor precedes that of the client: an hour.
const JITTER_INTERVALS: u64 = 3600 / INTERVAL_S;

/// The cursor of a response: the current interval, or, for a client that has that cursor already, a later one.
/// `random` is any number.
pub fn response_cursor(client: Option<&str>, now_unix_s: u64, random: u64) -> u64 {
    let current = now_unix_s.saturating_sub(CURSOR_EPOCH_S) / INTERVAL_S;
    let client = client.and_then(|cursor| cursor.parse::<u64>().ok());
    match client.filter(|client| *client >= current) {
        Some(client) => client.saturating_add(1 + random % JITTER_INTERVALS),
        None => current,
    }
}

/// A cursor as text.
pub struct LiveCursor(pub u64);

written_as!(LiveCursor => String);

impl Serialize for LiveCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The control event of an event stream: the client's position after the messages before.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DurableStreamControl")]
pub struct ControlEvent {
    /// The offset to continue from.
    pub stream_next_offset: OffsetText,
    /// The cursor to send with the next request; absent at the end of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_cursor: Option<LiveCursor>,
    /// True if the client has all messages.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub up_to_date: bool,
    /// True if the client has all messages and the stream has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stream_closed: bool,
}

/// Writes the messages, without brackets, as one event; no event without messages.
pub fn write_messages(messages: &[u8], out: &mut BytesMut) {
    if !messages.is_empty() {
        json::raw(out, "event: data\ndata: [");
        out.extend_from_slice(messages);
        json::raw(out, "]\n\n");
    }
}

/// Writes a control event.
pub fn write_control(control: &ControlEvent, out: &mut BytesMut) {
    json::raw(out, "event: control\ndata: ");
    json::write(control, out);
    json::raw(out, "\n\n");
}

/// Writes a comment that keeps an idle connection open.
pub fn write_ping(out: &mut BytesMut) {
    json::raw(out, ": ping\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_follow_the_time_and_never_go_back() {
        let now = CURSOR_EPOCH_S + 1000 * INTERVAL_S + 7;
        for client in [None, Some("999"), Some("x"), Some("-1"), Some("")] {
            assert_eq!(response_cursor(client, now, 5), 1000, "{client:?}");
        }
        assert_eq!(response_cursor(Some("1000"), now, 0), 1001);
        assert_eq!(response_cursor(Some("2000"), now, 179), 2180);
        assert_eq!(response_cursor(Some("2000"), now, 180), 2001);
        assert_eq!(response_cursor(None, 0, 0), 0);
    }
}
