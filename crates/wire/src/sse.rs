//! Server-sent events: one line per field, and an empty line after each event.

use crate::event_id::CursorText;
use crate::json;
use bytes::BytesMut;
use std::fmt::{Arguments, Write};

/// Time after which a client of a resumable stream reconnects, in milliseconds. Browsers wait about three seconds
/// without this field.
const RETRY_MS: u64 = 250;

/// Writes the reconnection time as the first field of an event. A block of this field alone would be an event with empty
/// data in some clients.
pub fn write_retry(out: &mut BytesMut) {
    json::raw(out, "retry: ");
    json::integer(out, RETRY_MS);
    json::raw(out, "\n");
}

/// Writes the fields of an event up to the beginning of its data.
pub(crate) fn begin_event(id: Option<CursorText<'_>>, name: Option<&str>, out: &mut BytesMut) {
    if let Some(id) = id {
        json::raw(out, "id: ");
        id.write_to(out);
        json::raw(out, "\n");
    }
    if let Some(name) = name {
        json::raw(out, "event: ");
        json::raw(out, name);
        json::raw(out, "\n");
    }
    json::raw(out, "data: ");
}

/// Ends an event after the data.
pub(crate) fn end_event(out: &mut BytesMut) {
    json::raw(out, "\n\n");
}

/// Writes a comment on a line of its own; clients ignore comments.
pub(crate) fn write_comment_line(text: Arguments<'_>, out: &mut BytesMut) {
    json::raw(out, ": ");
    // Writing into memory does not fail.
    let _ = out.write_fmt(text);
    json::raw(out, "\n");
}
