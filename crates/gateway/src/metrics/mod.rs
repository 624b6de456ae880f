//! Metrics of generations: counters, gauges and histograms, written at a few typed points.
//!
//! ```text
//! response_meter  one response: first token, next tokens, stalls, end
//! counters        requests and tokens; the engine's steps, observed on the engine's thread
//! counters, histogram   the atomic values themselves, and counts of the recovery
//! ```
//!
//! Every value is an atomic integer that any thread can add to: no thread waits, no call allocates (except for the
//! first use of a label), and no text of a client becomes a label. A frame costs two readings of the clock and three
//! additions.
//!
//! Latencies are measured twice: in the engine, when a token is sampled; and at the socket, when the connection takes
//! the frame with the token. The difference is the cost of the server, the network and the reader.

use self::counters::{Counter, Gauge, LabelTable};
use self::histogram::Latency;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub mod counters;
pub mod histogram;
mod response_meter;

pub use counters::{RecoveryMetrics, RecoveryOutcome, StepMetrics};
pub(crate) use response_meter::ResponseMeter;
pub use response_meter::{MeteredProtocol, MeteredRequest, ResponseOutcome};

/// Wire protocols with a row of their own.
const PROTOCOLS_MAX: usize = 16;

/// One counter for each [`ResponseOutcome`].
type OutcomeCounters = [Counter; ResponseOutcome::ALL.len()];

/// Metrics of all generations, of all models. The work of the engines is counted by the engines.
#[derive(Debug, Default)]
pub struct GenerationMetrics {
    /// Responses that are being read.
    pub answers_open: Gauge,
    /// By wire protocol, then by [`ResponseOutcome`].
    pub answers: LabelTable<OutcomeCounters, PROTOCOLS_MAX>,
    /// Attached subscribers that read now.
    pub attached_open: Gauge,
    /// Subscribers that attached to an existing stream; by wire protocol, then by [`ResponseOutcome`].
    pub attached: LabelTable<OutcomeCounters, PROTOCOLS_MAX>,
    /// From a request's arrival to the end of the complete response.
    pub answer_time: Latency,
    /// Requests that asked for admission, rejected ones included.
    pub requests: Counter,
    /// Queue time of admitted requests.
    pub admission_wait: Latency,
    /// Time to first token, at the socket.
    pub first_token: Latency,
    /// Time between two frames with tokens, at the socket.
    pub next_token: Latency,
    /// Time for which a connection held a frame up.
    pub reader_stall: Latency,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: Counter,
    /// Streams of earlier processes.
    pub recovery: RecoveryMetrics,
}

/// The typed points.
impl GenerationMetrics {
    /// A request asks for admission.
    pub fn record_request(&self) {
        self.requests.add(1);
    }

    /// A request was admitted after waiting for this time.
    pub fn record_admission(&self, waited: Duration) {
        self.admission_wait.record(waited);
    }

    /// The prompt of an admitted request was tokenized.
    pub fn prompt_tokenized(&self, tokens: usize) {
        self.prompt_tokens.add(tokens as u64);
    }

    /// A subscriber begins to read a stream; the returned meter is dropped after the last byte.
    pub(crate) fn open_meter(self: &Arc<Self>, request: MeteredRequest) -> Box<ResponseMeter> {
        self.readers_open(request).increment();
        Box::new(ResponseMeter::new(Arc::clone(self), request))
    }

    fn first_token(&self, after: Duration) {
        self.first_token.record(after);
    }

    fn next_token(&self, gap: Duration) {
        self.next_token.record(gap);
    }

    fn record_stall(&self, stall: Duration) {
        self.reader_stall.record(stall);
    }

    fn record_outcome(&self, request: MeteredRequest, outcome: ResponseOutcome, now: Instant) {
        self.readers_open(request).decrement();
        let closed = if request.attached {
            &self.attached
        } else {
            &self.answers
        };
        closed.value_of(request.protocol.label())[outcome as usize].add(1);
        if outcome == ResponseOutcome::Complete && !request.attached {
            let took = now.saturating_duration_since(request.arrived);
            self.answer_time.record(took);
        }
    }

    fn readers_open(&self, request: MeteredRequest) -> &Gauge {
        if request.attached {
            &self.attached_open
        } else {
            &self.answers_open
        }
    }
}
