//! Beside machines and texts that are known: gains where there are some, next to no loss where not.

use super::*;

/// What a step takes on a machine, by its rows; a text whose tokens are guessed right with some
/// probability.
struct World {
    /// Nanoseconds of a step, and of each row in it.
    step: f64,
    row: f64,
    /// In percent, how much a step's time is off at most.
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

    fn takes(&self, guesses: usize) -> f64 {
        self.step + (self.sequences + guesses) as f64 * self.row
    }

    /// Tokens per second over so many steps, with guesses as `worth` wants them.
    fn run(
        &mut self,
        worth: &mut Worth,
        all: &mut [Guess],
        steps: usize,
        right: impl Fn(usize) -> f64,
    ) -> f64 {
        let (mut tokens, mut time) = (0.0, 0.0);
        for _ in 0..steps {
            let may = worth.begin(self.sequences);
            let mut rows = 0;
            for (which, guess) in all.iter_mut().enumerate() {
                let count = match may {
                    true => worth.guesses(guess, self.sequences, 8),
                    false => 0,
                };
                let hits = (0..count).take_while(|_| self.random.unit() < right(which));
                let hits = hits.count();
                if count > 0 {
                    worth.verified(guess, count.min(hits + 1), hits);
                }
                rows += count;
                tokens += 1.0 + hits as f64;
            }
            let slow = if self.random.unit() < 0.005 { 5.0 } else { 1.0 };
            let off = 1.0 + (self.random.unit() * 2.0 - 1.0) * self.noise / 100.0;
            time += self.takes(rows);
            worth.took(self.sequences, rows, (self.takes(rows) * off * slow) as u64);
        }
        tokens / time
    }

    /// What the best constant number of guesses gives, and none.
    fn bounds(&self, right: f64) -> (f64, f64) {
        let rate = |count: usize| {
            let tokens: f64 = (0..=count as i32).map(|i| right.powi(i)).sum();
            tokens * self.sequences as f64 / self.takes(count * self.sequences)
        };
        let best = (0..=8).map(rate).fold(0.0, f64::max);
        (best, rate(0))
    }
}

fn fresh(sequences: usize) -> (Worth, Vec<Guess>) {
    (Worth::new(), vec![Guess::default(); sequences])
}

#[test]
fn good_guesses_bring_nearly_all_they_can_and_bad_ones_cost_nearly_nothing() {
    // Step and row in milliseconds, sequences, probability; what of the best, and of none, is reached.
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
        let (mut worth, mut all) = fresh(sequences);
        let rate = world.run(&mut worth, &mut all, 4000, |_| right);
        let (best, none) = world.bounds(right);
        let label = format!("{step} + {row} ms, {sequences} at {right}");
        assert!(rate >= best * part, "{label}: {} of best", rate / best);
        assert!(rate >= none * 0.98, "{label}: {} of none", rate / none);
    }
}

#[test]
fn each_sequence_is_judged_by_its_own_guesses() {
    let mut world = World::new(10.0, 1.0, 2);
    let (mut worth, mut all) = fresh(2);
    let right = |which| if which == 0 { 0.95 } else { 0.0 };
    world.run(&mut worth, &mut all, 1000, right);
    assert!(all[0].on && !all[1].on);
}

#[test]
fn a_text_that_turns_is_followed() {
    let mut world = World::new(10.0, 1.8, 1);
    let (mut worth, mut all) = fresh(1);
    let (_, none) = world.bounds(0.0);
    for _ in 0..3 {
        world.run(&mut worth, &mut all, 1000, |_| 0.0);
        assert!(!all[0].on);
        // Found again after at most `PROBE_MAX` chances.
        world.run(&mut worth, &mut all, 2 * PROBE_MAX as usize, |_| 0.95);
        assert!(all[0].on);
        let rate = world.run(&mut worth, &mut all, 500, |_| 0.95);
        assert!(rate > 1.5 * none, "{}", rate / none);
    }
}

#[test]
fn a_bad_moment_is_forgotten() {
    let mut world = World::new(10.0, 1.8, 1);
    let (mut worth, mut all) = fresh(1);
    worth.took(1, 0, (12.0 * MS) as u64);
    for _ in 0..50 {
        worth.took(1, 4, (100.0 * MS) as u64);
    }
    world.run(&mut worth, &mut all, 3000, |_| 0.95);
    assert!(all[0].on, "{} ns", worth.row_ns());
}

#[test]
fn a_first_step_that_was_held_up_is_seen_through() {
    for (step, row, sequences) in [(10.0, 1.8, 1), (10.0, 1.8, 8), (1.0, 5.0, 4)] {
        let mut world = World::new(step, row, sequences);
        let (mut worth, mut all) = fresh(sequences);
        worth.took(sequences, 0, (5.0 * world.takes(0)) as u64);
        let rate = world.run(&mut worth, &mut all, 2000, |_| 0.0);
        let (_, none) = world.bounds(0.0);
        let label = format!("{step} + {row} ms, {sequences}");
        assert!(rate >= none * 0.95, "{label}: {} of none", rate / none);
    }
}

#[test]
fn nothing_is_guessed_before_a_plain_step_was_seen_and_sometimes_after() {
    let (mut worth, mut all) = fresh(1);
    assert!(!worth.begin(1) && !worth.begin(0) && !worth.begin(BATCH_MAX + 1));
    worth.took(1, 0, 100);
    assert!(worth.begin(1) && !worth.begin(2));
    assert_eq!(
        worth.guesses(&mut all[0], 1, 8),
        8,
        "costs are not known yet"
    );
    (0..REFRESH).for_each(|_| worth.took(1, 8, 100));
    assert!(!worth.begin(1), "a plain step is due");
    worth.took(1, 0, 100);
    assert!(worth.begin(1));
}

/// Numbers in `[0, 1)`.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 += 1;
        crate::sampler::uniform(99, 0, self.0)
    }
}
