//! Error and bias of predictions whose time came.

use std::collections::VecDeque;

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
