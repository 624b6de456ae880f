//! Speculation profitability: how many draft tokens pay, from the time of steps and the acceptance rate.
//!
//! A step of `n` sequences takes `plain(n)` without draft tokens, measured for each `n`, and a little
//! more for each draft token, measured too. A sequence's part of the step is `plain(n) / n`; with `k`
//! draft tokens, each accepted with probability `a` if those before were, the sequence gets
//! `1 + a + .. + a^k` tokens for `plain(n) / n + k * row`. The `k` with the most tokens per time is used, and 0 is among
//! the choices: with a low acceptance rate, or in a batch whose rows cost nearly as much as a step, 0 wins.
//!
//! `a` is learned per sequence, from a prior that is learned from all. Without draft tokens nothing
//! is learned, so now and then a few are tried all the same (*probing*), each time after twice as
//! many chances as before; a probe that could not pay even if all were accepted is not made. The time of a plain
//! step changes as contexts grow: after [`REFRESH`] steps with draft tokens one is made without.

/// Sequences in a step beyond which there are no draft tokens: rows are expensive by then.
pub(crate) const BATCH_MAX: usize = 64;

/// Expected gain at which a sequence begins to use draft tokens. The use ends below 1: in between nothing changes.
const GAIN_TO_BEGIN: f64 = 1.05;

/// Draft tokens of a probe.
const PROBE_TOKENS: usize = 2;

/// Chances that pass before the first probe, and at most before a later one.
const PROBE_FIRST: u32 = 8;
const PROBE_MAX: u32 = 128;

/// Steps with draft tokens after which one without is measured.
const REFRESH: u32 = 64;

/// Weight of the old value at a new measurement: of a plain step's time, of the cost of draft
/// tokens, of a sequence's acceptance rate, of the overall acceptance rate.
const KEEP_PLAIN: f64 = 7.0 / 8.0;
const KEEP_ROWS: f64 = 15.0 / 16.0;
const KEEP_OWN: f64 = 0.85;
const KEEP_ALL: f64 = 0.95;

/// Decay per plain step of the row cost that probing is decided with. Otherwise a cost
/// measured at a bad moment would never be corrected.
const RELAX: f64 = 0.9995;

/// Decay per plain step of the weight of old row costs against new measurements.
const FADE: f64 = 0.99;

/// A step that took more than `OUTLIER` times the expected time was delayed by something else, and counts as
/// that long. When a step takes that much less, the ones before were the outliers.
const OUTLIER: f64 = 1.5;

/// Draft tokens that the prior counts for.
const PRIOR: f64 = 1.0;

/// The acceptance rate of draft tokens; older ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct AcceptanceRate {
    accepted: f64,
    tried: f64,
}

impl AcceptanceRate {
    fn record(&mut self, tried: usize, accepted: usize, keep: f64) {
        self.accepted = self.accepted * keep + accepted as f64;
        self.tried = self.tried * keep + tried as f64;
    }

    /// The probability that a draft token is accepted, given a prior.
    fn probability(self, prior: f64) -> f64 {
        (self.accepted + PRIOR * prior) / (self.tried + PRIOR)
    }
}

/// The record of one sequence's draft tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DraftHistory {
    rate: AcceptanceRate,
    is_on: bool,
    /// Chances until the next probe, and the number that follows that probe; 0 = new.
    probe_wait: u32,
    probe_interval: u32,
}

/// The costs and gains of draft tokens in general.
pub(crate) struct Profitability {
    /// By decoding sequences: nanoseconds of a step without draft tokens; 0 = not measured.
    plain_ns: [f64; BATCH_MAX + 1],
    /// By decoding sequences: steps with draft tokens since then.
    stale: [u32; BATCH_MAX + 1],
    /// Time beyond that of plain steps, and the draft tokens that caused it.
    extra_ns: f64,
    extra_rows: f64,
    /// Factor on the row cost that probing is decided with; see [`RELAX`].
    cost_factor: f64,
    rate: AcceptanceRate,
    /// Probe interval of new sequences.
    probe_interval: u32,
    /// Whether a sequence probes in this step.
    is_probing: bool,
}

impl Profitability {
    pub(crate) fn new() -> Self {
        Self {
            plain_ns: [0.0; BATCH_MAX + 1],
            stale: [0; BATCH_MAX + 1],
            extra_ns: 0.0,
            extra_rows: 0.0,
            cost_factor: 1.0,
            rate: AcceptanceRate::default(),
            probe_interval: PROBE_FIRST,
            is_probing: false,
        }
    }

