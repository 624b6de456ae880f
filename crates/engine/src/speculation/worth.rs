//! Whether guesses are worth their rows, from what steps took and how many guesses were right.
//!
//! A step of `n` sequences takes `plain(n)` without guesses, measured for each `n`, and a little
//! more for each guess, measured too. A sequence's part of the step is `plain(n) / n`; with `k`
//! guesses, each right with probability `a` if those before it were, it gets `1 + a + .. + a^k`
//! tokens for `plain(n) / n + k * row`. The `k` with the most tokens per time is taken, and 0 is among
//! them: with bad guesses, or in a batch whose rows cost nearly what a step costs, that is the answer.
//!
//! `a` is learned per sequence, from a prior that is learned from all. Who does not guess learns
//! nothing, so now and then a little is guessed all the same (*probing*), each time after twice as
//! many chances as before; a probe that could not pay even if it were right is not made. What a plain
//! step takes changes as contexts grow: after [`REFRESH`] steps with guesses one is made without.

/// Sequences in a step beyond which nothing is guessed: rows are dear by then.
pub(crate) const BATCH_MAX: usize = 64;

/// Expected gain at which guessing begins. It ends below 1: in between nothing changes.
const GAIN_TO_BEGIN: f64 = 1.05;

/// Tokens guessed in a probe.
const PROBE_TOKENS: usize = 2;

/// Chances to guess that are let go before the first probe, and at most.
const PROBE_FIRST: u32 = 8;
const PROBE_MAX: u32 = 128;

/// Steps with guesses after which one without is measured.
const REFRESH: u32 = 64;

/// How much of an old measurement is kept at a new one: of a plain step's time, of the time of
/// guesses, of a sequence's luck, of everybody's.
const KEEP_PLAIN: f64 = 7.0 / 8.0;
const KEEP_ROWS: f64 = 15.0 / 16.0;
const KEEP_OWN: f64 = 0.85;
const KEEP_ALL: f64 = 0.95;

/// What is kept, in each step without guesses, of the belief in what guesses take, where a probe is
/// considered: one that came of a bad moment would else never be put right.
const RELAX: f64 = 0.9995;

/// The same for how much it weighs against new measurements.
const FADE: f64 = 0.99;

/// A step that took longer than so many times what was expected was held up by something else, and
/// counts as one that took so long. Where a step takes so much less, it was those before it.
const OUTLIER: f64 = 1.5;

/// Guesses that the prior counts for.
const PRIOR: f64 = 1.0;

/// How right guesses were; older ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct Luck {
    right: f64,
    tried: f64,
}

impl Luck {
    fn learn(&mut self, tried: usize, right: usize, keep: f64) {
        self.right = self.right * keep + right as f64;
        self.tried = self.tried * keep + tried as f64;
    }

    /// The probability that a guess is right, where `prior` was believed before.
    fn probability(self, prior: f64) -> f64 {
        (self.right + PRIOR * prior) / (self.tried + PRIOR)
    }
}

/// What is known of one sequence's guesses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guess {
    luck: Luck,
    on: bool,
    /// Chances to let go until the next probe, and how many it will be after that one; 0 = new.
    wait: u32,
    back_off: u32,
}

/// What is known of guesses in general.
pub(crate) struct Worth {
    /// By sequences that generate: nanoseconds of a step without guesses; 0 = not measured.
    plain_ns: [f64; BATCH_MAX + 1],
    /// By sequences that generate: steps with guesses since.
    stale: [u32; BATCH_MAX + 1],
    /// Time beyond that of plain steps, and guesses that took it.
    beyond_ns: f64,
    beyond_rows: f64,
    /// What is believed of that when it comes to probing; see [`RELAX`].
    doubt: f64,
    luck: Luck,
    /// Where new sequences begin.
    back_off: u32,
    /// Whether somebody probes in this step.
    probed: bool,
}

impl Worth {
    pub(crate) fn new() -> Self {
        Self {
            plain_ns: [0.0; BATCH_MAX + 1],
            stale: [0; BATCH_MAX + 1],
            beyond_ns: 0.0,
            beyond_rows: 0.0,
            doubt: 1.0,
            luck: Luck::default(),
            back_off: PROBE_FIRST,
            probed: false,
        }
    }

    /// A step of so many sequences is planned: whether it may have guesses at all.
    pub(crate) fn begin(&mut self, sequences: usize) -> bool {
        self.probed = false;
        let known = self.plain_ns.get(sequences).is_some_and(|ns| *ns > 0.0);
        known && self.stale[sequences] < REFRESH
    }

