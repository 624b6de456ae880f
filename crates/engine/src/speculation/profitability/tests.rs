//! Simulated machines and texts: nearly the best gain where draft tokens pay, nearly no loss where they do not.

use super::*;

/// A machine with the time of a step by its rows, and the sequences that run on it.
struct World {
    /// Nanoseconds of a step without rows, and of each row.
    step: f64,
    row: f64,
    /// Greatest deviation of a step's time, in percent.
    noise: f64,
    sequences: usize,
    random: Random,
}

const MS: f64 = 1e6;

impl World {
    fn new(step_ms: f64, row_ms: f64, sequences: usize) -> Self {
        Self {
            step: step_ms * MS,
            row: row_ms * MS,
            noise: 5.0,
            sequences,
            random: Random(7),
        }
    }

    fn takes(&self, drafts: usize) -> f64 {
        self.step + (self.sequences + drafts) as f64 * self.row
    }

    /// Tokens per nanosecond over `steps` steps, with draft tokens that are accepted with probability `right(which)`.
    fn run(
        &mut self,
        profit: &mut Profitability,
        all: &mut [DraftHistory],
        steps: usize,
        right: impl Fn(usize) -> f64,
    ) -> f64 {
        let (mut tokens, mut time) = (0.0, 0.0);
        for _ in 0..steps {
            let may = profit.begin_step(self.sequences);
            let mut rows = 0;
            for (which, history) in all.iter_mut().enumerate() {
                let count = if may {
                    profit.draft_count(history, self.sequences, 8)
                } else {
                    0
                };
                let hits = (0..count).take_while(|_| self.random.unit() < right(which));
                let hits = hits.count();
                if count > 0 {
                    profit.record_verified(history, count.min(hits + 1), hits);
                }
                rows += count;
                tokens += 1.0 + hits as f64;
            }
            let slow = if self.random.unit() < 0.005 { 5.0 } else { 1.0 };
            let off = 1.0 + (self.random.unit() * 2.0 - 1.0) * self.noise / 100.0;
            time += self.takes(rows);
            profit.record_step(self.sequences, rows, (self.takes(rows) * off * slow) as u64);
        }
        tokens / time
    }

    /// Tokens per nanosecond with the best constant number of draft tokens, and with none.
    fn bounds(&self, right: f64) -> (f64, f64) {
        let rate = |count: usize| {
            let tokens: f64 = (0..=count as i32).map(|i| right.powi(i)).sum();
            tokens * self.sequences as f64 / self.takes(count * self.sequences)
        };
        let best = (0..=8).map(rate).fold(0.0, f64::max);
        (best, rate(0))
    }
}

fn new_state(sequences: usize) -> (Profitability, Vec<DraftHistory>) {
    (
        Profitability::new(),
        vec![DraftHistory::default(); sequences],
    )
}

#[test]
fn speculation_nearly_reaches_the_best_rate_and_costs_nearly_nothing() {
    // Step and row in milliseconds, sequences, acceptance rate, least part of the best rate.
    let cases = [
        (10.0, 1.8, 1, 0.95, 0.9),
        (10.0, 1.8, 1, 0.6, 0.9),
        (10.0, 1.8, 1, 0.3, 0.88),
        (10.0, 1.8, 1, 0.0, 0.98),
        (10.0, 0.1, 1, 0.0, 0.98),
        (10.0, 1.8, 8, 0.9, 0.9),
        (10.0, 1.8, 8, 0.0, 0.98),
        (10.0, 2.1, 32, 0.95, 0.95),
        (10.0, 2.1, 32, 0.0, 0.98),
        (1.0, 5.0, 4, 0.9, 0.97),
        (1.0, 5.0, 1, 0.0, 0.98),
    ];
    for (step, row, sequences, right, part) in cases {
        let mut world = World::new(step, row, sequences);
        let (mut profit, mut all) = new_state(sequences);
        let rate = world.run(&mut profit, &mut all, 4000, |_| right);
        let (best, none) = world.bounds(right);
        let label = format!("{step} + {row} ms, {sequences} at {right}");
        assert!(rate >= best * part, "{label}: {} of best", rate / best);
        assert!(rate >= none * 0.98, "{label}: {} of none", rate / none);
    }
}

#[test]
fn acceptance_is_learned_per_sequence() {
    let mut world = World::new(10.0, 1.0, 2);
    let (mut profit, mut all) = new_state(2);
    let right = |which| if which == 0 { 0.95 } else { 0.0 };
    world.run(&mut profit, &mut all, 1000, right);
    assert!(all[0].is_on && !all[1].is_on);
}

#[test]
fn changed_acceptance_is_learned_again() {
    let mut world = World::new(10.0, 1.8, 1);
    let (mut profit, mut all) = new_state(1);
    let (_, none) = world.bounds(0.0);
    for _ in 0..3 {
        world.run(&mut profit, &mut all, 1000, |_| 0.0);
        assert!(!all[0].is_on);
        // A probe comes after at most `PROBE_MAX` chances.
        world.run(&mut profit, &mut all, 2 * PROBE_MAX as usize, |_| 0.95);
        assert!(all[0].is_on);
        let rate = world.run(&mut profit, &mut all, 500, |_| 0.95);
        assert!(rate > 1.5 * none, "{}", rate / none);
    }
}

#[test]
fn outlier_costs_are_forgotten() {
    let mut world = World::new(10.0, 1.8, 1);
    let (mut profit, mut all) = new_state(1);
    profit.record_step(1, 0, (12.0 * MS) as u64);
    for _ in 0..50 {
        profit.record_step(1, 4, (100.0 * MS) as u64);
    }
    world.run(&mut profit, &mut all, 3000, |_| 0.95);
    assert!(all[0].is_on, "{} ns", profit.row_ns());
}

#[test]
fn slow_first_step_is_corrected() {
    for (step, row, sequences) in [(10.0, 1.8, 1), (10.0, 1.8, 8), (1.0, 5.0, 4)] {
        let mut world = World::new(step, row, sequences);
        let (mut profit, mut all) = new_state(sequences);
        profit.record_step(sequences, 0, (5.0 * world.takes(0)) as u64);
        let rate = world.run(&mut profit, &mut all, 2000, |_| 0.0);
        let (_, none) = world.bounds(0.0);
        let label = format!("{step} + {row} ms, {sequences}");
        assert!(rate >= none * 0.95, "{label}: {} of none", rate / none);
    }
}

#[test]
fn draft_tokens_need_a_recent_plain_step() {
    let (mut profit, mut all) = new_state(1);
    assert!(!profit.begin_step(1) && !profit.begin_step(0) && !profit.begin_step(BATCH_MAX + 1));
    profit.record_step(1, 0, 100);
    assert!(profit.begin_step(1) && !profit.begin_step(2));
    assert_eq!(
        profit.draft_count(&mut all[0], 1, 8),
        8,
        "the row cost is not measured"
    );
    (0..REFRESH).for_each(|_| profit.record_step(1, 8, 100));
    assert!(!profit.begin_step(1), "a plain step is due");
    profit.record_step(1, 0, 100);
    assert!(profit.begin_step(1));
}

/// Random numbers in `[0, 1)`.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 += 1;
        crate::sampler::uniform(99, 0, self.0)
    }
}
