//! Step-time model: the number of prefill rows beside decodes that keeps a step under a target time.
//!
//! Decoding sequences wait for the whole step. The cost of prefill is learned from past steps. The model is
//! `rows = (target - decodes) / row`, where `decodes` is the last time of a step with decodes alone and `row`
//! the additional time of a prefill row. An error in `decodes` is corrected by `row`, which is measured
//! against `decodes`: for any split, the rows settle where the whole step takes the target. `row` rises fast
//! and falls slowly, and from one step to the next the rows at most double, so that a wrong estimate
//! never costs much. A single slow step is mostly an outlier (another program had the processor), so a rise beyond
//! [`RISE_MAX`] waits for a second measurement: rows whose cost grows by a factor of `f` between two steps make at most
//! two steps of at most `f` times the target.
//!
//! Where prompts or units of images follow each other without a pause there is no step with decodes alone, and their time would
//! be taken for that of the others. So a step is left to the decodes alone where `decodes` was not measured for [`MEASURED_STEPS`]
//! steps, or with a quarter fewer decodes.
//!
//! The target yields to two minimums, [`PREFILL_ROWS_MIN`] and [`PREFILL_SHARE`], and to long steps.
//!
//! While answers that began elsewhere (before a restart, on another engine) are computed again, [`RESUMED_SHARE`] takes
//! the place of the share: their readers wait in the middle of an answer, and with each resumed answer the decodes grow.
//!
//! # Long steps
//! A step may take longer than the target where prompts are then computed together.
//!
//! A large step computes a prompt's rows for less than many small ones (the weights are unpacked once for all rows), and
//! prompts that are finished together are decoded together. But the next tokens of all decoding sequences wait for the step.
//! So a step is long only where
//!
//! - it finishes at least as many prompts as there are sequences that wait for it, and
//! - of [`TOKENS_PER_DELAY`] tokens at most one is delayed by a long step, so that the p99 inter-token latency is that of the
//!   other steps.

use std::time::{Duration, Instant};

/// Prefill rows that every step may have, but for a measurement of the decodes, so that a prompt always advances.
pub(crate) const PREFILL_ROWS_MIN: usize = 4;

/// Growth limit of the rows from one step to the next.
const GROWTH: usize = 2;

/// Prefill may always take a quarter of the decodes' time, a fifth of the step. Otherwise a prompt
/// would hardly advance where decodes alone take the target.
const PREFILL_SHARE: u64 = 4;

/// Units of an encoding or a block may always take an eighth of the decodes' time, so that an image delays no token by more
/// than a seventh where decodes alone take the target.
const UNITS_SHARE: u64 = 8;

/// The prefill of resumed answers may take three times the decodes' time, three quarters of the step: the last of many
/// resumed answers waits at most a third longer than without the decodes of the others.
const RESUMED_SHARE: u64 = 3;

/// Steps with prefill or units for which a measurement of the decodes is used: one step in so many is one of decodes alone.
const MEASURED_STEPS: usize = 64;

/// The least part of a mixed step that is attributed to prefill.
const PREFILL_PART_MIN: u64 = 16;

/// Rise of the estimate after one measurement, as a fraction of it (1 / `RISE_MAX`); a second one raises it at once.
const RISE_MAX: u64 = 4;

/// Fraction (1 / `FALL`) by which an estimate approaches a lower measurement.
const FALL: u64 = 4;

/// Learned costs of a step.
pub(crate) struct StepTimeModel {
    target_ns: Option<u64>,
    /// Time of a step with decodes alone.
    decodes_ns: u64,
    /// Decodes of the last step with decodes alone; 0 = not measured yet.
    decodes_measured: usize,
    /// Steps with prefill or units since that step.
    steps_since: usize,
    /// Time of a prefill row; 0 = not measured yet.
    row_ns: u64,
    /// The last measurement of `row_ns`.
    row_measured_ns: u64,
    /// Growth limit for the next step.
    rows_max: usize,
}

