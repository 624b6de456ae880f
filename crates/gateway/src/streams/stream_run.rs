//! The right to run a stream, from the opening to the end.

use super::stream_record::{Started, StreamRecord};
use crate::admission::LatencyReporter;
use crate::keys::KeyPermit;
use crate::latency_sampler::LatencySampler;
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::Registration;
use wire::clock;

/// Runs the stream: held by the reader of a plain stream, and by the detached driver of a resumable one. The drop
/// cancels a running stream and removes the stream from the registry.
pub struct StreamRun {
    /// `None` after [`StreamRun::finish_stream`].
    registration: Option<Registration<StreamRecord>>,
    record: Arc<StreamRecord>,
    key: KeyPermit,
    /// `None` before the start.
    latency: Option<LatencySampler>,
    /// Tokens the key was charged.
    charged: u64,
}

impl StreamRun {
    /// The run of a stream that waits.
    pub fn new(registration: Registration<StreamRecord>, key: KeyPermit) -> Self {
        Self {
            record: Arc::clone(registration.payload()),
            registration: Some(registration),
            key,
            latency: None,
            charged: 0,
        }
    }

    /// The run of a stream that an earlier process opened, and for whose tokens the key was charged.
    pub(crate) fn restored(
        registration: Registration<StreamRecord>,
        key: KeyPermit,
        charged: u64,
    ) -> Self {
        let mut run = Self::new(registration, key);
        run.charged = charged;
        run
    }

    /// The stream.
    pub fn record(&self) -> &Arc<StreamRecord> {
        &self.record
    }

    /// The caller's key.
    pub(crate) fn key(&self) -> &KeyPermit {
        &self.key
    }

    /// The logs exist and the engine has the requests.
    pub fn start_stream(&mut self, started: Started, reporter: LatencyReporter) {
        self.latency = Some(LatencySampler::new(reporter));
        self.record.set_started(started);
    }

    /// The stream will not start. Later readers of a resumable stream get the error.
    pub(crate) fn reject_stream(mut self, error: &ApiError) {
        self.record.set_rejected(error.clone());
        if self.record.terms().resumable {
            self.end_stream(clock::now());
        }
    }

    /// Readers of a recovered stream get this error. The journal has the reason already, or is to keep the stream for
    /// another process.
    pub(crate) fn reject_recovered(mut self, error: ApiError) {
        self.record.restore_rejection(error);
        self.end_stream(clock::now());
    }

    /// The recovered stream has ended at this time.
    pub(crate) fn finish_recovered(mut self, at: Instant) {
        self.end_stream(at);
    }

    /// Nothing was there to read.
    pub(crate) fn reader_waits(&mut self) {
        self.latency
            .iter_mut()
            .for_each(LatencySampler::reader_waits);
    }

    /// `tokens` tokens of all choices were read, and `open` choices go on: charges the key for new tokens, and
    /// reports the latency to admission.
    pub(crate) fn tokens_read(&mut self, tokens: u64, open: usize) {
        let made = tokens.saturating_sub(self.charged);
        if made == 0 {
            return;
        }
        self.charged = tokens;
        let now = clock::now();
        if self.record.program().is_none() {
            self.key.charge_generated(made, now); // a program's host charges all it draws, told or not
        }
        let record = &self.record;
        if let Some(pace) = &mut self.latency {
            pace.tokens_read(made, open, || first_token(record).unwrap_or(now), now);
        }
    }

    /// All choices have ended: the stream is kept from here on.
    pub(crate) fn finish_stream(mut self) {
        self.end_stream(clock::now());
    }

    fn end_stream(&mut self, at: Instant) {
        self.record.report_lost();
        // Where nothing is recorded, the order of ends is that of these calls.
        self.record.ended_unix_us();
        let bytes = self.record.memory_bytes();
        if let Some(registration) = self.registration.take() {
            registration.ended(at, bytes);
        }
    }
}

impl Drop for StreamRun {
    fn drop(&mut self) {
        // The error for subscribers of a stream that the client abandoned in the queue.
        self.record.set_rejected(cancelled_error());
        self.record.report_lost();
        if !self.record.is_over() {
            self.record.cancel();
        }
        self.record.mark_drained();
    }
}

/// The error of a request canceled before the start.
pub(crate) fn cancelled_error() -> ApiError {
    ApiError::caller(
        ErrorKind::Cancelled,
        "cancelled",
        "the request was cancelled",
    )
}

/// When the engine made the first token of all.
fn first_token(record: &StreamRecord) -> Option<Instant> {
    let started = record.started()?;
    let stamps = started.requests.iter().map(|r| r.progress.first_token_ns());
    let first = stamps.filter(|&ns| ns > 0).min()?;
    Some(started.engine.epoch() + Duration::from_nanos(first))
}
