//! How many prefill rows a step may have beside decodes, so that it stays under a target time.
//!
//! Those who generate wait for the whole step. What a step takes beside its decodes is learned
//! from the steps that were: `rows = (target - decodes) / row`, where `decodes` is what a step with
//! decodes alone took last, and `row` what a prefill row took beyond it. A mistake in the first is
//! made up by the second, which is measured against it: whatever the split, the rows settle where
//! the whole step takes the target. `row` rises at once and falls slowly, and from one step to the
//! next the rows at most double, so that a guess never costs much: rows whose cost grows by a
//! factor of `f` between two steps make a step of at most `f` times the target. The target itself
//! gives way to two things: [`PREFILL_ROWS_MIN`] and [`PREFILL_SHARE`].

use std::time::Duration;

/// Prefill rows a step may always have, whatever it takes: a prompt always advances.
pub(crate) const PREFILL_ROWS_MIN: usize = 8;

/// By how much the rows may grow from one step to the next.
const GROWTH: usize = 2;

/// Beside decodes that take long prefill may take a quarter of their time in any case, a fifth of the
/// step: else a prompt would hardly advance where decodes alone take the target.
const PREFILL_SHARE: u64 = 4;

/// The part of a mixed step that is held to be prefill at the least.
const PREFILL_PART_MIN: u64 = 16;

/// The part of the way that an estimate falls towards a lower measurement.
const FALL: u64 = 4;

pub(crate) struct Pace {
    target_ns: Option<u64>,
    /// What a step with decodes alone takes.
    decodes_ns: u64,
    /// What a prefill row takes; 0 = not measured yet.
    row_ns: u64,
    /// Where growth ends.
    rows_max: usize,
}

impl Pace {
    pub(crate) fn new(target: Option<Duration>) -> Self {
        Self {
            target_ns: target.map(nanos),
            decodes_ns: 0,
            row_ns: 0,
            rows_max: PREFILL_ROWS_MIN,
        }
    }

    /// Another target. What was learned stays.
    pub(crate) fn set_target(&mut self, target: Option<Duration>) {
        self.target_ns = target.map(nanos);
    }

    /// Prefill rows a step may have beside this many decodes.
    pub(crate) fn rows(&self, decodes: usize) -> usize {
        let Some(target) = self.target_ns.filter(|_| decodes > 0) else {
            return usize::MAX;
        };
        let left = target.saturating_sub(self.decodes_ns);
        let left = left.max(self.decodes_ns / PREFILL_SHARE);
        let fits = left.checked_div(self.row_ns).unwrap_or(0);
        (fits as usize).clamp(PREFILL_ROWS_MIN, self.rows_max.max(PREFILL_ROWS_MIN))
    }

    /// What a step took.
    pub(crate) fn took(&mut self, prefill: usize, decodes: usize, ns: u64) {
        match (prefill, decodes) {
            (0, _) => self.decodes_ns = towards(self.decodes_ns, ns),
            (rows, 0) => self.row_took(ns / rows as u64),
            (rows, _) => {
                self.decodes_ns = self.decodes_ns.min(ns);
                let beyond = (ns - self.decodes_ns).max(ns / PREFILL_PART_MIN);
                self.row_took(beyond / rows as u64);
                self.rows_max = rows.saturating_mul(GROWTH);
            }
        }
    }

    fn row_took(&mut self, ns: u64) {
        self.row_ns = towards(self.row_ns, ns.max(1));
    }
}

fn nanos(target: Duration) -> u64 {
    u64::try_from(target.as_nanos()).unwrap_or(u64::MAX)
}

/// Up at once, down by a part.
fn towards(estimate: u64, measured: u64) -> u64 {
    match estimate.checked_sub(measured) {
        Some(above) => estimate - above.div_ceil(FALL),
        None => measured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TARGET: u64 = 100 * MS;

    /// Steps of what this machine takes; returns the rows of the last and the longest step's time
    /// after the first few.
    fn settle(pace: &mut Pace, steps: usize, takes: impl Fn(usize, usize) -> u64) -> (usize, u64) {
        let (mut rows, mut longest) = (0, 0);
        for step in 0..steps {
            rows = pace.rows(1).min(4096);
            let ns = takes(step, rows);
            longest = longest.max(ns);
            pace.took(rows, 1, ns);
        }
        (rows, longest)
    }

    #[test]
    fn another_target_keeps_what_was_learned() {
        let mut pace = Pace::new(Some(Duration::from_millis(100)));
        let takes = |_, rows: usize| rows as u64 * MS;
        let (rows, _) = settle(&mut pace, 100, takes);
        assert!((80..=100).contains(&rows), "{rows}");
        pace.set_target(Some(Duration::from_millis(20)));
        let rows = pace.rows(1);
        assert!((8..=20).contains(&rows), "{rows}");
        pace.set_target(None);
        assert_eq!(pace.rows(1), usize::MAX);
    }

    #[test]
    fn rows_settle_where_the_step_takes_the_target() {
        // (what decodes take, what a row takes, in microseconds, and the rows that fit)
        let machines = [(0, 500, 200), (50, 1000, 50), (80, 100, 200), (90, 5000, 8)];
        for (decodes, row_us, fit) in machines {
            let takes = |_, rows: usize| decodes * MS + rows as u64 * row_us * 1000;
            for known in [true, false] {
                let mut pace = Pace::new(Some(Duration::from_millis(100)));
                if known {
                    pace.took(0, 1, decodes * MS);
                }
                let (rows, longest) = settle(&mut pace, 400, takes);
                let label = format!("{decodes} ms, {row_us} us, known: {known}: {rows} rows");
                assert!(rows <= fit && rows * 100 >= fit * 80, "{label}");
                let most = TARGET.max(takes(0, PREFILL_ROWS_MIN));
                assert!(longest <= most, "{label}: {longest} ns");
            }
        }
    }

    #[test]
    fn slow_decodes_leave_a_prompt_a_fifth_of_the_step() {
        let mut pace = Pace::new(Some(Duration::from_millis(100)));
        pace.took(0, 1, 200 * MS);
        let (rows, longest) = settle(&mut pace, 100, |_, rows| (200 + rows as u64) * MS);
        assert!((40..=50).contains(&rows), "{rows} rows");
        assert!(longest <= 250 * MS, "{longest} ns");
    }

    #[test]
    fn rows_that_grow_dear_become_fewer() {
        let mut pace = Pace::new(Some(Duration::from_millis(100)));
        let takes = |step: usize, rows: usize| (rows * (100 + 4 * step)) as u64 * 1000;
        let (_, longest) = settle(&mut pace, 300, takes);
        assert!(longest <= TARGET * 105 / 100, "{longest}");
    }

    #[test]
    fn nothing_is_held_back_without_decodes_or_target() {
        assert_eq!(Pace::new(None).rows(5), usize::MAX);
        let pace = Pace::new(Some(Duration::from_millis(1)));
        assert_eq!(pace.rows(0), usize::MAX);
        assert_eq!(pace.rows(1), PREFILL_ROWS_MIN);
    }
}
