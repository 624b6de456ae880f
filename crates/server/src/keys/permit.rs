//! The right of one request to have its streams open.

use super::KeyLimits;
use super::meter::Meter;
use super::over::Over;
use std::sync::Arc;
use std::time::Instant;

/// Open streams of one request, charged to its key. Dropping it closes them; tokens stay spent.
#[derive(Debug)]
pub(crate) struct KeyPermit {
    meter: Arc<Meter>,
    /// As they were when it opened: a reload does not reach into running streams.
    limits: KeyLimits,
    streams: u32,
}

impl KeyPermit {
    pub(super) fn open(meter: Arc<Meter>, limits: KeyLimits, streams: u32) -> Result<Self, Over> {
        meter.open(&limits, streams)?;
        Ok(Self {
            meter,
            limits,
            streams,
        })
    }

    /// Charges the prompts' tokens, or says when there is room for them. To be called once, when
    /// they were counted and before they run.
    pub(crate) fn prompt(&self, tokens: u64, now: Instant) -> Result<(), Over> {
        self.meter.prompt(&self.limits, tokens, now)
    }

    /// Charges tokens that were generated since the last call.
    pub(crate) fn generated(&self, tokens: u64, now: Instant) {
        self.meter.generated(&self.limits, tokens, now);
    }
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        self.meter.close(self.streams);
    }
}
