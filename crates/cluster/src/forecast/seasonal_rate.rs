//! One rate: a short-term level, a damped trend, and the mean rate by time of day (UTC), which moves the level; with
//! the error of predictions whose time came.

use super::PredictedRate;
use std::collections::VecDeque;

/// Time in which the level follows a change, seconds.
const LEVEL_S: f64 = 60.0;
/// Time in which the trend follows, seconds.
const TREND_S: f64 = 300.0;
/// Time in which a trend is believed to end, seconds.
const TREND_ENDS_S: f64 = 300.0;
/// Time in which the reserve follows a level below the profile, seconds.
const RESERVE_S: f64 = 2400.0;
/// Part of the usual rate that stays planned for after a sudden fall.
const RESERVE_SHARE: f64 = 0.8;
/// Present rate by usual rate, at most; the rest is added.
const RATIO_MAX: f64 = 3.0;
/// Share of the daily mean added to both sides of that ratio, so that quiet hours do not decide about busy ones.
const RATIO_MEAN_SHARE: f64 = 0.1;
/// Rates above are taken as this rate, per second.
const RATE_MAX: f64 = 1e12;

/// Smoothing and prediction of one rate.
#[derive(Debug, Default)]
pub(super) struct SeasonalRate {
    profile: DailyProfile,
    state: Option<State>,
    accuracy: Accuracy,
}

#[derive(Clone, Copy, Debug)]
struct State {
    at_s: f64,
    level: f64,
    /// Per second; what the profile does not explain.
    trend: f64,
    /// Present rate by usual rate, slow.
    reserve: f64,
}

impl SeasonalRate {
    /// The rate was observed for this long around `at_s`.
    pub(super) fn observe(&mut self, at_s: f64, seconds: f64, rate: f64, horizon_s: f64) {
        let rate = super::bounded(rate, 0.0, RATE_MAX);
        self.accuracy.observe(at_s, seconds, rate);
        self.state = Some(self.next_state(at_s, seconds, rate));
        self.profile.observe(at_s, seconds, rate);
        self.accuracy
            .predict(at_s + horizon_s, self.rate_at(at_s + horizon_s));
    }

    /// Level, prediction and accuracy.
    pub(super) fn predicted(&self, now_s: f64, horizon_s: f64) -> PredictedRate {
        PredictedRate {
            now: self.rate_at(now_s),
            predicted: self.rate_at(now_s + horizon_s),
            error: self.accuracy.error(),
            bias: self.accuracy.bias(),
        }
    }

    /// The rate that capacity is planned for: the prediction for the busier slot around the time, and more where the rate
    /// fell suddenly.
    pub(super) fn planned(&self, at_s: f64) -> f64 {
        let Some(state) = &self.state else {
            return 0.0;
        };
        let usual = self.profile.highest_at(at_s);
        let reserve = RESERVE_SHARE * state.reserve * usual.unwrap_or(0.0);
        let predicted = self.rate_toward(state, at_s, usual);
        predicted.max(super::bounded(reserve, 0.0, RATE_MAX))
    }

    /// The predicted rate at a time.
    fn rate_at(&self, at_s: f64) -> f64 {
        let Some(state) = &self.state else {
            return 0.0;
        };
        self.rate_toward(state, at_s, self.profile.rate_at(at_s))
    }

    fn rate_toward(&self, state: &State, at_s: f64, usual: Option<f64>) -> f64 {
        let ahead = super::bounded(at_s - state.at_s, 0.0, 7200.0);
        let trend = state.trend * TREND_ENDS_S * (1.0 - (-ahead / TREND_ENDS_S).exp());
        super::bounded(self.moved_level(state, usual) + trend, 0.0, RATE_MAX)
    }

