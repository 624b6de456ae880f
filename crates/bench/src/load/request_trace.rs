//! Timestamps of one request.

use super::chunk::{SseReader, StreamChunk, Usage};
use std::time::{Duration, Instant};

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// Connection failed.
    Connect,
    /// Error response with this status.
    Status(u16),
    /// Error event in the stream.
    StreamError,
    /// The body or the connection ended before the end of the stream.
    Cut,
    /// Complete response without a token.
    Empty,
    /// Body that is not a stream of chunks.
    Malformed,
    /// Timeout of the request.
    Timeout,
    /// Not sent: the client had too many requests in flight.
    Unsent,
}

impl Failure {
    /// Name in reports.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Connect => "no connection".to_owned(),
            Self::Status(status) => format!("status {status}"),
            Self::StreamError => "error in the stream".to_owned(),
            Self::Cut => "cut".to_owned(),
            Self::Empty => "no token".to_owned(),
            Self::Malformed => "malformed".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Unsent => "not sent: too many in flight".to_owned(),
        }
    }
}

/// Timestamps of a complete response, relative to the arrival of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestTrace {
    /// Time of the first visible token.
    pub(super) first: Duration,
    /// Time of the last visible token.
    pub(super) last: Duration,
    /// Time of the end of the stream.
    pub(super) end: Duration,
    /// Times between frames with text.
    pub(super) gaps: Vec<Duration>,
    /// Token counts of the server.
    pub(super) usage: Option<Usage>,
}

impl RequestTrace {
    /// Number of frames with text.
    pub(super) fn frames(&self) -> u64 {
        self.gaps.len() as u64 + 1
    }

    /// Output tokens according to the server, or else the number of frames.
    pub(super) fn tokens(&self) -> u64 {
        self.usage
            .map_or(self.frames(), |usage| usage.completion_tokens)
    }

    /// Mean time per output token; `None` for a response of one token.
    pub(super) fn between_tokens(&self) -> Option<Duration> {
        let waits = u32::try_from(self.tokens().checked_sub(1)?).ok()?;
        (self.last - self.first).checked_div(waits)
    }

    /// Number of tokens that shared a frame with the token before.
    pub(super) fn merged_tokens(&self) -> u64 {
        self.tokens().saturating_sub(self.frames())
    }
}

/// Recorder of a request trace while the stream is read.
pub(super) struct TraceRecorder {
    due: Instant,
    events: SseReader,
    first: Option<Duration>,
    last: Duration,
    gaps: Vec<Duration>,
    usage: Option<Usage>,
    finished: bool,
    done: bool,
    failure: Option<Failure>,
}

impl TraceRecorder {
    pub(super) fn new(due: Instant) -> Self {
        Self {
            due,
            events: SseReader::default(),
            first: None,
            last: Duration::ZERO,
            gaps: Vec::new(),
            usage: None,
            finished: false,
            done: false,
            failure: None,
        }
    }

    /// Records bytes of the body that arrived at `now`.
    pub(super) fn push(&mut self, bytes: &[u8], now: Instant) {
        let at = now.saturating_duration_since(self.due);
        let mut events = std::mem::take(&mut self.events);
        if events
            .push(bytes, |data| self.read_event(data, at))
            .is_err()
        {
            self.failure.get_or_insert(Failure::Malformed);
        }
        self.events = events;
    }

    fn read_event(&mut self, data: &[u8], at: Duration) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Some(chunk) = StreamChunk::parse(data) else {
            self.failure.get_or_insert(Failure::Malformed);
            return;
        };
        if chunk.is_error {
            self.failure.get_or_insert(Failure::StreamError);
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

    /// Whether the stream has ended or failed.
    pub(super) fn is_finished(&self) -> bool {
        self.done || self.failure.is_some()
    }

    /// Completes the trace at the end of the body.
    pub(super) fn into_trace(self, now: Instant) -> Result<RequestTrace, Failure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if !(self.done || self.finished) {
            return Err(Failure::Cut);
        }
        Ok(RequestTrace {
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

    /// Records frames, each at a number of milliseconds after the arrival.
    fn record(frames: &[(u64, &str)]) -> Result<RequestTrace, Failure> {
        let due = crate::process::now();
        let mut recorder = TraceRecorder::new(due);
        let mut now = due;
        for (at, data) in frames {
            now = due + Duration::from_millis(*at);
            recorder.push(format!("data: {data}\n\n").as_bytes(), now);
        }
        recorder.into_trace(now)
    }

    const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    const TEXT: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    const STOP: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6}}"#;

    #[test]
    fn tokens_are_counted_by_usage_and_merged_tokens_have_zero_latency() {
        let frames = [
            (5, ROLE),
            (20, TEXT),
            (30, TEXT),
            (60, TEXT),
            (61, STOP),
            (61, USAGE),
            (62, "[DONE]"),
        ];
        let trace = record(&frames).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(
            (trace.first, trace.last, trace.end),
            (ms(20), ms(60), ms(62))
        );
        assert_eq!(trace.gaps, [ms(10), ms(30)]);
        // Six tokens in three frames: five latencies, three of them zero.
        assert_eq!(
            (trace.tokens(), trace.frames(), trace.merged_tokens()),
            (6, 3, 3)
        );
        assert_eq!(trace.between_tokens(), Some(ms(8)));
    }

    #[test]
    fn frames_are_counted_without_usage() {
        let trace = record(&[(1, TEXT), (4, TEXT), (4, "[DONE]")]).unwrap();
        assert_eq!(
            (trace.tokens(), trace.merged_tokens(), trace.usage),
            (2, 0, None)
        );
        let one = record(&[(1, TEXT), (1, STOP)]).unwrap();
        assert_eq!(one.between_tokens(), None);
    }

    #[test]
    fn incomplete_streams_have_named_failures() {
        let rows: [(&[(u64, &str)], Failure); 5] = [
            (&[(1, TEXT)], Failure::Cut),
            (&[], Failure::Cut),
            (&[(1, ROLE), (2, STOP), (2, "[DONE]")], Failure::Empty),
            (
                &[(1, TEXT), (2, r#"{"error":{"message":"x"}}"#)],
                Failure::StreamError,
            ),
            (&[(1, "<p>")], Failure::Malformed),
        ];
        for (frames, failure) in rows {
            assert_eq!(record(frames), Err(failure), "{frames:?}");
        }
    }
}
