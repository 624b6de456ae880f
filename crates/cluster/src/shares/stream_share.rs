//! Open choices of a key, of which a gateway may have its share.

use super::INTERVAL;
use super::recent::Recent;
use super::standing::Standing;
use std::num::NonZeroU32;
use std::time::Duration;

/// Why no choice was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamShortage {
    /// So many open choices have to end.
    Places(u32),
    /// Others have to learn of the choices that were opened a moment ago.
    Wait(Duration),
}

/// The open choices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamShare {
    /// At this gateway.
    pub(super) own: u32,
    /// At the other gateways that are heard.
    pub(super) others: u32,
    /// The least number that was reported in the last window: others know one of the reported numbers.
    reported: Recent,
}

impl StreamShare {
    /// Opens `more` choices, all or none.
    pub(super) fn open(
        &mut self,
        max: NonZeroU32,
        more: u32,
        standing: Standing,
        now_ns: u64,
    ) -> Result<(), StreamShortage> {
        let (max, own, others) = (
            part_of(max, standing),
            u64::from(self.own),
            u64::from(self.others),
        );
        let open = own + others + u64::from(more);
        if open > max {
            let places = u32::try_from(open - max).unwrap_or(u32::MAX);
            return Err(StreamShortage::Places(places));
        }
        let least = self.reported.values(now_ns).min().unwrap_or(0).min(own);
        let unknown = own - least;
        let share = max.saturating_sub(others + least) / u64::from(standing.heard.max(1));
        let is_within = !standing.is_joining && unknown + u64::from(more) <= share;
        if unknown > 0 && !is_within {
            return Err(StreamShortage::Wait(INTERVAL));
        }
        self.add(more);
        Ok(())
    }

    /// Counts choices whatever the limits are.
    pub(super) fn add(&mut self, more: u32) {
        self.own = self.own.saturating_add(more);
    }

    /// Choices have ended.
    pub(super) fn close(&mut self, fewer: u32) {
        self.own = self.own.saturating_sub(fewer);
    }

    /// The number for a report.
    pub(super) fn report(&mut self, now_ns: u64) -> u32 {
        self.reported.record(self.own.into(), now_ns, u64::min);
        self.own
    }
}

/// The part of the limit for the gateways that are heard, at least 1.
fn part_of(max: NonZeroU32, standing: Standing) -> u64 {
    let part = u64::from(max.get()) * u64::from(standing.heard);
    (part / u64::from(standing.gateways.max(1))).max(1)
}
