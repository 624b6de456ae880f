//! A stream position as clients see it: in the `id:` lines of frames, or in the `cursor` field where a frame is a line
//! of JSON.
//!
//! `<stream id>:<i0>[.<i1>...][.<closing>]`: one position per choice, as whole steps, or as `<i>-<p>` after `p` parts of
//! the step that follows `i` whole ones. Frames after the ends have one number more: 1 after the last usage, 2 after
//! the error of a bad end, 3 after everything. So a client that was cut off between any two frames gets exactly those
//! that it cannot prove to have.

use generate::error::ApiError;
use generate::output::position::Position;
use stream::StreamId;

/// What a client has of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Position in each choice.
    pub reached: Vec<Position>,
    /// Terminal frames that the client has.
    pub closing: Closing,
}

/// Terminal frames that a client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closing {
    /// None.
    #[default]
    Open,
    /// The final usage.
    Usage,
    /// The error of a stream that failed, in a protocol with a frame after it.
    Failed,
    /// All.
    Done,
}

impl Cursor {
    /// The cursor before the stream's end, for a protocol that sends the end to every subscriber.
    pub fn before_ending(self) -> Self {
        Self {
            closing: self.closing.min(Closing::Usage),
            ..self
        }
    }

    /// Parses a cursor of this stream of `choices` choices, with the id or without.
    pub fn parse(text: &str, id: StreamId, choices: usize) -> Option<Self> {
        let numbers = match text.trim().split_once(':') {
            Some((named, numbers)) => (named.parse() == Ok(id)).then_some(numbers)?,
            None => text.trim(),
        };
        let mut reached = Vec::with_capacity(choices + 1);
        for number in numbers.split('.') {
            if reached.len() > choices {
                return None;
            }
            reached.push(parse_position(number)?);
        }
        let closing = match (reached.len().checked_sub(choices)?, reached.last()) {
            (0, _) => Closing::Open,
            (1, Some(&last)) => match (last.steps, last.parts) {
                (1, 0) => Closing::Usage,
                (2, 0) => Closing::Failed,
                (3, 0) => Closing::Done,
                _ => return None,
            },
            _ => return None,
        };
        reached.truncate(choices);
        Some(Self { reached, closing })
    }
}

/// `<steps>`, or `<steps>-<parts>`.
fn parse_position(text: &str) -> Option<Position> {
    let number = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    match text.split_once('-') {
        None => number(text).map(Position::whole),
        Some((steps, parts)) => Some(Position {
            steps: number(steps)?,
            parts: number(parts).filter(|&parts| parts > 0)?,
        }),
    }
}

/// The last event id that a client sent is no position of this stream.
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
    fn what_was_never_written_is_not_read() {
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
            ("no such closing", "3.0".to_owned(), 1),
            ("nor this", "3.4".to_owned(), 1),
            ("a hole", "3..1".to_owned(), 2),
            ("too large", "18446744073709551616".to_owned(), 1),
            ("words", "end".to_owned(), 1),
            ("no parts", "3-0".to_owned(), 1),
            ("a part of nothing", "-1".to_owned(), 1),
            ("parts of parts", "3-1-1".to_owned(), 1),
            ("a part of a closing", "3.1-1".to_owned(), 1),
        ];
        for (case, text, choices) in rows {
            assert_eq!(Cursor::parse(&text, id(), choices), None, "{case}");
        }
    }
}
