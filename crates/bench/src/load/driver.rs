//! A load run: probes, warm-up, then the measured requests; their arrival times and prompts.

use super::client::LoadClient;
use super::options::{Arrivals, IN_FLIGHT_MAX, LoadError, LoadOptions, PROMPT_MAX, REQUESTS_MAX};
use super::report::{LoadReport, RequestOutcome};
use super::request_trace::{Failure, RequestTrace};
use crate::process::{Process, now};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Words of the two probes that measure the tokens per word.
const PROBES: [usize; 2] = [8, 40];
/// Seed of the prompts of warm-up and probes, different from those of measured requests.
const WARMUP_SEED: u64 = 1 << 63;

/// Runs the load and reports the results. A single thread minimizes the client's share of the CPU where server
/// and client share a machine.
///
/// # Errors
/// Options out of bounds, or a server that fails the first request.
pub fn run(options: LoadOptions) -> Result<LoadReport, LoadError> {
    check_bounds(&options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(LoadError::of)?.block_on(run_async(options))
}

fn check_bounds(options: &LoadOptions) -> Result<(), LoadError> {
    let bound = |name: &str, given: usize, least: usize, most: usize| {
        if (least..=most).contains(&given) {
            return Ok(());
        }
        Err(LoadError(format!(
            "{name} is {given}: from {least} to {most} is possible"
        )))
    };
    bound("requests", options.requests, 1, REQUESTS_MAX)?;
    bound("warmup", options.warmup, 0, REQUESTS_MAX)?;
    bound("prompt", options.prompt_tokens, 1, PROMPT_MAX)?;
    match options.arrivals {
        Arrivals::Clients(clients) => bound("clients", clients, 1, IN_FLIGHT_MAX),
        Arrivals::Poisson { rate } if rate.is_finite() && rate > 0.0 => Ok(()),
        Arrivals::Poisson { rate } => Err(LoadError(format!("rate is {rate}: must be above 0"))),
    }
}

async fn run_async(options: LoadOptions) -> Result<LoadReport, LoadError> {
    let client = LoadClient::new(options).await?;
    let estimate = probe_server(&client).await?;
    let run = Arc::new(LoadRun { client, estimate });
    let options = &run.client.options;
    let clients = match options.arrivals {
        Arrivals::Clients(clients) => clients,
        Arrivals::Poisson { .. } => options.warmup.clamp(1, IN_FLIGHT_MAX),
    };
    run_closed_loop(&run, clients, options.warmup, WARMUP_SEED).await;
    let cpu = |process: Process| process.cpu_time();
    let server = options.pid.map(Process::Pid);
    let before = (server.and_then(cpu), cpu(Process::Own));
    let start = now();
    let outcomes = match options.arrivals {
        Arrivals::Clients(clients) => run_closed_loop(&run, clients, options.requests, 0).await,
        Arrivals::Poisson { rate } => run_open_loop(&run, rate, options.requests).await,
    };
    let took = now() - start;
    let spent =
        |before: Option<_>, process: Option<Process>| process.and_then(cpu)?.checked_sub(before?);
    let (server_cpu, own_cpu) = (spent(before.0, server), spent(before.1, Some(Process::Own)));
    let mut report = LoadReport::of(options, run.client.model(), &outcomes, took);
    report.server_resident_bytes = server.and_then(Process::resident_bytes);
    report.server_resident_peak_bytes = server.and_then(Process::resident_peak_bytes);
    report.per_token(server_cpu, own_cpu);
    Ok(report)
}

/// Sends two short requests, which also detect an unusable server.
async fn probe_server(client: &LoadClient) -> Result<TokenEstimate, LoadError> {
    let mut points = Vec::new();
    for (i, words) in PROBES.into_iter().enumerate() {
        let text = random_prompt(words, &mut Random::new(WARMUP_SEED + i as u64));
        let request = client.completion_request(&text, 1)?;
        let tokens = match client.send_request(&request, now()).await {
            Ok(trace) => trace.usage.map_or(0, |usage| usage.prompt_tokens),
            // A token without visible text, such as the first bytes of a character.
            Err(Failure::Empty) => 0,
            Err(failure) => {
                let (uri, host) = (request.uri(), &client.options.target.authority);
                return Err(LoadError(format!(
                    "POST {uri} at {host}: {}",
                    failure.name()
                )));
            }
        };
        let tokens = match tokens {
            0 => client.prompt_tokens(&text).await.unwrap_or(0),
            delta_has_text => delta_has_text,
        };
        points.push((words, tokens));
    }
    Ok(TokenEstimate::of(points[0], points[1]))
}

struct LoadRun {
    client: LoadClient,
    estimate: TokenEstimate,
}

impl LoadRun {
    fn build_request(&self, index: u64) -> Result<Request<Full<Bytes>>, LoadError> {
        let options = &self.client.options;
        let mut random = Random::new(options.seed.wrapping_add(index.wrapping_mul(0x1000_0001)));
        let words = self.estimate.word_count(options.prompt_tokens);
        self.client
            .completion_request(&random_prompt(words, &mut random), options.max_tokens.get())
    }

    async fn run_request(&self, request: &Request<Full<Bytes>>, due: Instant) -> RequestOutcome {
        let sent = now();
        let trace: Result<RequestTrace, Failure> = self.client.send_request(request, due).await;
        RequestOutcome {
            late: sent.saturating_duration_since(due),
            trace,
        }
    }
}

/// Closed loop: `clients` clients share `requests` requests; each client sends the next request after a
/// response.
async fn run_closed_loop(
    run: &Arc<LoadRun>,
    clients: usize,
    requests: usize,
    seed: u64,
) -> Vec<RequestOutcome> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..clients.min(requests) {
        let (run, next) = (Arc::clone(run), Arc::clone(&next));
        tasks.spawn(async move {
            let mut outcomes = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= requests {
                    return outcomes;
                }
                let Ok(request) = run.build_request(seed + index as u64) else {
                    return outcomes;
                };
                outcomes.push(run.run_request(&request, now()).await);
            }
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Open loop: requests are sent when due, however many are unanswered.
async fn run_open_loop(run: &Arc<LoadRun>, rate: f64, requests: usize) -> Vec<RequestOutcome> {
    let (mut tasks, mut outcomes) = (JoinSet::new(), Vec::with_capacity(requests));
    let start = now();
    for (index, offset) in poisson(rate, requests, run.client.options.seed)
        .into_iter()
        .enumerate()
    {
        let due = start + offset;
        let Ok(request) = run.build_request(index as u64) else {
            break;
        };
        tokio::time::sleep_until(due.into()).await;
        while let Some(done) = tasks.try_join_next() {
            outcomes.extend(done.ok());
        }
        if tasks.len() >= IN_FLIGHT_MAX {
            let late = now().saturating_duration_since(due);
            outcomes.push(RequestOutcome {
                late,
                trace: Err(Failure::Unsent),
            });
            continue;
        }
        let run = Arc::clone(run);
        tasks.spawn(async move { run.run_request(&request, due).await });
    }
    outcomes.extend(tasks.join_all().await);
    outcomes
}

/// SplitMix64 (Steele, Lea and Flood 2014): sufficient for arrivals and words, and portable.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// Arrival times of `count` requests after the start: a Poisson process of `rate` per second.
pub(super) fn poisson(rate: f64, count: usize, seed: u64) -> Vec<Duration> {
    let mut random = Random::new(seed);
    let mut at = 0.0;
    let mut next = || {
        at -= random.unit().ln() / rate;
        Duration::from_secs_f64(at)
    };
    (0..count).map(|_| next()).collect()
}

/// Short common English words: one token each in most large vocabularies.
const WORDS: [&str; 32] = [
    "river", "stone", "light", "green", "house", "water", "north", "small", "paper", "seven",
    "table", "cloud", "early", "sound", "plain", "glass", "round", "field", "night", "horse",
    "music", "white", "train", "bread", "clear", "point", "earth", "voice", "short", "blue",
    "wheel", "quiet",
];

/// Estimate of the number of tokens of a prompt, from the server's counts of two probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenEstimate {
    /// Tokens besides the words: chat template, BOS.
    pub(super) fixed: f64,
    /// Tokens per word.
    pub(super) each: f64,
}

/// One token per word, until the server has counted the probes.
impl Default for TokenEstimate {
    fn default() -> Self {
        Self {
            fixed: 0.0,
            each: 1.0,
        }
    }
}

impl TokenEstimate {
    /// Fits the estimate to two probes of (words, tokens); the default if the fit is not increasing.
    pub(super) fn of(a: (usize, u64), b: (usize, u64)) -> Self {
        let each = (b.1 as f64 - a.1 as f64) / (b.0 as f64 - a.0 as f64);
        if !each.is_finite() || each <= 0.0 {
            return Self::default();
        }
        Self {
            fixed: a.1 as f64 - each * a.0 as f64,
            each,
        }
    }

    /// Number of words for about `tokens` tokens; at least one.
    pub(super) fn word_count(&self, tokens: usize) -> usize {
        let words = ((tokens as f64 - self.fixed) / self.each).round();
        (words.max(1.0) as usize).min(super::options::PROMPT_MAX)
    }
}

/// Random text of `count` words.
pub(super) fn random_prompt(count: usize, random: &mut Random) -> String {
    let mut text = String::with_capacity(count * 6);
    for i in 0..count {
        if i > 0 {
            text.push(' ');
        }
        text.push_str(WORDS[(random.next() >> 59) as usize]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_arrivals_have_rate_and_deviation() {
        let due = poisson(50.0, 20_000, 7);
        assert!(due.is_sorted());
        let gaps: Vec<f64> = due
            .windows(2)
            .map(|w| (w[1] - w[0]).as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard deviation of an exponential distribution equals its mean.
        assert!((mean * 50.0 - 1.0).abs() < 0.03, "{mean}");
        assert!((spread.sqrt() * 50.0 - 1.0).abs() < 0.05, "{spread}");
    }

    #[test]
    fn seed_determines_arrivals() {
        assert_eq!(poisson(3.0, 9, 1), poisson(3.0, 9, 1));
        assert_ne!(poisson(3.0, 9, 1), poisson(3.0, 9, 2));
        // The first number of the published sequence for seed 0.
        assert_eq!(Random::new(0).next(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn probes_determine_the_number_of_words() {
        // Ten tokens of chat template, three tokens per word.
        let estimate = TokenEstimate::of((8, 34), (32, 106));
        assert_eq!(
            estimate,
            TokenEstimate {
                fixed: 10.0,
                each: 3.0
            }
        );
        assert_eq!(estimate.word_count(100), 30);
        assert_eq!(estimate.word_count(5), 1);
        assert_eq!(TokenEstimate::of((8, 0), (32, 0)), TokenEstimate::default());
        assert_eq!(TokenEstimate::default().word_count(7), 7);
    }

    #[test]
    fn prompts_have_the_requested_words_and_differ() {
        let mut random = Random::new(1);
        let (a, b) = (
            random_prompt(40, &mut random),
            random_prompt(40, &mut random),
        );
        assert_eq!(a.split(' ').count(), 40);
        assert_ne!(a, b);
    }
}