    /// How many tokens to guess for one of so many sequences; at most `most`, which is not 0.
    pub(crate) fn guesses(&mut self, guess: &mut Guess, sequences: usize, most: usize) -> usize {
        if guess.back_off == 0 {
            guess.back_off = self.back_off;
            // Where guesses are bad, who comes new does not try at once.
            guess.wait = self.back_off - PROBE_FIRST;
        }
        let right = guess.luck.probability(self.luck.probability(0.5));
        let (count, gain) = self.best(right, sequences, most, self.row_ns());
        let enough = if guess.on { 1.0 } else { GAIN_TO_BEGIN };
        guess.on = count > 0 && gain >= enough;
        if !guess.on {
            return self.probe(guess, sequences, most);
        }
        if guess.luck.tried > 0.0 {
            (guess.back_off, self.back_off) = (PROBE_FIRST, PROBE_FIRST);
        }
        count
    }

    /// A few guesses, when it is time to look again: in a step for one sequence only.
    fn probe(&mut self, guess: &mut Guess, sequences: usize, most: usize) -> usize {
        let row_ns = self.row_ns() * self.doubt;
        let (_, at_best) = self.best(1.0, sequences, most, row_ns);
        if at_best < GAIN_TO_BEGIN {
            return 0;
        }
        if guess.wait > 0 || self.probed {
            guess.wait = guess.wait.saturating_sub(1);
            return 0;
        }
        self.probed = true;
        guess.wait = guess.back_off;
        guess.back_off = (guess.back_off * 2).min(PROBE_MAX);
        self.back_off = guess.back_off;
        most.min(PROBE_TOKENS)
    }

    /// How many guesses give the most tokens per time, and how many times what none give.
    fn best(&self, right: f64, sequences: usize, most: usize, row_ns: f64) -> (usize, f64) {
        let own_ns = self.plain_ns[sequences] / sequences as f64;
        let (mut best, mut gain) = (0, 1.0);
        let (mut tokens, mut chance) = (1.0, 1.0);
        for count in 1..=most {
            chance *= right;
            tokens += chance;
            let rate = tokens * own_ns / (own_ns + count as f64 * row_ns);
            if rate > gain {
                (best, gain) = (count, rate);
            }
        }
        (best, gain)
    }

    /// What a guess takes; 0 = as far as is known, nothing.
    fn row_ns(&self) -> f64 {
        match self.beyond_rows {
            0.0 => 0.0,
            rows => (self.beyond_ns / rows).max(0.0),
        }
    }

    /// How many guesses of a sequence were looked at, and how many of them were right.
    pub(crate) fn verified(&mut self, guess: &mut Guess, tried: usize, right: usize) {
        guess.luck.learn(tried, right, KEEP_OWN);
        self.luck.learn(tried, right, KEEP_ALL);
    }

    /// What a step without prefill took.
    pub(crate) fn took(&mut self, sequences: usize, guesses: usize, ns: u64) {
        let Some(&plain) = self.plain_ns.get(sequences) else {
            return;
        };
        let ns = ns.max(1) as f64;
        if guesses == 0 {
            self.stale[sequences] = 0;
            self.doubt *= RELAX;
            self.beyond_ns *= FADE;
            self.beyond_rows *= FADE;
            self.learn_plain(sequences, ns);
            return;
        }
        self.stale[sequences] += 1;
        self.doubt = 1.0;
        if ns < plain {
            // Without the guesses it had not taken longer.
            self.learn_plain(sequences, ns);
        }
        let plain = self.plain_ns[sequences];
        let most = match self.beyond_rows {
            0.0 => plain * (1 + guesses) as f64,
            _ => (plain + guesses as f64 * self.row_ns()) * OUTLIER,
        };
        self.beyond_ns = self.beyond_ns * KEEP_ROWS + ns.min(most) - plain;
        self.beyond_rows = self.beyond_rows * KEEP_ROWS + guesses as f64;
    }

    fn learn_plain(&mut self, sequences: usize, ns: f64) {
        let plain = &mut self.plain_ns[sequences];
        *plain = match *plain {
            0.0 => ns,
            old if ns * OUTLIER < old => ns,
            old => old * KEEP_PLAIN + ns.min(old * OUTLIER) * (1.0 - KEEP_PLAIN),
        };
    }
}

#[cfg(test)]
mod tests;
