//! What is measured: counts, gauges and distributions, written at few typed points.
//!
//! ```text
//! wire      bytes and connections
//! http      a request was answered, by route and status
//! meter     a stream: first token, next tokens, stalls, end
//! steps     the engine's steps, told by the engine on its own thread
//! operations  what each request took, for OpenTelemetry (feature `otlp`)
//! families  everything, with the engine's own counts, as Prometheus text
//! snapshot  the same in short, with quantiles, as one value
//! ```
//!
//! Everything here is an atomic word that any thread adds to: nobody waits, nothing is allocated
//! (but for the first use of a label), and nothing a client sent becomes a label. A frame costs two
//! readings of the clock and three additions.
//!
//! Latencies are measured twice: at the engine, when a token was made; and at the socket, when the
//! connection took the frame that carries it (see [`StreamBody`](crate::stream_body::StreamBody)).
//! The difference is what we, the network and the reader add.

mod count;
mod families;
mod histogram;
mod http;
mod meter;
#[cfg(feature = "otlp")]
mod operations;
mod snapshot;
mod steps;
mod table;
mod text;
mod wire;

#[cfg(feature = "otlp")]
pub(crate) use histogram::Distribution;
pub(crate) use http::{Refused, count, show};
pub(crate) use meter::{Meter, Opened, Outcome};
#[cfg(feature = "otlp")]
pub(crate) use operations::{Figures, Finished};
pub(crate) use snapshot::take as snapshot;
pub use steps::StepMetrics;
pub(crate) use wire::Wire;

use self::count::{Counter, Gauge};
use self::histogram::Latency;
use self::http::Statuses;
use self::table::Table;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Routes that are counted by themselves (180 bytes each); there are fewer.
const ROUTES_MAX: usize = 128;
/// Codes of errors that are counted by themselves.
const REASONS_MAX: usize = 64;
/// Dialects that are counted by themselves.
const DIALECTS_MAX: usize = 16;

/// One count for each way to leave an answer.
type Outcomes = [Counter; Outcome::ALL.len()];

/// What the server counts itself. What the engine counts is with the engine.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    connections_open: Gauge,
    connections_accepted: Counter,
    bytes_received: Counter,
    bytes_sent: Counter,
    requests: Table<Statuses, ROUTES_MAX>,
    rejections: Table<Counter, REASONS_MAX>,
    answers_open: Gauge,
    /// By dialect, then by [`Outcome`].
    answers: Table<Outcomes, DIALECTS_MAX>,
    attached_open: Gauge,
    /// The same of readers that came to a stream later.
    attached: Table<Outcomes, DIALECTS_MAX>,
    answer_time: Latency,
    admission_wait: Latency,
    first_token: Latency,
    next_token: Latency,
    reader_stall: Latency,
    prompt_tokens: Counter,
    #[cfg(feature = "otlp")]
    operations: operations::Operations,
    #[cfg(feature = "otlp")]
    exports_accepted: Counter,
    #[cfg(feature = "otlp")]
    exports_failed: Counter,
}

/// The typed points.
impl Metrics {
    /// A request got its permit after this time.
    pub(crate) fn admitted(&self, waited: Duration) {
        self.admission_wait.record(waited);
    }

    /// A prompt was let in and tokenised.
    pub(crate) fn prompt(&self, tokens: usize) {
        self.prompt_tokens.add(tokens as u64);
    }

    /// Somebody reads a stream: the account of it, until the last byte.
    pub(crate) fn opened(self: &Arc<Self>, opened: Opened) -> Box<Meter> {
        self.readers_open(opened).up();
        Box::new(Meter::new(Arc::clone(self), opened))
    }

    /// A request or a connection was refused.
    pub(crate) fn rejected(&self, code: &str) {
        self.rejections.of(code).add(1);
    }

    fn first_token(&self, after: Duration) {
        self.first_token.record(after);
    }

    fn next_token(&self, gap: Duration) {
        self.next_token.record(gap);
    }

    fn stalled(&self, stall: Duration) {
        self.reader_stall.record(stall);
    }

    fn closed(&self, opened: Opened, outcome: Outcome, now: Instant) {
        self.readers_open(opened).down();
        let closed = match opened.attached {
            true => &self.attached,
            false => &self.answers,
        };
        closed.of(opened.dialect)[outcome as usize].add(1);
        if outcome == Outcome::Complete && !opened.attached {
            let took = now.saturating_duration_since(opened.arrived);
            self.answer_time.record(took);
        }
    }

    fn readers_open(&self, opened: Opened) -> &Gauge {
        match opened.attached {
            true => &self.attached_open,
            false => &self.answers_open,
        }
    }
}

/// What OpenTelemetry asks for.
#[cfg(feature = "otlp")]
impl Metrics {
    /// What each request took, by operation.
    pub(crate) fn operations(&self) -> Vec<Figures> {
        self.operations.read()
    }

    /// A message was sent to the collector, which took it or did not.
    pub(crate) fn exported(&self, accepted: bool) {
        match accepted {
            true => self.exports_accepted.add(1),
            false => self.exports_failed.add(1),
        }
    }
}
