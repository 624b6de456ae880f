//! What came of a run, as a table or as JSON.

use super::figures::{Figures, Outcome, failures};
use super::options::{Arrivals, Wish};
use super::story::Story;
use crate::Summary;
use crate::table::{aligned, cells};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What came of a run. Times are milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model asked for.
    pub model: String,
    /// How requests began.
    pub arrivals: String,
    /// Requests due.
    pub requests: usize,
    /// Those answered whole.
    pub answered: usize,
    /// The others, by kind.
    pub failures: BTreeMap<String, usize>,
    /// From the first request to the last end, seconds.
    pub seconds: f64,
    /// Of all prompts, as the server counts; of none if it does not.
    pub prompt_tokens: u64,
    /// Of all answers.
    pub tokens: u64,
    /// Whether any answer's tokens had to be counted as frames.
    pub counted_by_frames: bool,
    /// Frames with text.
    pub frames: u64,
    /// Answers' tokens per second.
    pub tokens_per_s: f64,
    /// Whole answers per second.
    pub requests_per_s: f64,
    /// From due to the first visible token.
    pub first_token_ms: Summary,
    /// Waits between tokens; zero for those that came in one frame with the one before.
    pub between_tokens_ms: Summary,
    /// Waits between frames.
    pub between_frames_ms: Summary,
    /// Each answer's mean wait between tokens.
    pub mean_between_tokens_ms: Summary,
    /// From due to the end.
    pub whole_ms: Summary,
    /// How late this client itself was; large figures mean that the client was the limit.
    pub late_ms: Summary,
    /// Answers that kept the objective, if there was one.
    pub goodput: Option<Goodput>,
    /// The server's processor time per token, microseconds, if its process is known.
    pub server_cpu_us_per_token: Option<f64>,
    /// The server's resident memory at the end, bytes.
    pub server_resident_bytes: Option<u64>,
    /// The most it ever had.
    pub server_resident_peak_bytes: Option<u64>,
    /// This client's own processor time per token, microseconds.
    pub client_cpu_us_per_token: Option<f64>,
}

/// Answers that kept the objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// The bound on the first token, if any.
    pub first_token_ms: Option<f64>,
    /// The bound on the mean wait between tokens, if any.
    pub between_tokens_ms: Option<f64>,
    /// How many kept them.
    pub answers: usize,
    /// Of all requests that were due, failures included; 0 to 1.
    pub share: f64,
    /// Per second.
    pub requests_per_s: f64,
    /// Their tokens per second.
    pub tokens_per_s: f64,
}

impl Report {
    pub(super) fn of(wish: &Wish, model: &str, outcomes: &[Outcome], took: Duration) -> Self {
        let stories = || {
            outcomes
                .iter()
                .filter_map(|outcome| outcome.story.as_ref().ok())
        };
        let seconds = took.as_secs_f64().max(1e-9);
        let figures = Figures::of(outcomes);
        let (answered, tokens) = (stories().count(), stories().map(Story::tokens).sum::<u64>());
        let usages = || stories().filter_map(|story| story.usage);
        Self {
            model: model.to_owned(),
            arrivals: wish.arrivals.to_string(),
            requests: outcomes.len(),
            answered,
            failures: failures(outcomes),
            seconds,
            prompt_tokens: usages().map(|usage| usage.prompt_tokens).sum(),
            tokens,
            counted_by_frames: stories().any(|story| story.usage.is_none()),
            frames: stories().map(Story::frames).sum(),
            tokens_per_s: tokens as f64 / seconds,
            requests_per_s: answered as f64 / seconds,
            first_token_ms: figures.first_token,
            between_tokens_ms: figures.between_tokens,
            between_frames_ms: figures.between_frames,
            mean_between_tokens_ms: figures.mean_between_tokens,
            whole_ms: figures.whole,
            late_ms: figures.late,
            goodput: goodput(wish, outcomes, seconds),
            server_cpu_us_per_token: None,
            server_resident_bytes: None,
            server_resident_peak_bytes: None,
            client_cpu_us_per_token: None,
        }
    }

