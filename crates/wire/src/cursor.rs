//! Cursors: stream positions as clients see them, in the `id:` lines of frames, or in the `cursor` field where a frame
//! is a line of JSON.
//!
//! `<stream id>:<i0>[.<i1>...][.<terminal>]`: one position per choice, counted in whole steps; `<i>-<p>` is the
//! position after `p` parts of the step that follows `i` whole steps. Terminal frames have one more number: 1 after
//! the last usage, 2 after the error of a failed stream, 3 after the last frame. A client that was disconnected
//! between two frames therefore resumes at exactly the first frame that its cursor does not cover.

use generate::error::ApiError;
use generate::output::position::Position;
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
