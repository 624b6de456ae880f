//! Metrics of one response, as the client sees the response.

use super::GenerationMetrics;
use crate::streams::{SocketMetrics, StreamRecord};
use generate::output::generation_reader::Turn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use wire::clock;
use wire::protocol::Protocol;

/// A connection that takes the next frame after this time or later counts as stalled by the reader; shorter times are
/// copying.
const STALL_MIN: Duration = Duration::from_millis(1);

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// Every choice ended successfully and the connection took all frames.
    Complete,
    /// An ending that dialects spell as an error.
    Failed,
    /// The client disconnected before the end.
    Left,
}

impl ResponseOutcome {
    /// All, in the order of their numbers.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Complete, "complete"),
        (Self::Failed, "failed"),
        (Self::Left, "left"),
    ];
}

/// How a reader receives the events of a stream.
#[derive(Clone, Copy, Debug)]
pub enum MeteredProtocol {
    /// A response in this wire protocol.
    Wire(Protocol),
    /// The messages of a realtime session.
    Realtime,
}

impl MeteredProtocol {
    /// The label `dialect` of the metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Wire(protocol) => protocol.name(),
            Self::Realtime => "realtime",
        }
    }
}

/// Protocol, kind and time of a request.
#[derive(Clone, Copy, Debug)]
pub struct MeteredRequest {
    /// How the reader receives events.
    pub protocol: MeteredProtocol,
    /// Whether the response is streamed.
    pub stream: bool,
    /// Whether the reader attached to an existing stream, also to resume the stream.
    pub attached: bool,
    /// When the request had come.
    pub arrived: Instant,
}

/// Measures one response from the start to the last byte; the drop records the outcome.
///
/// A frame is *emitted* when encoded, and *taken* when the connection asks for the next frame: then the frame has
/// left for the socket. The time between the two is attributed to the reader.
pub(crate) struct ResponseMeter {
    metrics: Arc<GenerationMetrics>,
    request: MeteredRequest,
    /// The stream, whose own metrics are written too.
    record: Option<Arc<StreamRecord>>,
    /// Whether the reader owned the credit at the last frame.
    owns_credit: bool,
    /// Since when a frame waits to be taken.
    told_at: Option<Instant>,
    told_tokens: u64,
    /// When the last frame with tokens was taken.
    taken_at: Option<Instant>,
    taken_tokens: u64,
    outcome: ResponseOutcome,
}

impl ResponseMeter {
    pub(crate) fn new(metrics: Arc<GenerationMetrics>, request: MeteredRequest) -> Self {
        Self {
            metrics,
            request,
            record: None,
            owns_credit: false,
            told_at: None,
            told_tokens: 0,
            taken_at: None,
            taken_tokens: 0,
            outcome: ResponseOutcome::Left,
        }
    }

    /// Adds a stream, whose own metrics are written while this reader owns the credit.
    pub(crate) fn set_stream(&mut self, record: &Arc<StreamRecord>) {
        self.record = Some(Arc::clone(record));
    }

    /// A turn was taken, after which `tokens` tokens were read in all.
    pub(crate) fn frame_emitted(&mut self, turn: Poll<Turn>, tokens: u64) {
        let Poll::Ready(turn) = turn else { return };
        self.told_tokens = tokens;
        self.told_at = Some(clock::now());
        match turn {
            Turn::Open => {}
            Turn::Ended => self.outcome = ResponseOutcome::Complete,
            Turn::Broken(_) => self.outcome = ResponseOutcome::Failed,
        }
    }

    /// The connection took the emitted frame; `owns_credit`: the reader of the connection returns credit.
    pub(crate) fn frame_taken(&mut self, owns_credit: bool) {
        self.owns_credit = owns_credit;
        if let Some(told_at) = self.told_at.take() {
            self.taken_since(told_at, clock::now());
        }
    }

    fn taken_since(&mut self, told_at: Instant, now: Instant) {
        if !self.request.stream {
            return;
        }
        self.record_wait(time_since(now, told_at));
        if self.told_tokens > self.taken_tokens {
            let before = self.taken_at.replace(now);
            if let Some(taken) = self.socket_metrics() {
                taken.record_frame(before.map(|before| time_since(now, before)));
            }
            match before {
                None if self.request.attached => {}
                None => self
                    .metrics
                    .first_token(time_since(now, self.request.arrived)),
                Some(before) => self.metrics.next_token(time_since(now, before)),
            }
            self.taken_tokens = self.told_tokens;
        }
    }

    fn record_wait(&self, time: Duration) {
        if time >= STALL_MIN {
            self.metrics.record_stall(time);
            if let Some(taken) = self.socket_metrics() {
                taken.record_stall(time);
            }
        }
    }

    /// Metrics of the stream, if this reader's frames count there.
    fn socket_metrics(&self) -> Option<&SocketMetrics> {
        let record = self.record.as_ref().filter(|_| self.owns_credit)?;
        Some(record.credit_owner.socket_metrics())
    }
}

impl Drop for ResponseMeter {
    /// The last frame has no successor and counts as taken here, unless the client disconnected.
    fn drop(&mut self) {
        let now = clock::now();
        if let Some(told_at) = self.told_at.take() {
            match self.outcome {
                ResponseOutcome::Left if self.request.stream => {
                    self.record_wait(time_since(now, told_at));
                }
                _ => self.taken_since(told_at, now),
            }
        }
        self.metrics.record_outcome(self.request, self.outcome, now);
    }
}

fn time_since(now: Instant, then: Instant) -> Duration {
    now.saturating_duration_since(then)
}

#[cfg(test)]
mod tests;
