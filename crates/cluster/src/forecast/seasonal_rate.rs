//! One rate: a short-term level, a damped trend, and the daily profile that moves the level.

use super::PredictedRate;
use super::accuracy::Accuracy;
use super::daily_profile::DailyProfile;

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