impl StepTimeModel {
    pub(crate) fn new(target: Option<Duration>) -> Self {
        Self {
            target_ns: target.map(duration_ns),
            decodes_ns: 0,
            decodes_measured: 0,
            steps_since: 0,
            row_ns: 0,
            row_measured_ns: 0,
            rows_max: PREFILL_ROWS_MIN,
        }
    }

    /// Changes the target; learned costs stay.
    pub(crate) fn set_target(&mut self, target: Option<Duration>) {
        self.target_ns = target.map(duration_ns);
    }

    /// Time of a prefill row in nanoseconds; 0 = not measured yet.
    pub(crate) fn prefill_row_ns(&self) -> u64 {
        self.row_ns
    }

    /// Time of the decodes of a step, as far as is known.
    pub(crate) fn decodes_ns(&self) -> u64 {
        self.decodes_ns
    }

    /// Time that a step's decodes leave for units; `None`: as much as there is work.
    pub(crate) fn left_ns(&self, decodes: usize) -> Option<u64> {
        let target = self.target_ns?;
        if decodes == 0 {
            return Some(target);
        }
        let left = target.saturating_sub(self.decodes_ns);
        Some(left.max(self.decodes_ns / UNITS_SHARE))
    }

    /// Prefill rows that a step may have beside this many decodes. `is_resuming`: an answer that began elsewhere is
    /// computed again.
    pub(crate) fn prefill_rows(&self, decodes: usize, is_resuming: bool) -> usize {
        let Some(target) = self.target_ns.filter(|_| decodes > 0) else {
            return usize::MAX;
        };
        if self.is_measurement_due(decodes) {
            return 0;
        }
        let left = target.saturating_sub(self.decodes_ns);
        let share = if is_resuming {
            self.decodes_ns.saturating_mul(RESUMED_SHARE)
        } else {
            self.decodes_ns / PREFILL_SHARE
        };
        let left = left.max(share);
        let fits = left.checked_div(self.row_ns).unwrap_or(0);
        (fits as usize).clamp(PREFILL_ROWS_MIN, self.rows_max.max(PREFILL_ROWS_MIN))
    }

    /// Whether so many decodes alone take no longer than the target, as far as is known; their time grows at most with their
    /// number.
    pub(crate) fn fits_target(&self, decodes: usize) -> bool {
        let (known, target) = (self.decodes_measured as u64, self.target_ns);
        let ns = self.decodes_ns.saturating_mul(decodes as u64);
        ns.checked_div(known) <= target
    }

    /// A step had units and decodes: the time of neither is known alone.
    pub(crate) fn count_unit_step(&mut self) {
        self.steps_since += 1;
    }

    /// Whether the next step has to be one with decodes alone.
    pub(crate) fn is_measurement_due(&self, decodes: usize) -> bool {
        let is_more = decodes > self.decodes_measured + self.decodes_measured / 4;
        self.steps_since > 0 && (is_more || self.steps_since >= MEASURED_STEPS)
    }

    /// Learns from a finished step.
    pub(crate) fn record_step(&mut self, prefill: usize, decodes: usize, ns: u64) {
        match (prefill, decodes) {
            (0, _) => {
                let is_more = decodes > self.decodes_measured;
                self.decodes_ns = if is_more {
                    ns
                } else {
                    move_estimate(self.decodes_ns, ns)
                };
                (self.decodes_measured, self.steps_since) = (decodes, 0);
            }
            (rows, 0) => self.record_row(ns / rows as u64),
            (rows, _) => {
                self.decodes_ns = self.decodes_ns.min(ns);
                self.steps_since += 1;
                let beyond = (ns - self.decodes_ns).max(ns / PREFILL_PART_MIN);
                self.record_row(beyond / rows as u64);
                self.rows_max = rows.saturating_mul(GROWTH);
            }
        }
    }

    fn record_row(&mut self, ns: u64) {
        let (known, ns) = (self.row_ns, ns.max(1));
        let before = std::mem::replace(&mut self.row_measured_ns, ns);
        let believed = match known {
            0 => ns,
            _ => ns.min(before.max(known + known.div_ceil(RISE_MAX))),
        };
        self.row_ns = move_estimate(known, believed);
    }
}

