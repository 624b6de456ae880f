//! A stream position as clients see it: in the `id:` lines of frames, or in the `cursor` field where a frame is a line
//! of JSON.
//!
//! `<stream id>:<i0>[.<i1>...][.<closing>]`: one position per choice, as whole steps, or as `<i>-<p>` after `p` parts of
//! the step that follows `i` whole ones. Frames after the ends have one number more: 1 after the last usage, 2 after
//! the error of a bad end, 3 after everything. So a client that was cut off between any two frames gets exactly those
//! that it cannot prove to have.

use crate::wire::framing::Framing;
use crate::wire::json;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::position::Position;
use stream::StreamId;

/// Bytes of `id: <stream id>:`.
const HEAD_BYTES: usize = HEAD_NAME + 32 + 1;
/// Bytes of `id: `.
const HEAD_NAME: usize = 4;

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Of each choice.
    pub(crate) reached: Vec<Position>,
    pub(crate) closing: Closing,
}

/// How far the frames after the last ending are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    /// Not begun.
    #[default]
    Open,
    /// The last counts were told.
    Usage,
    /// The bad ending was told; something follows it in this dialect.
    Failed,
    /// Everything was told.
    Done,
}

impl Cursor {
    /// The position before the stream's end, for a protocol that repeats the end.
    pub(crate) fn before_ending(self) -> Self {
        Self {
            closing: self.closing.min(Closing::Usage),
            ..self
        }
    }

    /// Reads what [`Marks`] wrote for this stream of `choices` choices, with the id or without.
    pub(crate) fn parse(text: &str, id: StreamId, choices: usize) -> Option<Self> {
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

/// Writes `id:` lines, or `cursor` fields where frames are lines. Allocates when it is made and never
/// again.
pub(crate) struct Marks {
    head: [u8; HEAD_BYTES],
    reached: Vec<Position>,
    framing: Framing,
}

impl Marks {
    /// Of a stream that was told as much of each choice.
    pub(crate) fn new(id: StreamId, reached: Vec<Position>) -> Self {
        let text = format!("id: {id}:");
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(text.as_bytes());
        Self {
            head,
            reached,
            framing: Framing::Events,
        }
    }

    /// The cursor for this framing.
    pub(crate) fn framed(self, framing: Framing) -> Self {
        Self { framing, ..self }
    }

    /// How the body is cut.
    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// A client that has the frame that follows has as much of `choice`.
    pub(crate) fn event(&mut self, choice: usize, reached: Position, out: &mut BytesMut) {
        self.reached[choice] = reached;
        self.write(Closing::Open, out);
    }

    /// A frame after the last ending follows.
    pub(crate) fn closing(&self, closing: Closing, out: &mut BytesMut) {
        self.write(closing, out);
    }

    fn write(&self, closing: Closing, out: &mut BytesMut) {
        match self.framing {
            Framing::Events => out.extend_from_slice(&self.head),
            Framing::Lines => {
                json::raw(out, ",\"cursor\":\"");
                out.extend_from_slice(&self.head[HEAD_NAME..]);
            }
        }
        write_place(&self.reached, closing, out);
        json::raw(
            out,
            match self.framing {
                Framing::Events => "\n",
                Framing::Lines => "\"",
            },
        );
    }
}

/// Reads what [`write_position`] wrote.
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

/// `<steps>`, or `<steps>-<parts>`.
fn write_position(position: Position, out: &mut BytesMut) {
    json::integer(out, position.steps);
    if position.parts > 0 {
        json::raw(out, "-");
        json::integer(out, position.parts);
    }
}

/// The numbers of a cursor, without the stream's id: what [`Cursor::parse`] reads.
pub(crate) fn write_place(reached: &[Position], closing: Closing, out: &mut BytesMut) {
    for (i, reached) in reached.iter().enumerate() {
        json::raw(out, if i == 0 { "" } else { "." });
        write_position(*reached, out);
    }
    match closing {
        Closing::Open => {}
        Closing::Usage => json::raw(out, ".1"),
        Closing::Failed => json::raw(out, ".2"),
        Closing::Done => json::raw(out, ".3"),
    }
}

/// The last event id that a client sent is no position of this stream.
pub(crate) fn invalid_cursor() -> ApiError {
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
    fn what_is_written_is_read_again() {
        for (reached, closing) in [
            (vec![(0, 0)], Closing::Open),
            (vec![(7, 0)], Closing::Usage),
            (vec![(7, 0), (2, 0)], Closing::Failed),
            (vec![(3, 0), (0, 0), (12, 0)], Closing::Done),
            (vec![(u64::MAX, 0), (1, 0)], Closing::Open),
            (vec![(0, 2)], Closing::Open),
            (vec![(7, 1), (3, 0), (2, u64::MAX)], Closing::Open),
        ] {
            let reached = reached.into_iter();
            let reached: Vec<_> = reached
                .map(|(steps, parts)| Position { steps, parts })
                .collect();
            let mut out = BytesMut::new();
            Marks::new(id(), reached.clone()).closing(closing, &mut out);
            let line = std::str::from_utf8(&out).unwrap();
            let text = line
                .strip_prefix("id: ")
                .unwrap()
                .strip_suffix('\n')
                .unwrap();
            let n = reached.len();
            let want = Some(Cursor { reached, closing });
            assert_eq!(Cursor::parse(text, id(), n), want, "{text}");
            let bare = text.split_once(':').unwrap().1;
            assert_eq!(Cursor::parse(bare, id(), n), want, "{bare}");
        }
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
