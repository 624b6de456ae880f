//! Newline-delimited JSON: one object per line. A cursor is the object's last field.

use crate::event_id::CursorText;
use crate::json;
use bytes::BytesMut;
use serde::Serialize;

/// An object, followed by the cursor.
#[derive(Serialize)]
struct WithCursor<'a, T> {
    #[serde(flatten)]
    object: &'a T,
    cursor: &'a CursorText<'a>,
}

/// Writes one line.
pub(crate) fn write_line(
    object: &impl Serialize,
    cursor: Option<&CursorText<'_>>,
    out: &mut BytesMut,
) {
    match cursor {
        Some(cursor) => json::write(&WithCursor { object, cursor }, out),
        None => json::write(object, out),
    }
    json::raw(out, "\n");
}