/// Rises to a higher measurement at once, falls by a fraction towards a lower one.
pub(crate) fn move_estimate(estimate: u64, measured: u64) -> u64 {
    match estimate.checked_sub(measured) {
        Some(above) => estimate - above.div_ceil(FALL),
        None => measured,
    }
}

/// The time of the current step's head. Times in nanoseconds count from the epoch; 0 = has not happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepClock {
    epoch: Instant,
    now: Instant,
    now_ns: u64,
}

impl StepClock {
    pub(crate) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            now: epoch,
            now_ns: 0,
        }
    }

    /// Moves to the next step's head. Returns the nanoseconds since the last one.
    pub(crate) fn advance_to(&mut self, now: Instant) -> u64 {
        let last_ns = self.now_ns;
        self.now = now;
        self.now_ns = self.since_epoch_ns(now);
        self.elapsed_ns(last_ns)
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Nanoseconds since the epoch, at least 1.
    pub(crate) fn since_epoch_ns(&self, at: Instant) -> u64 {
        duration_ns(at.saturating_duration_since(self.epoch)).max(1)
    }

    /// Nanoseconds from then to the step's head.
    pub(crate) fn elapsed_ns(&self, since_ns: u64) -> u64 {
        self.now_ns.saturating_sub(since_ns)
    }

    /// Whether a time limit that counts from then has passed; never without a limit.
    pub(crate) fn has_passed(&self, since_ns: u64, limit: Option<Duration>) -> bool {
        limit.is_some_and(|limit| self.elapsed_ns(since_ns) >= duration_ns(limit))
    }

    /// The moment at which a limit that counts from then passes, if that is in the future.
    pub(crate) fn passes_at(&self, since_ns: u64, limit: Duration) -> Option<Instant> {
        let at_ns = since_ns.saturating_add(duration_ns(limit));
        if at_ns <= self.now_ns {
            return None;
        }
        self.epoch.checked_add(Duration::from_nanos(at_ns))
    }
}

/// The duration in nanoseconds; `u64::MAX` for a longer duration.
pub(crate) fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Tokens generated for each token that a long step may delay: two thirds of the hundredth that p99 leaves out, since
/// other steps vary, too.
const TOKENS_PER_DELAY: usize = 150;

/// Delays that may be saved up: a burst of prompts after a quiet time delays no more tokens than this.
const DELAYS_MAX: usize = 8;

/// Delays that a new engine has.
const DELAYS_FIRST: usize = 2;

/// The delays that long steps may still cause.
pub(crate) struct LongSteps {
    /// In tokens: [`TOKENS_PER_DELAY`] for each delay.
    saved: usize,
}

impl LongSteps {
    pub(crate) fn new() -> Self {
        Self {
            saved: DELAYS_FIRST * TOKENS_PER_DELAY,
        }
    }

    /// A step generated so many tokens.
    pub(crate) fn record_tokens(&mut self, tokens: usize) {
        self.saved = (self.saved + tokens).min(DELAYS_MAX * TOKENS_PER_DELAY);
    }

    /// Whether the next step may be long. If so, the delays of its decodes are paid.
    pub(crate) fn take(&mut self, decodes: usize, prompts_finished: usize) -> bool {
        let price = decodes.saturating_mul(TOKENS_PER_DELAY);
        let is_long = prompts_finished >= decodes && price <= self.saved;
        if is_long {
            self.saved -= price;
        }
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TARGET: u64 = 100 * MS;

    /// Simulates steps of a machine whose step time is `takes(step, rows)`. Returns the rows of the last
    /// step and the longest step time.
    fn settle(
        model: &mut StepTimeModel,
        steps: usize,
        takes: impl Fn(usize, usize) -> u64,
    ) -> (usize, u64) {
        let (mut rows, mut longest) = (0, 0);
        for step in 0..steps {
            rows = model.prefill_rows(1, false).min(4096);
            let ns = takes(step, rows);
            longest = longest.max(ns);
            model.record_step(rows, 1, ns);
        }
        (rows, longest)
    }

    #[test]
    fn changed_target_keeps_learned_costs() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        let takes = |_, rows: usize| rows as u64 * MS;
        let (rows, _) = settle(&mut model, 100, takes);
        assert!((80..=100).contains(&rows), "{rows}");
        model.set_target(Some(Duration::from_millis(20)));
        let rows = model.prefill_rows(1, false);
        assert!((8..=20).contains(&rows), "{rows}");
        model.set_target(None);
        assert_eq!(model.prefill_rows(1, false), usize::MAX);
    }

