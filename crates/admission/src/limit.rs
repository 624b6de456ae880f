//! The concurrency limit: how many streams may run, by use and latency.
//!
//! Each interval is judged once, by the first rule that holds:
//!
//! 1. **Too slow** (p95 of the prompt wait or of the inter-token latency over target; or a prompt that is not computed
//!    yet has waited longer than the target), and there was load: a fifth less, two at least. Then two intervals
//!    pass before the limit may grow, so that the change takes effect first.
//! 2. **Little used** (< 0.3): two less.
//! 3. **Well used** (> 0.8) and known to be fast (the prompt wait is known, and no known latency is above 0.8 of the
//!    target): five more.
//!
//! Between the thresholds the limit stays.
//!
//! **Ramp.** Five more per interval is too little for a rush on a fresh server. While no interval was too slow since
//! the limit was last at its floor, the limit is looked at [`LOOKS`] times per interval: if all slots are in use and each
//! known latency is below a quarter of its target ([`FAST`]), the limit doubles. A decode step takes at most
//! proportionally longer with more sequences, so that twice the streams stay below half of the target. The first
//! interval that is too slow ends the ramp, as does a limit of [`RAMP_MAX`] times the floor.
//!
//! Latency counts from the permit: queue time is no measure of how many
//! streams may run, and a limit that shrank for queue time would make the queue longer. For the same reason the prompt
//! wait leaves the time of prompts out ([`super::admission_core::prompt_clock`]).

use super::recent_samples::RecentSamples;
use super::settings::AdaptiveLimits;
use std::time::{Duration, Instant};

/// Use above which the limit may grow.
const USE_HIGH: f64 = 0.8;
/// Use below which the limit shrinks.
const USE_LOW: f64 = 0.3;
/// Growth per interval.
const GROW: usize = 5;
/// Shrinkage per interval when little is used; the least when too slow.
const SHRINK: usize = 2;
/// Share of a target below which a latency lets the limit grow.
const QUICK: f64 = 0.8;
/// Looks per interval at whether the limit may double.
const LOOKS: u32 = 5;
/// A ramp ends at this multiple of the floor: beyond, five more per interval.
const RAMP_MAX: usize = 4;
/// Share of a target below which a latency lets the limit double.
const FAST: f64 = 0.25;
/// Which latencies are compared.
const QUANTILE: f64 = 0.95;
/// Intervals without growth after one that was too slow.
const CAUTION: u32 = 2;
/// Intervals judged one by one after a time without requests.
const CATCH_UP_MAX: u32 = 64;

/// The limit.
#[derive(Debug)]
pub(crate) struct AdaptiveLimit {
    settings: AdaptiveLimits,
    limit: usize,
    prompt_wait: RecentSamples,
    itl: RecentSamples,
    /// When the interval under way began.
    began: Instant,
    /// Up to where `stream_s` counts.
    at: Instant,
    /// Running streams, summed over the interval's time (seconds).
    stream_s: f64,
    caution: u32,
    /// No interval was too slow since the limit was at its floor.
    is_ramping: bool,
    /// When it is next looked at whether the limit may double.
    look_at: Instant,
}

impl AdaptiveLimit {
    pub(crate) fn new(settings: AdaptiveLimits, now: Instant) -> Self {
        let floor = settings.min_streams.clamp(1, settings.max_streams.max(1));
        let half_life = settings.adjustment_interval;
        Self {
            limit: if settings.enabled {
                floor
            } else {
                settings.max_streams.max(1)
            },
            settings: AdaptiveLimits {
                min_streams: floor,
                max_streams: settings.max_streams.max(1),
                ..settings
            },
            prompt_wait: RecentSamples::new(half_life),
            itl: RecentSamples::new(half_life),
            began: now,
            at: now,
            stream_s: 0.0,
            caution: 0,
            is_ramping: true,
            look_at: now + settings.adjustment_interval / LOOKS,
        }
    }

    /// Replaces the settings, from an interval that begins now. Samples are kept.
    pub(crate) fn set_settings(&mut self, settings: AdaptiveLimits, now: Instant) {
        let fresh = Self::new(settings, now);
        let limit = if settings.enabled {
            self.limit.clamp(fresh.limit, fresh.settings.max_streams)
        } else {
            fresh.limit
        };
        let keep = |old: &mut RecentSamples| {
            let mut recent =
                std::mem::replace(old, RecentSamples::new(settings.adjustment_interval));
            recent.set_half_life(settings.adjustment_interval);
            recent
        };
        *self = Self {
            limit,
            prompt_wait: keep(&mut self.prompt_wait),
            itl: keep(&mut self.itl),
            caution: self.caution,
            is_ramping: self.is_ramping,
            ..fresh
        };
    }

    /// Streams that may run. At least one.
    pub(crate) fn get(&self) -> usize {
        self.limit
    }

