//! How much of a stream a client was told, as it stands in the `id:` lines of its frames, or in the
//! `cursor` field where a frame is a line of JSON.
//!
//! `<stream id>:<i0>[.<i1>...][.<closing>]`: one number per choice, counting steps. A step is the
//! preface, where there is one; each token; what the fold still held back when the tokens were over
//! (told or empty, it is a step); the ending. Frames after that have one number more: 1 after the last
//! counts, 2 after the error of a bad ending, 3 after everything. So a client that was cut off between
//! any two frames gets exactly those it cannot prove to have.
//!
//! Steps count what was folded, not what was framed, so a position means the same in every dialect.

use crate::framing::Framing;
use crate::json;
use bytes::BytesMut;
use stream::StreamId;

/// Bytes of `id: <stream id>:`.
const HEAD_BYTES: usize = HEAD_NAME + 32 + 1;
/// Bytes of `id: `.
const HEAD_NAME: usize = 4;

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Steps told, per choice.
    pub(crate) steps: Vec<u64>,
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
        let mut steps = Vec::with_capacity(choices + 1);
        for number in numbers.split('.') {
            let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            if !plain || steps.len() > choices {
                return None;
            }
            steps.push(number.parse().ok()?);
        }
        let closing = match (steps.len().checked_sub(choices)?, steps.last()) {
            (0, _) => Closing::Open,
            (1, Some(1)) => Closing::Usage,
            (1, Some(2)) => Closing::Failed,
            (1, Some(3)) => Closing::Done,
            _ => return None,
        };
        steps.truncate(choices);
        Some(Self { steps, closing })
    }
}

/// Writes `id:` lines, or `cursor` fields where frames are lines. Allocates when it is made and never
/// again.
pub(crate) struct Marks {
    head: [u8; HEAD_BYTES],
    steps: Vec<u64>,
    framing: Framing,
}

impl Marks {
    /// Of a stream that was told up to `steps`.
    pub(crate) fn new(id: StreamId, steps: Vec<u64>) -> Self {
        let text = format!("id: {id}:");
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(text.as_bytes());
        Self {
            head,
            steps,
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

    /// `choice` is at `step` after the frame that follows.
    pub(crate) fn event(&mut self, choice: usize, step: u64, out: &mut BytesMut) {
        self.steps[choice] = step;
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
        write_place(&self.steps, closing, out);
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
pub(crate) fn write_place(steps: &[u64], closing: Closing, out: &mut BytesMut) {
    for (i, &step) in steps.iter().enumerate() {
        json::raw(out, if i == 0 { "" } else { "." });
        json::integer(out, step);
    }
    match closing {
        Closing::Open => {}
        Closing::Usage => json::raw(out, ".1"),
        Closing::Failed => json::raw(out, ".2"),
        Closing::Done => json::raw(out, ".3"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> StreamId {
        StreamId::from_random([0xab; 16])
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (steps, closing) in [
            (vec![0], Closing::Open),
            (vec![7], Closing::Usage),
            (vec![7, 2], Closing::Failed),
            (vec![3, 0, 12], Closing::Done),
            (vec![u64::MAX, 1], Closing::Open),
        ] {
            let mut out = BytesMut::new();
            Marks::new(id(), steps.clone()).closing(closing, &mut out);
            let line = std::str::from_utf8(&out).unwrap();
            let text = line
                .strip_prefix("id: ")
                .unwrap()
                .strip_suffix('\n')
                .unwrap();
            let n = steps.len();
            let want = Some(Cursor { steps, closing });
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
        ];
        for (case, text, choices) in rows {
            assert_eq!(Cursor::parse(&text, id(), choices), None, "{case}");
        }
    }
}
