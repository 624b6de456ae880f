//! Cursors as text: in the `id:` lines of server-sent events, and in the `cursor` field where a frame is a JSON object
//! without fields of its own.

use crate::cursor::TerminalMarker;
use crate::json;
use crate::schema::written_as;
use bytes::BytesMut;
use generate::output::position::Position;
use serde::{Serialize, Serializer};
use std::fmt;
use std::fmt::{Display, Write};
use stream::StreamId;

/// The current position of one stream's frames, from which event ids are written. Allocates on creation only.
pub struct EventIds {
    /// `<stream id>:`
    stream: String,
    positions: Vec<Position>,
}

impl EventIds {
    /// Event ids that begin at these positions, one per choice.
    pub fn new(id: StreamId, positions: Vec<Position>) -> Self {
        Self {
            stream: format!("{id}:"),
            positions,
        }
    }

    /// Moves the position of `choice`; the next frame carries the new position.
    pub fn advance(&mut self, choice: usize, position: Position) {
        if let Some(before) = self.positions.get_mut(choice) {
            *before = position;
        }
    }

    /// The current position as text.
    pub fn cursor_text(&self, terminal: TerminalMarker, with_stream: bool) -> CursorText<'_> {
        CursorText {
            stream: if with_stream { &self.stream } else { "" },
            positions: &self.positions,
            terminal,
        }
    }
}

/// A cursor as text, in the syntax of [`Cursor::parse`](crate::cursor::Cursor::parse).
#[derive(Clone, Copy)]
pub struct CursorText<'a> {
    stream: &'a str,
    positions: &'a [Position],
    terminal: TerminalMarker,
}

impl CursorText<'_> {
    /// Appends the cursor's text.
    pub fn write_to(&self, out: &mut BytesMut) {
        json::raw(out, self.stream);
        for (i, position) in self.positions.iter().enumerate() {
            json::raw(out, if i == 0 { "" } else { "." });
            json::integer(out, position.steps);
            if position.parts > 0 {
                json::raw(out, "-");
                json::integer(out, position.parts);
            }
        }
        json::raw(out, self.terminal_suffix());
    }

    fn terminal_suffix(&self) -> &'static str {
        match self.terminal {
            TerminalMarker::None => "",
            TerminalMarker::Usage => ".1",
            TerminalMarker::Failed => ".2",
            TerminalMarker::Done => ".3",
        }
    }
}

impl Display for CursorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stream)?;
        for (i, position) in self.positions.iter().enumerate() {
            if i > 0 {
                f.write_char('.')?;
            }
            write!(f, "{}", position.steps)?;
            if position.parts > 0 {
                write!(f, "-{}", position.parts)?;
            }
        }
        f.write_str(self.terminal_suffix())
    }
}

written_as!(CursorText<'_> => String);

impl Serialize for CursorText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::Cursor;

    #[test]
    fn cursor_text_parses_to_its_cursor() {
        let id = StreamId::from_random([0xab; 16]);
        for (positions, terminal) in [
            (vec![(0, 0)], TerminalMarker::None),
            (vec![(7, 0)], TerminalMarker::Usage),
            (vec![(7, 0), (2, 0)], TerminalMarker::Failed),
            (vec![(3, 0), (0, 0), (12, 0)], TerminalMarker::Done),
            (vec![(u64::MAX, 0), (1, 0)], TerminalMarker::None),
            (vec![(0, 2)], TerminalMarker::None),
            (vec![(7, 1), (3, 0), (2, u64::MAX)], TerminalMarker::None),
        ] {
            let positions: Vec<_> = positions
                .into_iter()
                .map(|(steps, parts)| Position { steps, parts })
                .collect();
            let n = positions.len();
            let ids = EventIds::new(id, positions.clone());
            for with_stream in [true, false] {
                let want = Some(Cursor {
                    positions: positions.clone(),
                    terminal,
                });
                let cursor = ids.cursor_text(terminal, with_stream);
                let mut out = BytesMut::new();
                cursor.write_to(&mut out);
                let text = std::str::from_utf8(&out).unwrap();
                assert_eq!(text, cursor.to_string());
                assert_eq!(Cursor::parse(text, id, n), want, "{text}");
            }
        }
    }
}