    /// Shares processor times out over the tokens.
    pub(super) fn per_token(&mut self, server: Option<Duration>, client: Option<Duration>) {
        let tokens = self.tokens;
        let each = |time: Duration| (tokens > 0).then(|| time.as_secs_f64() * 1e6 / tokens as f64);
        self.server_cpu_us_per_token = server.and_then(each);
        self.client_cpu_us_per_token = client.and_then(each);
    }
}

fn goodput(wish: &Wish, outcomes: &[Outcome], seconds: f64) -> Option<Goodput> {
    let objective = wish.objective;
    if objective.first_token.is_none() && objective.between_tokens.is_none() {
        return None;
    }
    let stories = outcomes
        .iter()
        .filter_map(|outcome| outcome.story.as_ref().ok());
    let good: Vec<_> = stories.filter(|story| objective.holds(story)).collect();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Some(Goodput {
        first_token_ms: objective.first_token.map(ms),
        between_tokens_ms: objective.between_tokens.map(ms),
        answers: good.len(),
        share: good.len() as f64 / outcomes.len().max(1) as f64,
        requests_per_s: good.len() as f64 / seconds,
        tokens_per_s: good.iter().copied().map(Story::tokens).sum::<u64>() as f64 / seconds,
    })
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson { rate } => write!(f, "open loop, {rate} requests/s"),
            Self::Clients(1) => write!(f, "closed loop, 1 client"),
            Self::Clients(clients) => write!(f, "closed loop, {clients} clients"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.model, self.arrivals)?;
        writeln!(
            f,
            "{} of {} requests answered in {:.2} s: {:.2} requests/s, {:.1} tokens/s",
            self.answered, self.requests, self.seconds, self.requests_per_s, self.tokens_per_s
        )?;
        let counted = if self.counted_by_frames {
            " (counted as frames: no usage)"
        } else {
            ""
        };
        writeln!(
            f,
            "{} prompt tokens, {} tokens{counted} in {} frames",
            self.prompt_tokens, self.tokens, self.frames
        )?;
        let head = cells(["ms", "mean", "p50", "p95", "p99", "max"]);
        let rows = [
            ("first token", &self.first_token_ms),
            ("between tokens", &self.between_tokens_ms),
            ("between frames", &self.between_frames_ms),
            (
                "an answer's mean between tokens",
                &self.mean_between_tokens_ms,
            ),
            ("whole answer", &self.whole_ms),
            ("client's own lateness", &self.late_ms),
        ];
        let lines = rows.map(|(name, summary)| summary_cells(name, summary));
        f.write_str(&aligned(
            &std::iter::once(head).chain(lines).collect::<Vec<_>>(),
        ))?;
        for (kind, count) in &self.failures {
            writeln!(f, "failed: {count} x {kind}")?;
        }
        self.write_rest(f)
    }
}

impl Report {
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(good) = &self.goodput {
            writeln!(
                f,
                "goodput: {:.1}% of requests, {:.2} requests/s, {:.1} tokens/s",
                100.0 * good.share,
                good.requests_per_s,
                good.tokens_per_s
            )?;
        }
        if let Some(cpu) = self.server_cpu_us_per_token {
            writeln!(f, "server: {cpu:.1} us of processor time per token")?;
        }
        if let Some(bytes) = self.server_resident_peak_bytes {
            writeln!(f, "server: {} MiB resident at most", bytes >> 20)?;
        }
        if let Some(cpu) = self.client_cpu_us_per_token {
            writeln!(f, "client: {cpu:.1} us of processor time per token")?;
        }
        Ok(())
    }
}

fn summary_cells(name: &str, summary: &Summary) -> Vec<String> {
    let figures = [
        summary.mean,
        summary.p50,
        summary.p95,
        summary.p99,
        summary.max,
    ];
    let figures = figures.map(|figure| format!("{figure:.2}"));
    std::iter::once(name.to_owned()).chain(figures).collect()
}
