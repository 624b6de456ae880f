//! A group of equal engines with one queue, in steps of a second.

use super::trace::Dice;
use crate::forecast::CounterReading;
use std::collections::VecDeque;

/// From the order to readiness, seconds.
pub(super) const BOOT_S: usize = 180;
/// A first token later than this is a violation, seconds.
pub(super) const PROMISED_S: f64 = 2.0;
/// Prompt tokens that are computed, and generated tokens, of a request; standard deviation of their sum.
const PROMPT_TOKENS: f64 = 700.0;
const GENERATED_TOKENS: f64 = 225.0;
const TOKENS_DEVIATION: f64 = 330.0;
/// Cost of a step and of a token, and sequences of an engine.
const STEP_S: f64 = 0.008;
const TOKEN_S: f64 = 0.0003;
const SLOTS: f64 = 24.0;

/// Tokens/s of a full engine.
pub(super) fn engine_tokens_per_s() -> f64 {
    1.0 / (TOKEN_S + generated_share() * STEP_S / SLOTS)
}

fn generated_share() -> f64 {
    GENERATED_TOKENS / (PROMPT_TOKENS + GENERATED_TOKENS)
}

/// The engines and what they have to do.
pub(super) struct Engines {
    ready: usize,
    /// When engines that were ordered become ready.
    booting: VecDeque<usize>,
    /// Requests that wait: second of arrival, how many, tokens up to their end.
    queue: VecDeque<(usize, f64, f64)>,
    tokens_arrived: f64,
    tokens_computed: f64,
    counters: Counters,
    pub(super) figures: Figures,
    /// Share of capacity used, of the last minute's seconds.
    used: VecDeque<(f64, f64)>,
}

#[derive(Default)]
struct Counters {
    arrivals: f64,
    admitted: f64,
    computed: f64,
    steps: f64,
    step_s: f64,
}

/// Counts of one simulated run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) requests: f64,
    pub(super) violations: f64,
    pub(super) engine_hours: f64,
}

impl Figures {
    /// Share of requests whose first token was late.
    pub(super) fn late_percent(&self) -> f64 {
        self.violations * 100.0 / self.requests
    }
}

impl Engines {
    pub(super) fn new(ready: usize) -> Self {
        Self {
            ready,
            booting: VecDeque::new(),
            queue: VecDeque::new(),
            tokens_arrived: 0.0,
            tokens_computed: 0.0,
            counters: Counters::default(),
            figures: Figures::default(),
            used: VecDeque::new(),
        }
    }

    /// Engines that are ready or boot.
    pub(super) fn ordered(&self) -> usize {
        self.ready + self.booting.len()
    }

    /// Orders engines, or gives some back: those that boot first.
    pub(super) fn order(&mut self, wanted: usize, second: usize) {
        while self.ordered() < wanted {
            self.booting.push_back(second + BOOT_S);
        }
        while self.ordered() > wanted.max(1) {
            if self.booting.pop_back().is_none() {
                self.ready -= 1;
            }
        }
    }

    /// One second. Figures count if `counted`.
    pub(super) fn step(&mut self, second: usize, arrivals: f64, dice: &mut Dice, counted: bool) {
        while self.booting.front().is_some_and(|ready| *ready <= second) {
            self.booting.pop_front();
            self.ready += 1;
        }
        if arrivals > 0.0 {
            let mean = arrivals * (PROMPT_TOKENS + GENERATED_TOKENS);
            let tokens = mean + arrivals.sqrt() * TOKENS_DEVIATION * dice.normal();
            self.tokens_arrived += tokens.max(mean * 0.1);
            let entry = (second, arrivals, self.tokens_arrived);
            self.queue.push_back(entry);
        }
        let capacity = self.ready as f64 * engine_tokens_per_s();
        let computed = capacity.min(self.tokens_arrived - self.tokens_computed);
        self.tokens_computed += computed;
        let mut violations = 0.0;
        while let Some((arrived, count, until)) = self.queue.front().copied() {
            if until > self.tokens_computed {
                break;
            }
            self.queue.pop_front();
            self.counters.admitted += count;
            if (second - arrived) as f64 > PROMISED_S {
                violations += count;
            }
        }
        self.count(arrivals, computed, capacity);
        if counted {
            self.figures.requests += arrivals;
            self.figures.violations += violations;
            self.figures.engine_hours += self.ordered() as f64 / 3600.0;
        }
    }

    fn count(&mut self, arrivals: f64, computed: f64, capacity: f64) {
        // The batch is as small as the load allows.
        let each = computed / self.ready as f64;
        let generated = each * generated_share();
        let steps = ((1.0 - TOKEN_S * each) / STEP_S).clamp(generated / SLOTS, generated);
        self.counters.arrivals += arrivals;
        self.counters.computed += computed;
        self.counters.steps += steps * self.ready as f64;
        self.counters.step_s += (steps * STEP_S + each * TOKEN_S) * self.ready as f64;
        self.used.push_back((computed, capacity));
        if self.used.len() > 60 {
            self.used.pop_front();
        }
    }

    /// Engines' worth of work that was done in the last minute.
    pub(super) fn engines_used(&self) -> f64 {
        let computed: f64 = self.used.iter().map(|used| used.0).sum();
        computed / self.used.len().max(1) as f64 / engine_tokens_per_s()
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> f64 {
        self.queue.iter().map(|entry| entry.1).sum()
    }

    /// What one engine's process, or the sum of all, exports.
    pub(super) fn reading(&self) -> CounterReading {
        let counters = &self.counters;
        let generated = counters.computed * generated_share();
        CounterReading {
            arrivals: counters.arrivals as u64,
            admitted: counters.admitted as u64,
            prefill_tokens: (counters.computed - generated) as u64,
            generated_tokens: generated as u64,
            steps: counters.steps as u64,
            step_ns: (counters.step_s * 1e9) as u64,
            waiting: self.waiting() as u64,
            slots: SLOTS as u64,
        }
    }
}
