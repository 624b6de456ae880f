//! How many lines of the log the changes of instances get: their ids come from the network.

use std::time::{Duration, Instant};

/// Lines in one period. A cluster of a hundred instances may start at once.
const LINES_MAX: u32 = 200;
/// The period.
const PERIOD: Duration = Duration::from_secs(60);

/// The lines of the current period.
#[derive(Debug, Default)]
pub(super) struct LogBudget {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// Whether a change is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogTurn {
    Line,
    /// The first line of a period, after so many changes that were not logged.
    LineAfter(u64),
    /// Not logged; the first of these is.
    LeftOut {
        is_first: bool,
    },
}

impl LogBudget {
    pub(super) fn take(&mut self, now: Instant) -> LogTurn {
        let is_over = |began| now.saturating_duration_since(began) >= PERIOD;
        if self.began.is_none_or(is_over) {
            (self.began, self.lines) = (Some(now), 1);
            return match std::mem::take(&mut self.left_out) {
                0 => LogTurn::Line,
                left_out => LogTurn::LineAfter(left_out),
            };
        }
        if self.lines < LINES_MAX {
            self.lines += 1;
            return LogTurn::Line;
        }
        self.left_out += 1;
        LogTurn::LeftOut {
            is_first: self.left_out == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Promise (Cluster): invented instances cost a bounded number of log lines, and keep no gateway out.
    //! Also held by `cluster/src/instances/simulation.rs :: invented_instances_keep_no_gateway_out`.

    use super::*;

    #[test]
    fn changes_above_the_bound_are_counted_and_told_later() {
        let start = tokio::time::Instant::now().into_std();
        let mut budget = LogBudget::default();
        for _ in 0..LINES_MAX {
            assert_eq!(budget.take(start), LogTurn::Line);
        }
        assert_eq!(budget.take(start), LogTurn::LeftOut { is_first: true });
        for _ in 0..899 {
            assert_eq!(budget.take(start), LogTurn::LeftOut { is_first: false });
        }
        assert_eq!(budget.take(start + PERIOD), LogTurn::LineAfter(900));
        assert_eq!(budget.take(start + PERIOD), LogTurn::Line);
    }
}
