//! Rules that order engines, each with the autoscaler's stabilization and tolerance (those of Kubernetes' HPA).

use super::engines::{Engines, engine_tokens_per_s};
use crate::forecast::{DemandForecast, ScaleTarget};
use std::collections::VecDeque;

/// Time between two decisions, seconds.
pub(super) const PERIOD_S: usize = 15;
/// Engines are given back if all decisions of this time agree, seconds.
const STABILIZATION_S: usize = 300;
/// Smaller relative changes are left out.
const TOLERANCE: f64 = 0.1;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// Used share of the capacity in the last minute.
    Utilization(u32),
    /// Used share of the capacity in the last minute, and the requests that wait.
    UtilizationAndQueue(u32),
    /// [`DemandForecast`].
    Forecast(u32),
}

impl Rule {
    pub(super) fn name(self) -> String {
        match self {
            Self::Utilization(target) => format!("utilization, {target} %"),
            Self::UtilizationAndQueue(target) => format!("utilization and queue, {target} %"),
            Self::Forecast(target) => format!("**forecast**, {target} %"),
        }
    }
}

/// A rule at work.
pub(super) struct Scaler {
    rule: Rule,
    pub(super) forecast: DemandForecast,
    decisions: VecDeque<usize>,
}

impl Scaler {
    pub(super) fn new(rule: Rule) -> Self {
        let mut target = ScaleTarget::default();
        if let Rule::Forecast(utilization) = rule {
            target.utilization_percent = utilization;
        }
        Self {
            rule,
            forecast: DemandForecast::new(target),
            decisions: VecDeque::new(),
        }
    }

    /// The number of engines that should be ordered.
    pub(super) fn decide(&mut self, engines: &Engines, second: usize) -> usize {
        let waiting_engines = || engines.waiting() * 925.0 / engine_tokens_per_s() / 60.0;
        let used_for = |target: u32| engines.engines_used() * 100.0 / f64::from(target);
        let wanted = match self.rule {
            Rule::Utilization(target) => used_for(target),
            Rule::UtilizationAndQueue(target) => used_for(target) + waiting_engines(),
            Rule::Forecast(_) => {
                self.forecast.observe(&engines.reading(), second as f64);
                let advice = self.forecast.advice(second as f64);
                advice.engines_wanted.unwrap_or(engines.ordered() as f64)
            }
        };
        let now = engines.ordered();
        let wanted = if (wanted / now as f64 - 1.0).abs() < TOLERANCE {
            now
        } else {
            wanted.ceil() as usize
        };
        self.decisions.push_back(wanted);
        if self.decisions.len() > STABILIZATION_S / PERIOD_S {
            self.decisions.pop_front();
        }
        let most = self.decisions.iter().copied().max().unwrap_or(wanted);
        most.min(now.max(wanted)).max(1)
    }
}
