//! What happened to one request.

use super::chunk::{Chunk, Usage};
use super::events::Events;
use std::time::{Duration, Instant};

/// Why a request has no whole answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// No connection.
    Connect,
    /// The server answered with this status.
    Status(u16),
    /// An error came within the stream.
    Told,
    /// The body ended, or the connection broke, before the stream's end.
    Cut,
    /// A whole answer without one token.
    Empty,
    /// What came was no stream of chunks.
    Malformed,
    /// Time ran out.
    Timeout,
    /// This client had too many in flight.
    Unsent,
}

impl Failure {
    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Connect => "no connection".to_owned(),
            Self::Status(status) => format!("status {status}"),
            Self::Told => "error in the stream".to_owned(),
            Self::Cut => "cut".to_owned(),
            Self::Empty => "no token".to_owned(),
            Self::Malformed => "malformed".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Unsent => "not sent: too many in flight".to_owned(),
        }
    }
}

/// One answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Story {
    /// From when the request was due to its first visible token.
    pub(super) first: Duration,
    /// To the last.
    pub(super) last: Duration,
    /// To the stream's end.
    pub(super) end: Duration,
    /// Waits between frames with text.
    pub(super) gaps: Vec<Duration>,
    /// What the server counted.
    pub(super) usage: Option<Usage>,
}

impl Story {
    /// Frames with text.
    pub(super) fn frames(&self) -> u64 {
        self.gaps.len() as u64 + 1
    }

    /// Tokens of the answer: the server's count; frames, if it told none.
    pub(super) fn tokens(&self) -> u64 {
        self.usage
            .map_or(self.frames(), |usage| usage.completion_tokens)
    }

    /// Mean wait between tokens; `None` for an answer of one.
    pub(super) fn between_tokens(&self) -> Option<Duration> {
        let waits = u32::try_from(self.tokens().checked_sub(1)?).ok()?;
        (self.last - self.first).checked_div(waits)
    }

    /// Waits between tokens that came in one frame with the one before: all zero.
    pub(super) fn merged(&self) -> u64 {
        self.tokens().saturating_sub(self.frames())
    }
}

/// A story while it is told.
pub(super) struct Telling {
    due: Instant,
    events: Events,
    first: Option<Duration>,
    last: Duration,
    gaps: Vec<Duration>,
    usage: Option<Usage>,
    finished: bool,
    done: bool,
    failure: Option<Failure>,
}

impl Telling {
    pub(super) fn new(due: Instant) -> Self {
        Self {
            due,
            events: Events::default(),
            first: None,
            last: Duration::ZERO,
            gaps: Vec::new(),
            usage: None,
            finished: false,
            done: false,
            failure: None,
        }
    }

    /// Bytes of the body that arrived at `now`.
    pub(super) fn push(&mut self, bytes: &[u8], now: Instant) {
        let at = now.saturating_duration_since(self.due);
        let mut events = std::mem::take(&mut self.events);
        if events.push(bytes, |data| self.event(data, at)).is_err() {
            self.failure.get_or_insert(Failure::Malformed);
        }
        self.events = events;
    }

    fn event(&mut self, data: &[u8], at: Duration) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Some(chunk) = Chunk::read(data) else {
            self.failure.get_or_insert(Failure::Malformed);
            return;
        };
        if chunk.is_error {
            self.failure.get_or_insert(Failure::Told);
        }
        if chunk.has_text {
            match self.first {
                None => self.first = Some(at),
                Some(_) => self.gaps.push(at.saturating_sub(self.last)),
            }
            self.last = at;
        }
        self.finished |= chunk.finished;
        self.usage = chunk.usage.or(self.usage);
    }

    /// Whether nothing more is worth waiting for.
    pub(super) fn is_over(&self) -> bool {
        self.done || self.failure.is_some()
    }

    /// The body has ended at `now`.
    pub(super) fn finish(self, now: Instant) -> Result<Story, Failure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if !(self.done || self.finished) {
            return Err(Failure::Cut);
        }
        Ok(Story {
            first: self.first.ok_or(Failure::Empty)?,
            last: self.last,
            end: now.saturating_duration_since(self.due),
            gaps: self.gaps,
            usage: self.usage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells frames, each so many milliseconds after the request was due.
    fn tell(frames: &[(u64, &str)]) -> Result<Story, Failure> {
        let due = crate::clock::now();
        let mut telling = Telling::new(due);
        let mut now = due;
        for (at, data) in frames {
            now = due + Duration::from_millis(*at);
            telling.push(format!("data: {data}\n\n").as_bytes(), now);
        }
        telling.finish(now)
    }

    const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    const TEXT: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    const STOP: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6}}"#;

    #[test]
    fn tokens_are_the_servers_and_merged_ones_waited_for_nothing() {
        let frames = [
            (5, ROLE),
            (20, TEXT),
            (30, TEXT),
            (60, TEXT),
            (61, STOP),
            (61, USAGE),
            (62, "[DONE]"),
        ];
        let story = tell(&frames).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(
            (story.first, story.last, story.end),
            (ms(20), ms(60), ms(62))
        );
        assert_eq!(story.gaps, [ms(10), ms(30)]);
        // Six tokens in three frames: five waits, three of them none.
        assert_eq!((story.tokens(), story.frames(), story.merged()), (6, 3, 3));
        assert_eq!(story.between_tokens(), Some(ms(8)));
    }

    #[test]
    fn without_usage_frames_are_counted() {
        let story = tell(&[(1, TEXT), (4, TEXT), (4, "[DONE]")]).unwrap();
        assert_eq!((story.tokens(), story.merged(), story.usage), (2, 0, None));
        let one = tell(&[(1, TEXT), (1, STOP)]).unwrap();
        assert_eq!(one.between_tokens(), None);
    }

    #[test]
    fn every_bad_end_has_a_name() {
        let rows: [(&[(u64, &str)], Failure); 5] = [
            (&[(1, TEXT)], Failure::Cut),
            (&[], Failure::Cut),
            (&[(1, ROLE), (2, STOP), (2, "[DONE]")], Failure::Empty),
            (
                &[(1, TEXT), (2, r#"{"error":{"message":"x"}}"#)],
                Failure::Told,
            ),
            (&[(1, "<p>")], Failure::Malformed),
        ];
        for (frames, failure) in rows {
            assert_eq!(tell(frames), Err(failure), "{frames:?}");
        }
    }
}