    #[test]
    fn rows_settle_at_the_target_time() {
        // (time of the decodes in ms, time of a row in us, rows that fit)
        let machines = [(0, 500, 200), (50, 1000, 50), (80, 100, 200), (90, 5000, 4)];
        for (decodes, row_us, fit) in machines {
            let takes = |_, rows: usize| decodes * MS + rows as u64 * row_us * 1000;
            for known in [true, false] {
                let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
                if known {
                    model.record_step(0, 1, decodes * MS);
                }
                let (rows, longest) = settle(&mut model, 400, takes);
                let label = format!("{decodes} ms, {row_us} us, known: {known}: {rows} rows");
                assert!(rows <= fit && rows * 100 >= fit * 80, "{label}");
                let most = TARGET.max(takes(0, PREFILL_ROWS_MIN));
                assert!(longest <= most, "{label}: {longest} ns");
            }
        }
    }

    #[test]
    fn prefill_gets_a_fifth_of_the_step_beside_slow_decodes() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        model.record_step(0, 1, 200 * MS);
        let (rows, longest) = settle(&mut model, 100, |_, rows| (200 + rows as u64) * MS);
        assert!((40..=50).contains(&rows), "{rows} rows");
        assert!(longest <= 250 * MS, "{longest} ns");
    }

    #[test]
    fn resumed_answers_get_three_quarters_of_the_step() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        model.record_step(0, 1, 200 * MS);
        let mut rows = 0;
        for _ in 0..100 {
            rows = model.prefill_rows(1, true);
            model.record_step(rows, 1, (200 + rows as u64) * MS);
        }
        assert!((500..=600).contains(&rows), "{rows} rows");
        assert!(model.prefill_rows(1, false) <= 50);
    }

    #[test]
    fn decodes_are_measured_where_prompts_never_pause() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        let (mut prefill, mut longest_gap, mut gap) = (0, 0, 0);
        for step in 0..1000 {
            let decodes = 1 + step / 40;
            let rows = model.prefill_rows(decodes, false);
            gap = if rows == 0 { 0 } else { gap + 1 };
            longest_gap = longest_gap.max(gap);
            prefill += rows;
            model.record_step(rows, decodes, (60 + decodes as u64 + rows as u64) * MS);
        }
        assert!(longest_gap <= MEASURED_STEPS, "{longest_gap}");
        // Between 39 and 15 rows fit; without measurements there would be 4 in each step.
        assert!(prefill > 18_000, "{prefill} rows");
    }

    #[test]
    fn decodes_are_measured_where_units_never_pause() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        model.record_step(0, 7, 50 * MS);
        (0..MEASURED_STEPS - 1).for_each(|_| model.count_unit_step());
        assert!(!model.is_measurement_due(7));
        assert!(model.is_measurement_due(9), "more decodes");
        model.count_unit_step();
        assert!(model.is_measurement_due(7));
        model.record_step(0, 7, 60 * MS);
        assert!(!model.is_measurement_due(7));
        assert_eq!(model.left_ns(7), Some(40 * MS));
    }

    #[test]
    fn rows_shrink_as_their_cost_grows() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        let takes = |step: usize, rows: usize| (rows * (100 + 4 * step)) as u64 * 1000;
        let (_, longest) = settle(&mut model, 300, takes);
        assert!(longest <= TARGET * 105 / 100, "{longest}");
    }

    #[test]
    fn slow_step_hardly_changes_the_rows() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        settle(&mut model, 100, |_, rows| rows as u64 * MS);
        let before = model.prefill_rows(1, false);
        model.record_step(before, 1, 4 * TARGET);
        let after = model.prefill_rows(1, false);
        assert!(after * 5 >= before * 4 - 5, "{before}, then {after} rows");
    }

    #[test]
    fn two_slow_steps_are_believed() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        settle(&mut model, 100, |_, rows| rows as u64 * MS);
        let mut over = 0;
        for _ in 0..20 {
            let rows = model.prefill_rows(1, false);
            let ns = rows as u64 * 4 * MS;
            over += usize::from(ns > TARGET * 105 / 100);
            model.record_step(rows, 1, ns);
        }
        assert_eq!(over, 2, "steps beyond the target");
    }

    #[test]
    fn decodes_beyond_the_target_are_predicted_by_number() {
        let mut model = StepTimeModel::new(Some(Duration::from_millis(100)));
        assert!(model.fits_target(50), "nothing is known");
        model.record_step(0, 4, 40 * MS);
        assert!(model.fits_target(10) && !model.fits_target(11));
    }

    #[test]
    fn rows_are_unlimited_without_decodes_or_target() {
        assert_eq!(StepTimeModel::new(None).prefill_rows(5, false), usize::MAX);
        let model = StepTimeModel::new(Some(Duration::from_millis(1)));
        assert_eq!(model.prefill_rows(0, false), usize::MAX);
        assert_eq!(model.prefill_rows(1, false), PREFILL_ROWS_MIN);
    }

    #[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
    fn clock() -> (StepClock, Instant) {
        let epoch = Instant::now();
        (StepClock::new(epoch), epoch)
    }

    #[test]
    fn limit_passes_at_its_exact_nanosecond() {
        let (mut clock, epoch) = clock();
        let limit = Duration::from_nanos(50);
        assert_eq!(clock.advance_to(epoch + Duration::from_nanos(100)), 100);
        assert!(!clock.has_passed(51, Some(limit)) && clock.has_passed(50, Some(limit)));
        assert!(!clock.has_passed(0, None), "without a limit");
        let passes_at = epoch + Duration::from_nanos(101);
        assert_eq!(clock.passes_at(51, limit), Some(passes_at));
        assert_eq!(clock.passes_at(50, limit), None, "in the past");
        assert_eq!(clock.since_epoch_ns(epoch), 1, "0 means never");
    }

    #[test]
    fn long_step_finishes_as_many_prompts_as_it_delays_tokens() {
        // (decodes, prompts finished, whether the step may be long)
        for (decodes, prompts, is_long) in [
            (1, 0, false),
            (1, 1, true),
            (2, 1, false),
            (2, 2, true),
            (DELAYS_FIRST + 1, 100, false),
        ] {
            let label = format!("{decodes} decodes, {prompts} prompts");
            assert_eq!(LongSteps::new().take(decodes, prompts), is_long, "{label}");
        }
    }

    #[test]
    fn delayed_tokens_stay_a_small_part_of_all() {
        let (mut steps, mut delayed, mut tokens) = (LongSteps::new(), 0, 0);
        for step in 0..10_000 {
            let decodes = 1 + step % 7;
            if steps.take(decodes, decodes) {
                delayed += decodes;
            }
            tokens += decodes;
            steps.record_tokens(decodes);
            assert!(delayed <= DELAYS_FIRST + tokens / TOKENS_PER_DELAY);
        }
        assert!(delayed >= tokens / TOKENS_PER_DELAY - DELAYS_MAX);
    }

    #[test]
    fn saved_delays_are_bounded() {
        let mut steps = LongSteps::new();
        steps.record_tokens(usize::MAX / 2);
        assert!(!steps.take(DELAYS_MAX + 1, 100));
        assert!(steps.take(DELAYS_MAX, 100));
        assert!(!steps.take(1, 100));
    }
}
