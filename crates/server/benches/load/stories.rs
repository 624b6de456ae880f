//! What became of callers that were more than there is room for.

use crate::load::figures::{ms, quantile};
use std::time::Duration;

/// How a caller behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Tries once.
    #[default]
    Plain,
    /// Comes back when told.
    Polite,
    /// Tries once, and has only so long.
    Hasty(Duration),
}

/// What became of one caller.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) manner: Manner,
    /// From the permit to the first token, of the try that was let in, at once or from the queue.
    pub(crate) ttft: Option<Duration>,
    /// From that try's request to its first token.
    pub(crate) from_arrival: Option<Duration>,
    /// From the request to the head of each refusal.
    pub(crate) refusals: Vec<Duration>,
    /// The same of a deadline that cannot be met.
    pub(crate) unattainable: Option<Duration>,
    /// What it was told first, and how long it took to be let in; a polite one only.
    pub(crate) told: Option<Duration>,
    pub(crate) took: Option<Duration>,
    /// Endings of the answer: one, of whoever was let in.
    pub(crate) endings: usize,
    pub(crate) was_let_in: bool,
}

/// What became of all.
pub(crate) struct Summary {
    pub(crate) callers: usize,
    pub(crate) let_in: usize,
    pub(crate) ttft: Vec<Duration>,
    pub(crate) from_arrival: Vec<Duration>,
    pub(crate) refusals: Vec<Duration>,
    pub(crate) hasty: usize,
    pub(crate) unattainable: Vec<Duration>,
    /// What the polite were told first.
    pub(crate) told: Vec<Duration>,
    /// How many of them found it true.
    pub(crate) honest: usize,
    /// Those that were let in and did not end exactly once.
    pub(crate) odd: usize,
}

impl Summary {
    /// Counts.
    pub(crate) fn of(stories: &[Story]) -> Self {
        let step = Duration::from_millis(50);
        let is_true = |s: &&Story| {
            let told = s.told.unwrap_or_default();
            s.told.is_some() && s.took.is_some_and(|took| took <= 2 * told + step)
        };
        let is_odd = |s: &&Story| s.endings != usize::from(s.was_let_in);
        let is_hasty = |s: &&Story| matches!(s.manner, Manner::Hasty(_));
        Self {
            callers: stories.len(),
            let_in: stories.iter().filter(|s| s.was_let_in).count(),
            ttft: stories.iter().filter_map(|s| s.ttft).collect(),
            from_arrival: stories.iter().filter_map(|s| s.from_arrival).collect(),
            refusals: stories.iter().flat_map(|s| s.refusals.clone()).collect(),
            hasty: stories.iter().filter(is_hasty).count(),
            unattainable: stories.iter().filter_map(|s| s.unattainable).collect(),
            told: stories.iter().filter_map(|s| s.told).collect(),
            honest: stories.iter().filter(is_true).count(),
            odd: stories.iter().filter(is_odd).count(),
        }
    }

    /// Prints it.
    pub(crate) fn print(&mut self, target: Duration) {
        let target = ms(target);
        println!("  {} callers, {} let in", self.callers, self.let_in);
        println!(
            "  TTFT from the permit {} ms (target {target:.0}), from arrival {} ms",
            pair(&mut self.ttft, 0.95, 0),
            pair(&mut self.from_arrival, 0.95, 0),
        );
        println!(
            "  {} refusals, answered in {} ms",
            self.refusals.len(),
            pair(&mut self.refusals, 0.99, 2),
        );
        println!(
            "  {} hasty: {} told that it cannot be met, in {} ms",
            self.hasty,
            self.unattainable.len(),
            pair(&mut self.unattainable, 0.99, 2),
        );
        println!(
            "  {} polite were told {} ms; true within 2x for {}",
            self.told.len(),
            pair(&mut self.told, 0.95, 0),
            self.honest,
        );
        println!("  {} without exactly one ending", self.odd);
    }

    /// A row of measurements/notes.md's table.
    pub(crate) fn row(&mut self, label: &str, limit: &str) -> String {
        format!(
            "| {label} | {} of {} | {} | {} | {}; {} | {} of {}; {} | {} of {} | {limit} |",
            self.let_in,
            self.callers,
            pair(&mut self.ttft, 0.95, 0),
            pair(&mut self.from_arrival, 0.95, 0),
            self.refusals.len(),
            pair(&mut self.refusals, 0.99, 2),
            self.unattainable.len(),
            self.hasty,
            pair(&mut self.unattainable, 0.99, 2),
            self.honest,
            self.told.len(),
        )
    }
}

/// The median, and the value below which this share lies, in milliseconds.
fn pair(times: &mut [Duration], share: f64, digits: usize) -> String {
    if times.is_empty() {
        return "–".to_owned();
    }
    let (half, high) = (ms(quantile(times, 0.5)), ms(quantile(times, share)));
    format!("{half:.digits$} / {high:.digits$}")
}