    fn next_state(&self, at_s: f64, seconds: f64, rate: f64) -> State {
        let usual = self.profile.rate_at(at_s).filter(|usual| *usual > 0.0);
        let ratio = usual.map(|usual| (rate / usual).min(RATIO_MAX));
        let Some(last) = &self.state else {
            return State {
                at_s,
                level: rate,
                trend: 0.0,
                reserve: ratio.unwrap_or(0.0),
            };
        };
        let part = |time: f64| 1.0 - (-seconds / time).exp();
        let expected = self.rate_at(at_s);
        let level = expected + part(LEVEL_S) * (rate - expected);
        let passed = (at_s - last.at_s).abs().max(1.0);
        let slope = (level - self.moved_level(last, self.profile.rate_at(at_s))) / passed;
        State {
            at_s,
            level: super::bounded(level, 0.0, RATE_MAX),
            trend: last.trend + part(TREND_S) * (slope - last.trend),
            reserve: last.reserve + part(RESERVE_S) * (ratio.unwrap_or(0.0) - last.reserve),
        }
    }

    /// The level, moved along the profile to a usual rate: by the ratio of both as far as it is moderate, else by what is
    /// over.
    fn moved_level(&self, state: &State, usual: Option<f64>) -> f64 {
        let level = state.level;
        let Some((here, there)) = self.profile.rate_at(state.at_s).zip(usual) else {
            return level;
        };
        let offset = RATIO_MEAN_SHARE * self.profile.mean();
        if offset <= 0.0 {
            return level;
        }
        let ratio = ((level + offset) / (here + offset)).min(RATIO_MAX);
        super::bounded(level + ratio * (there - here), 0.0, RATE_MAX)
    }
}

/// Slots of a day.
pub(super) const SLOTS: usize = 288;
/// Length of a slot, seconds.
const SLOT_S: f64 = 86_400.0 / SLOTS as f64;
/// Weight of the last day in a slot that was seen on several days.
const DAY_WEIGHT: f32 = 0.3;
/// Neighbors that differ by more have something between them that begins or ends.
const EDGE_SHARE: f64 = 0.15;
/// Days from which on the last day has this weight.
const DAYS_KEPT: u8 = 7;
/// Part of a slot that must have been observed.
const COVERED_MIN: f64 = 0.5;
/// A day changes a slot at most as if it had differed by this share of the slot, and ...
const CHANGE_SHARE: f32 = 0.5;
/// ... this share of the mean of all slots: an outage is not the time of day.
const CHANGE_MEAN_SHARE: f32 = 0.1;

/// Rates by slot of the day, of slots that were seen on one day or more.
#[derive(Debug)]
pub(super) struct DailyProfile {
    slots: Box<[Slot; SLOTS]>,
    current: Option<CurrentSlot>,
    /// Mean of the slots that were seen.
    mean: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    rate: f32,
    days: u8,
}

/// The slot in which observations fall now.
#[derive(Clone, Copy, Debug)]
struct CurrentSlot {
    /// Counted from the Unix epoch.
    number: i64,
    seconds: f64,
    /// Sum of rate * seconds.
    sum: f64,
}

impl Default for DailyProfile {
    fn default() -> Self {
        Self {
            slots: Box::new([Slot::default(); SLOTS]),
            current: None,
            mean: 0.0,
        }
    }
}

impl DailyProfile {
    /// The rate was observed for this long around `at_s`.
    pub(super) fn observe(&mut self, at_s: f64, seconds: f64, rate: f64) {
        let number = (at_s / SLOT_S).floor() as i64;
        let current = match self.current {
            Some(current) if current.number == number => current,
            earlier => {
                if let Some(earlier) = earlier {
                    self.complete(earlier);
                }
                CurrentSlot {
                    number,
                    seconds: 0.0,
                    sum: 0.0,
                }
            }
        };
        self.current = Some(CurrentSlot {
            number,
            seconds: current.seconds + seconds,
            sum: current.sum + rate * seconds,
        });
    }

    /// The usual rate at a time, between the centers of the two slots around it; `None` where one of them is unknown.
    pub(super) fn rate_at(&self, at_s: f64) -> Option<f64> {
        let (before, after, part) = self.around(at_s)?;
        Some(before * (1.0 - part) + after * part)
    }

    /// The higher one of the usual rates in the two slots around a time: what begins in a slot each day may begin at any
    /// time of the slot.
    pub(super) fn highest_at(&self, at_s: f64) -> Option<f64> {
        let (before, after, part) = self.around(at_s)?;
        let begins = (before - after).abs() > EDGE_SHARE * before.max(after);
        Some(if begins {
            before.max(after)
        } else {
            before * (1.0 - part) + after * part
        })
    }

