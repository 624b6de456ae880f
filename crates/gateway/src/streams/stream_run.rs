//! The right to run a stream, from the opening to the end, and the stream's admission permit.
//!
//! Each request of the stream brings a sequence permit to the engine, which drops that permit when the request's pages
//! are free. The admission permit is released with the last sequence permit, whether the response is read or not, and
//! however the generation ended: complete, canceled, failed, or because the engine ended. Before that the engine takes
//! and returns slots through the sequence permits, one slot for each choice that may run.

use super::stream_record::{Started, StreamRecord};
use super::undelivered::UndeliveredStreams;
use crate::keys::KeyPermit;
use crate::media::ImageShare;
use admission::{LatencyReporter, Permit};
use engine::{Progress, SequencePermits};
use generate::error::{ApiError, ErrorKind};
use std::sync::{Arc, Weak};
use std::task::Waker;
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

    /// The run of a stream that another process opened, and for whose tokens the key was charged.
    pub(crate) fn recovered(
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

/// The admission permit of a stream, shared by the stream's sequence permits.
pub(crate) struct PermitHolder {
    permit: Permit,
    /// The share of images in the bytes of all requests.
    _images: Option<ImageShare>,
    record: Weak<StreamRecord>,
    undelivered: Arc<UndeliveredStreams>,
}

impl PermitHolder {
    /// A holder for a stream that is about to be submitted.
    pub(crate) fn new(
        permit: Permit,
        record: &Arc<StreamRecord>,
        undelivered: &Arc<UndeliveredStreams>,
    ) -> Self {
        Self {
            permit,
            _images: None,
            record: Arc::downgrade(record),
            undelivered: Arc::clone(undelivered),
        }
    }

    /// A holder for a generation that is part of a stream's preparation, and has no stream of its own.
    pub(crate) fn without_stream(permit: Permit, undelivered: &Arc<UndeliveredStreams>) -> Self {
        Self {
            permit,
            _images: None,
            record: Weak::new(),
            undelivered: Arc::clone(undelivered),
        }
    }

    /// The holder, which also keeps a share of the bytes of images.
    pub(crate) fn with_images(mut self, images: Option<ImageShare>) -> Self {
        self._images = images;
        self
    }

    /// The admission permit.
    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The sequence permit of one request. Times of `progress` count from `epoch`.
    pub(crate) fn sequence_permit(
        self: &Arc<Self>,
        progress: &Arc<Progress>,
        epoch: Instant,
    ) -> Box<dyn SequencePermits> {
        Box::new(SequencePermit {
            work: Arc::clone(self),
            progress: Arc::clone(progress),
            epoch,
        })
    }
}

impl Drop for PermitHolder {
    /// A resumable stream is read by the detached driver; any other stream is undelivered until the client has read all
    /// output.
    fn drop(&mut self) {
        if let Some(record) = self.record.upgrade()
            && record.started().is_some()
            && !record.terms().resumable
        {
            self.undelivered.add_stream(&record);
        }
    }
}

struct SequencePermit {
    work: Arc<PermitHolder>,
    progress: Arc<Progress>,
    epoch: Instant,
}

impl SequencePermits for SequencePermit {
    fn wake_by(&mut self, waker: Waker) {
        self.work.permit.wake_on_slot(waker);
    }

    fn take(&mut self) -> bool {
        self.work.permit.take_slot()
    }

    fn request(&mut self) {
        self.work.permit.request_slot();
    }

    fn is_recalled(&mut self) -> bool {
        self.work.permit.is_recalled()
    }

    fn withdraw(&mut self) {
        self.work.permit.cancel_slot_request();
    }

    fn give_back(&mut self) {
        self.work.permit.return_slot(false);
    }
}

impl Drop for SequencePermit {
    /// Reports the time of the first token to admission before the permit is released: a short response may end before
    /// the first token is read.
    fn drop(&mut self) {
        let first_ns = self.progress.first_token_ns();
        if first_ns > 0 {
            let at = self.epoch + Duration::from_nanos(first_ns);
            self.work.permit.latency_reporter().first_token(at);
        }
    }
}

/// Tokens whose mean gap is one sample, so that the lock of admission is taken less often.
const TOKENS_PER_SAMPLE: u64 = 16;

/// Reports latency to admission. A gap counts only if the reader waited before the token: a slow reader says nothing
/// about the server.
pub(crate) struct LatencySampler {
    reporter: LatencyReporter,
    /// When tokens were read last.
    last: Option<Instant>,
    /// The reader came and found nothing, since.
    waited: bool,
    gaps: Duration,
    tokens: u64,
}

impl LatencySampler {
    /// Of a generation nothing was read of yet.
    pub(crate) fn new(reporter: LatencyReporter) -> Self {
        Self {
            reporter,
            last: None,
            waited: false,
            gaps: Duration::ZERO,
            tokens: 0,
        }
    }

    /// The reader found nothing.
    pub(crate) fn reader_waits(&mut self) {
        self.waited = true;
    }

    /// `tokens` more were read, of `streams` choices that run side by side. `first` is when the engine made the first
    /// of all.
    pub(crate) fn tokens_read(
        &mut self,
        tokens: u64,
        streams: usize,
        first: impl FnOnce() -> Instant,
        now: Instant,
    ) {
        let waited = std::mem::take(&mut self.waited);
        let Some(last) = self.last.replace(now) else {
            return self.reporter.first_token(first());
        };
        if waited {
            self.gaps += now.saturating_duration_since(last) * streams.max(1) as u32;
            self.tokens += tokens;
        }
        if self.tokens >= TOKENS_PER_SAMPLE {
            self.reporter
                .token_gap(self.gaps.div_f64(self.tokens as f64));
            (self.gaps, self.tokens) = (Duration::ZERO, 0);
        }
    }
}
