//! How much of a stream a client was told, as it stands in the `id:` lines of its frames, or in the
//! `cursor` field where a frame is a line of JSON.
//!
//! `<stream id>:<i0>[.<i1>...][.<closing>]`: one place per choice, counting steps. A step is the
//! preface, where there is one; each token; what the fold still held back when the tokens were over
//! (told or empty, it is a step); the ending. A step may have several parts (the last text before a
//! call, and the call's name): `<i>-<p>` is after `p` parts of the step that follows `i` whole ones.
//! Frames after the endings have one number more: 1 after the last counts, 2 after the error of a bad
//! ending, 3 after everything. So a client that was cut off between any two frames gets exactly those
//! it cannot prove to have.
//!
//! Steps count what was folded, not what was framed, so a position means the same in every dialect.

use crate::generate::error::ApiError;
use crate::wire::framing::Framing;
use crate::wire::json;
use bytes::BytesMut;
use stream::StreamId;

/// Bytes of `id: <stream id>:`.
const HEAD_BYTES: usize = HEAD_NAME + 32 + 1;
/// Bytes of `id: `.
const HEAD_NAME: usize = 4;

/// How much of one choice a client was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reached {
    /// Whole steps.
    pub(crate) steps: u64,
    /// Parts of the step after those.
    pub(crate) parts: u64,
}

impl Reached {
    /// So many steps, and nothing of the next.
    pub(crate) fn whole(steps: u64) -> Self {
        Self { steps, parts: 0 }
    }

    /// Steps of which it has something.
    pub(crate) fn begun(self) -> u64 {
        self.steps.saturating_add(u64::from(self.parts > 0))
    }

    /// As [`Self::write`] writes it.
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| text.parse::<u64>().ok()).flatten()
        };
        match text.split_once('-') {
            None => number(text).map(Self::whole),
            Some((steps, parts)) => Some(Self {
                steps: number(steps)?,
                parts: number(parts).filter(|&parts| parts > 0)?,
            }),
        }
    }

    /// `<steps>`, or `<steps>-<parts>`.
    pub(crate) fn write(self, out: &mut BytesMut) {
        json::integer(out, self.steps);
        if self.parts > 0 {
            json::raw(out, "-");
            json::integer(out, self.parts);
        }
    }
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Of each choice.
    pub(crate) reached: Vec<Reached>,
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
    /// The same place before the stream's ending, for a dialect that tells the ending to whoever asks.
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
            reached.push(Reached::parse(number)?);
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
    reached: Vec<Reached>,
    framing: Framing,
}

impl Marks {
    /// Of a stream that was told as much of each choice.
    pub(crate) fn new(id: StreamId, reached: Vec<Reached>) -> Self {
        let text = format!("id: {id}:");
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(text.as_bytes());
        Self {
            head,
            reached,
            framing: Framing::Events,
        }
    }

    /// The same in a body that is cut so.
    pub(crate) fn framed(self, framing: Framing) -> Self {
        Self { framing, ..self }
    }

    /// How the body is cut.
    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// A client that has the frame that follows has as much of `choice`.
    pub(crate) fn event(&mut self, choice: usize, reached: Reached, out: &mut BytesMut) {
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

/// The numbers of a cursor, without the stream's id: what [`Cursor::parse`] reads.
pub(crate) fn write_place(reached: &[Reached], closing: Closing, out: &mut BytesMut) {
    for (i, reached) in reached.iter().enumerate() {
        json::raw(out, if i == 0 { "" } else { "." });
        reached.write(out);
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
                .map(|(steps, parts)| Reached { steps, parts })
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
