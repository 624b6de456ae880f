//! Cursors: stream positions as clients see them, in the `id:` lines of frames, or in the `cursor` field where a frame
//! is a line of JSON.
//!
//! `<stream id>:<i0>[.<i1>...][.<terminal>]`: one position per choice, counted in whole steps; `<i>-<p>` is the
//! position after `p` parts of the step that follows `i` whole steps. Terminal frames have one more number: 1 after
//! the last usage, 2 after the error of a failed stream, 3 after the last frame. A client that was disconnected
//! between two frames therefore resumes at exactly the first frame that its cursor does not cover.
//!
//! Cursors as text: in the `id:` lines of server-sent events, and in the `cursor` field where a frame is a JSON object
//! without fields of its own.

use crate::json;
use crate::schema::written_as;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::position::Position;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display, Write};
use stream::StreamId;

/// The part of a stream that a client has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Position in each choice.
    pub positions: Vec<Position>,
    /// Terminal frames that the client has received.
    pub terminal: TerminalMarker,
}

/// Terminal frames that a client has received, in the order in which they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TerminalMarker {
    /// No terminal frame.
    #[default]
    None,
    /// The final usage.
    Usage,
    /// The error of a failed stream, in a protocol with a frame after the error.
    Failed,
    /// All terminal frames.
    Done,
}

impl Cursor {
    /// The cursor moved before the stream's end, for a protocol that sends the end to every subscriber.
    pub fn before_ending(self) -> Self {
        Self {
            terminal: self.terminal.min(TerminalMarker::Usage),
            ..self
        }
    }

    /// Parses a cursor of the stream `id` with `choices` choices; the stream id in the text is optional.
    pub fn parse(text: &str, id: StreamId, choices: usize) -> Option<Self> {
        let numbers = match text.trim().split_once(':') {
            Some((named, numbers)) => (named.parse() == Ok(id)).then_some(numbers)?,
            None => text.trim(),
        };
        let mut positions = Vec::with_capacity(choices + 1);
        for number in numbers.split('.') {
            if positions.len() > choices {
                return None;
            }
            positions.push(parse_position(number)?);
        }
        let terminal = match (positions.len().checked_sub(choices)?, positions.last()) {
            (0, _) => TerminalMarker::None,
            (1, Some(&last)) => match (last.steps, last.parts) {
                (1, 0) => TerminalMarker::Usage,
                (2, 0) => TerminalMarker::Failed,
                (3, 0) => TerminalMarker::Done,
                _ => return None,
            },
            _ => return None,
        };
        positions.truncate(choices);
        Some(Self {
            positions,
            terminal,
        })
    }
}

/// Digits, and nothing else.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// `<steps>`, or `<steps>-<parts>`.
fn parse_position(text: &str) -> Option<Position> {
    match text.split_once('-') {
        None => number(text).map(Position::whole),
        Some((steps, parts)) => Some(Position {
            steps: number(steps)?,
            parts: number(parts).filter(|&parts| parts > 0)?,
        }),
    }
}

/// Error for an event id that is no position of the stream.
pub fn invalid_cursor() -> ApiError {
    ApiError::bad_request(
        "invalid_cursor",
        "the last event id is not a position of this stream",
    )
}

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

/// A cursor as text, in the syntax of [`Cursor::parse`](Cursor::parse).
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

    fn id() -> StreamId {
        StreamId::from_random([0xab; 16])
    }

    #[test]
    fn malformed_cursor_is_rejected() {
        let other = StreamId::from_random([1; 16]);
        let rows = [
            ("empty", String::new(), 1),
            ("no number", format!("{}:", id()), 1),
            ("another stream", format!("{other}:3"), 1),
            ("no stream", "zzz:3".to_owned(), 1),
            ("a sign", "+3".to_owned(), 1),
            ("negative", "-1".to_owned(), 1),
            ("too few", "3".to_owned(), 2),
            ("too many", "3.4.1.1".to_owned(), 2),
            ("no such terminal marker", "3.0".to_owned(), 1),
            ("nor this", "3.4".to_owned(), 1),
            ("a hole", "3..1".to_owned(), 2),
            ("too large", "18446744073709551616".to_owned(), 1),
            ("words", "end".to_owned(), 1),
            ("no parts", "3-0".to_owned(), 1),
            ("a part of nothing", "-1".to_owned(), 1),
            ("parts of parts", "3-1-1".to_owned(), 1),
            ("a part of a terminal marker", "3.1-1".to_owned(), 1),
            ("something after the position", "3~1".to_owned(), 1),
        ];
        for (case, text, choices) in rows {
            assert_eq!(Cursor::parse(&text, id(), choices), None, "{case}");
        }
    }

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