    /// A stream's prompt waited so long between the permit and the first token.
    pub(crate) fn record_prompt_wait(&mut self, sample: Duration, now: Instant) {
        self.prompt_wait.add_sample(sample, now);
    }

    /// A reader waited so long for a token.
    pub(crate) fn record_itl(&mut self, sample: Duration, now: Instant) {
        self.itl.add_sample(sample, now);
    }

    /// Time went on to `now` with `running` streams, the longest of the prompts that have no first token yet having
    /// waited for `pending`. Judges the intervals that are over.
    pub(crate) fn advance_intervals(
        &mut self,
        running: usize,
        pending: Option<Duration>,
        now: Instant,
    ) {
        if !self.settings.enabled {
            return;
        }
        let interval = self.settings.adjustment_interval;
        let over = now.saturating_duration_since(self.began);
        if over > interval * CATCH_UP_MAX {
            self.began += over - interval * CATCH_UP_MAX;
            (self.at, self.stream_s) = (self.began, 0.0);
        }
        while now.saturating_duration_since(self.began) >= interval {
            let end = self.began + interval;
            self.count_running(running, end);
            self.judge_interval(running, pending, end);
            (self.began, self.stream_s) = (end, 0.0);
        }
        self.count_running(running, now);
        self.ramp(running, now);
    }

    /// Doubles the limit where a rush finds all latencies far below their targets.
    fn ramp(&mut self, running: usize, now: Instant) {
        if !self.is_ramping || now < self.look_at {
            return;
        }
        self.look_at = now + self.settings.adjustment_interval / LOOKS;
        if running >= self.limit && self.are_latencies_below(FAST, now) {
            let AdaptiveLimits {
                min_streams,
                max_streams,
                ..
            } = self.settings;
            let ceiling = max_streams.min(RAMP_MAX * min_streams);
            self.limit = (2 * self.limit).clamp(self.limit, ceiling.max(self.limit));
        }
    }

    /// When an interval is over.
    pub(crate) fn interval_end(&self) -> Instant {
        self.began + self.settings.adjustment_interval
    }

    fn count_running(&mut self, running: usize, to: Instant) {
        self.stream_s += running as f64 * to.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(to);
    }

    fn judge_interval(&mut self, running: usize, pending: Option<Duration>, now: Instant) {
        let AdaptiveLimits {
            min_streams,
            max_streams,
            ..
        } = self.settings;
        let mean = self.stream_s / self.settings.adjustment_interval.as_secs_f64();
        let used = mean / self.limit as f64;
        let latency_level = self.latency_level(running, pending, now);
        let quiet = self.caution == 0;
        self.caution = self.caution.saturating_sub(1);
        self.limit = match latency_level {
            LatencyLevel::Slow if used >= USE_LOW => {
                self.caution = CAUTION;
                self.limit - SHRINK.max(self.limit / 5).min(self.limit)
            }
            _ if used < USE_LOW => self.limit.saturating_sub(SHRINK),
            LatencyLevel::Quick if used > USE_HIGH && quiet => self.limit + GROW,
            _ => self.limit,
        }
        .clamp(min_streams, max_streams);
        let is_slow = matches!(latency_level, LatencyLevel::Slow);
        let is_fresh = self.limit == min_streams && used < USE_LOW;
        self.is_ramping = !is_slow && (self.is_ramping || is_fresh);
    }

    fn latency_level(
        &mut self,
        running: usize,
        pending: Option<Duration>,
        now: Instant,
    ) -> LatencyLevel {
        let (ttft_target, itl_target) = (self.settings.target_ttft, self.settings.target_itl);
        let wait = self.prompt_wait.quantile(QUANTILE, now);
        let itl = self.itl.quantile(QUANTILE, now);
        let pending = pending.filter(|_| running > 0);
        let over = |latency: Option<Duration>, target| latency.is_some_and(|is| is > target);
        if over(wait, ttft_target) || over(pending, ttft_target) || over(itl, itl_target) {
            return LatencyLevel::Slow;
        }
        if self.are_latencies_below(QUICK, now) {
            LatencyLevel::Quick
        } else {
            LatencyLevel::Unsure
        }
    }

    /// Whether the prompt wait is known, and no known latency is above this share of its target.
    fn are_latencies_below(&mut self, share: f64, now: Instant) -> bool {
        let (ttft, itl) = (self.settings.target_ttft, self.settings.target_itl);
        let wait = self.prompt_wait.quantile(QUANTILE, now);
        let gap = self.itl.quantile(QUANTILE, now);
        wait.is_some_and(|wait| wait < ttft.mul_f64(share))
            && gap.is_none_or(|gap| gap < itl.mul_f64(share))
    }
}

enum LatencyLevel {
    Quick,
    Unsure,
    Slow,
}