    /// Rates of the two slots whose centers are around a time, and the part of the way between the centers.
    fn around(&self, at_s: f64) -> Option<(f64, f64, f64)> {
        let place = at_s / SLOT_S - 0.5;
        let before = place.floor();
        let slot = |number: f64| {
            let slot = self.slots[(number as i64).rem_euclid(SLOTS as i64) as usize];
            (slot.days > 0).then_some(f64::from(slot.rate))
        };
        Some((slot(before)?, slot(before + 1.0)?, place - before))
    }

    /// Mean of the whole day, as far as known.
    pub(super) fn mean(&self) -> f64 {
        f64::from(self.mean)
    }

    fn complete(&mut self, current: CurrentSlot) {
        if current.seconds < COVERED_MIN * SLOT_S {
            return;
        }
        let rate = (current.sum / current.seconds) as f32;
        let most = CHANGE_MEAN_SHARE * self.mean;
        let slot = &mut self.slots[current.number.rem_euclid(SLOTS as i64) as usize];
        if slot.days == 0 {
            slot.rate = rate;
        } else {
            let weight = (1.0 / (f32::from(slot.days) + 1.0)).max(DAY_WEIGHT);
            let most = CHANGE_SHARE * slot.rate + most;
            slot.rate += weight * (rate - slot.rate).clamp(-most, most);
        }
        slot.days = (slot.days + 1).min(DAYS_KEPT);
        let seen = || self.slots.iter().filter(|slot| slot.days > 0);
        self.mean = seen().map(|slot| slot.rate).sum::<f32>() / seen().count().max(1) as f32;
    }
}

/// Predictions that wait for their time: with a reading each 15 s, those of the longest horizon. Others are left out.
pub(super) const PENDING_MAX: usize = 256;
/// Time in which errors are averaged, seconds.
const ERROR_S: f64 = 6.0 * 3600.0;

/// Compares predictions with what was observed.
#[derive(Debug, Default)]
pub(super) struct Accuracy {
    pending: VecDeque<PendingPrediction>,
    absolute: f64,
    signed: f64,
    /// Mean of prediction and truth.
    size: f64,
}

#[derive(Clone, Copy, Debug)]
struct PendingPrediction {
    for_s: f64,
    rate: f64,
}

impl Accuracy {
    /// A prediction for a later time. Where too many wait, the prediction is left out.
    pub(super) fn predict(&mut self, for_s: f64, rate: f64) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push_back(PendingPrediction { for_s, rate });
        }
    }

    /// The rate was observed for this long around `at_s`: predictions for this time are compared, earlier ones are
    /// dropped.
    pub(super) fn observe(&mut self, at_s: f64, seconds: f64, rate: f64) {
        let (begin_s, end_s) = (at_s - seconds / 2.0, at_s + seconds / 2.0);
        while let Some(first) = self.pending.front() {
            // The clock was set back by hours: these times come once more.
            let too_late = first.for_s > end_s + 2.0 * 3600.0;
            if first.for_s >= end_s && !too_late {
                return;
            }
            let (for_s, predicted) = (first.for_s, first.rate);
            self.pending.pop_front();
            if for_s >= begin_s && !too_late {
                self.compare(predicted, rate, seconds);
            }
        }
    }

    /// sMAPE of sums: from 0 to 2.
    pub(super) fn error(&self) -> f64 {
        self.by_size(self.absolute)
    }

    /// From -2 (too low) to 2 (too high).
    pub(super) fn bias(&self) -> f64 {
        self.by_size(self.signed)
    }

    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    fn compare(&mut self, predicted: f64, observed: f64, seconds: f64) {
        let share = 1.0 - (-seconds / ERROR_S).exp();
        let error = predicted - observed;
        self.absolute += share * (error.abs() - self.absolute);
        self.signed += share * (error - self.signed);
        self.size += share * ((predicted + observed) / 2.0 - self.size);
    }

    fn by_size(&self, error: f64) -> f64 {
        if self.size <= f64::MIN_POSITIVE {
            return 0.0;
        }
        super::bounded(error / self.size, -2.0, 2.0)
    }
}