    /// Begins a step of this many sequences. Returns whether the step may have draft tokens at all.
    pub(crate) fn begin_step(&mut self, sequences: usize) -> bool {
        self.is_probing = false;
        let is_known = self.plain_ns.get(sequences).is_some_and(|ns| *ns > 0.0);
        is_known && self.stale[sequences] < REFRESH
    }

    /// The number of draft tokens for one of `sequences` sequences; at most `most`, which is not 0.
    pub(crate) fn draft_count(
        &mut self,
        history: &mut DraftHistory,
        sequences: usize,
        most: usize,
    ) -> usize {
        if history.probe_interval == 0 {
            history.probe_interval = self.probe_interval;
            // Where acceptance is low, new sequences do not probe at once.
            history.probe_wait = self.probe_interval - PROBE_FIRST;
        }
        let accepted = history.rate.probability(self.rate.probability(0.5));
        let (count, gain) = self.best_count(accepted, sequences, most, self.row_ns());
        let enough = if history.is_on { 1.0 } else { GAIN_TO_BEGIN };
        history.is_on = count > 0 && gain >= enough;
        if !history.is_on {
            return self.probe(history, sequences, most);
        }
        if history.rate.tried > 0.0 {
            (history.probe_interval, self.probe_interval) = (PROBE_FIRST, PROBE_FIRST);
        }
        count
    }

    /// A few draft tokens when a probe is due: in a step for one sequence only.
    fn probe(&mut self, history: &mut DraftHistory, sequences: usize, most: usize) -> usize {
        let row_ns = self.row_ns() * self.cost_factor;
        let (_, gain_at_best) = self.best_count(1.0, sequences, most, row_ns);
        if gain_at_best < GAIN_TO_BEGIN {
            return 0;
        }
        if history.probe_wait > 0 || self.is_probing {
            history.probe_wait = history.probe_wait.saturating_sub(1);
            return 0;
        }
        self.is_probing = true;
        history.probe_wait = history.probe_interval;
        history.probe_interval = (history.probe_interval * 2).min(PROBE_MAX);
        self.probe_interval = history.probe_interval;
        most.min(PROBE_TOKENS)
    }

    /// The number of draft tokens with the most tokens per time, and the gain over none.
    fn best_count(
        &self,
        accepted: f64,
        sequences: usize,
        most: usize,
        row_ns: f64,
    ) -> (usize, f64) {
        let own_ns = self.plain_ns[sequences] / sequences as f64;
        let (mut best, mut gain) = (0, 1.0);
        let (mut tokens, mut chance) = (1.0, 1.0);
        for count in 1..=most {
            chance *= accepted;
            tokens += chance;
            let rate = tokens * own_ns / (own_ns + count as f64 * row_ns);
            if rate > gain {
                (best, gain) = (count, rate);
            }
        }
        (best, gain)
    }

    /// The time of a draft token; 0 before the first measurement.
    fn row_ns(&self) -> f64 {
        match self.extra_rows {
            0.0 => 0.0,
            rows => (self.extra_ns / rows).max(0.0),
        }
    }

    /// Learns from `tried` verified draft tokens of a sequence, of which `accepted` were accepted.
    pub(crate) fn record_verified(
        &mut self,
        history: &mut DraftHistory,
        tried: usize,
        accepted: usize,
    ) {
        history.rate.record(tried, accepted, KEEP_OWN);
        self.rate.record(tried, accepted, KEEP_ALL);
    }

    /// Learns from the time of a step without prefill.
    pub(crate) fn record_step(&mut self, sequences: usize, drafts: usize, ns: u64) {
        let Some(&plain) = self.plain_ns.get(sequences) else {
            return;
        };
        let ns = ns.max(1) as f64;
        if drafts == 0 {
            self.stale[sequences] = 0;
            self.cost_factor *= RELAX;
            self.extra_ns *= FADE;
            self.extra_rows *= FADE;
            self.record_plain(sequences, ns);
            return;
        }
        self.stale[sequences] += 1;
        self.cost_factor = 1.0;
        if ns < plain {
            // Without the draft tokens the step would not have taken longer.
            self.record_plain(sequences, ns);
        }
        let plain = self.plain_ns[sequences];
        let most = match self.extra_rows {
            0.0 => plain * (1 + drafts) as f64,
            _ => (plain + drafts as f64 * self.row_ns()) * OUTLIER,
        };
        self.extra_ns = self.extra_ns * KEEP_ROWS + ns.min(most) - plain;
        self.extra_rows = self.extra_rows * KEEP_ROWS + drafts as f64;
    }

    fn record_plain(&mut self, sequences: usize, ns: f64) {
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
