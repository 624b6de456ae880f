//! Samples of a generation's token gaps, for admission.

use crate::admission::LatencyReporter;
use std::time::{Duration, Instant};

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
