//! The run: probes, warm-up, then the measured requests.

use super::arrivals::{Random, poisson};
use super::ask::Asker;
use super::figures::Outcome;
use super::options::{Arrivals, IN_FLIGHT_MAX, LoadError, PROMPT_MAX, REQUESTS_MAX, Wish};
use super::report::Report;
use super::story::{Failure, Story};
use super::words::{Measure, prompt};
use crate::clock::now;
use crate::process::Process;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

/// Words of the two probes that say how many tokens a word is.
const PROBES: [usize; 2] = [8, 40];
/// Prompts of warm-up and probes come from other seeds than the measured ones.
const WARMUP_SEED: u64 = 1 << 63;

/// Runs the load and says what came of it. One thread does everything, so that a client on the
/// server's own machine takes as little of it as it can.
///
/// # Errors
/// A wish out of bounds, or a server that does not answer even one request.
pub fn run(wish: Wish) -> Result<Report, LoadError> {
    check(&wish)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(LoadError::of)?.block_on(measured(wish))
}

fn check(wish: &Wish) -> Result<(), LoadError> {
    let bound = |name: &str, given: usize, least: usize, most: usize| {
        if (least..=most).contains(&given) {
            return Ok(());
        }
        Err(LoadError(format!(
            "{name} is {given}: from {least} to {most} is possible"
        )))
    };
    bound("requests", wish.requests, 1, REQUESTS_MAX)?;
    bound("warmup", wish.warmup, 0, REQUESTS_MAX)?;
    bound("prompt", wish.prompt_tokens, 1, PROMPT_MAX)?;
    match wish.arrivals {
        Arrivals::Clients(clients) => bound("clients", clients, 1, IN_FLIGHT_MAX),
        Arrivals::Poisson { rate } if rate.is_finite() && rate > 0.0 => Ok(()),
        Arrivals::Poisson { rate } => Err(LoadError(format!("rate is {rate}: must be above 0"))),
    }
}

async fn measured(wish: Wish) -> Result<Report, LoadError> {
    let asker = Asker::new(wish).await?;
    let measure = probe(&asker).await?;
    let crew = Arc::new(Crew { asker, measure });
    let wish = &crew.asker.wish;
    let clients = match wish.arrivals {
        Arrivals::Clients(clients) => clients,
        Arrivals::Poisson { .. } => wish.warmup.clamp(1, IN_FLIGHT_MAX),
    };
    closed(&crew, clients, wish.warmup, WARMUP_SEED).await;
    let cpu = |process: Process| process.cpu_time();
    let server = wish.pid.map(Process::Pid);
    let before = (server.and_then(cpu), cpu(Process::Own));
    let start = now();
    let outcomes = match wish.arrivals {
        Arrivals::Clients(clients) => closed(&crew, clients, wish.requests, 0).await,
        Arrivals::Poisson { rate } => open(&crew, rate, wish.requests).await,
    };
    let took = now() - start;
    let spent =
        |before: Option<_>, process: Option<Process>| process.and_then(cpu)?.checked_sub(before?);
    let (server_cpu, own_cpu) = (spent(before.0, server), spent(before.1, Some(Process::Own)));
    let mut report = Report::of(wish, crew.asker.model(), &outcomes, took);
    report.server_resident_bytes = server.and_then(Process::resident_bytes);
    report.server_resident_peak_bytes = server.and_then(Process::resident_peak_bytes);
    report.per_token(server_cpu, own_cpu);
    Ok(report)
}

/// Two short requests, which also say at once if the server cannot be used.
async fn probe(asker: &Asker) -> Result<Measure, LoadError> {
    let mut points = Vec::new();
    for (i, words) in PROBES.into_iter().enumerate() {
        let text = prompt(words, &mut Random::new(WARMUP_SEED + i as u64));
        let request = asker.asking(&text, 1)?;
        let tokens = match asker.ask(&request, now()).await {
            Ok(story) => story.usage.map_or(0, |usage| usage.prompt_tokens),
            // A token that cannot be seen yet, such as the beginning of a character.
            Err(Failure::Empty) => 0,
            Err(failure) => {
                let (uri, host) = (request.uri(), &asker.wish.target.authority);
                return Err(LoadError(format!(
                    "POST {uri} at {host}: {}",
                    failure.name()
                )));
            }
        };
        let tokens = match tokens {
            0 => asker.prompt_tokens(&text).await.unwrap_or(0),
            told => told,
        };
        points.push((words, tokens));
    }
    Ok(Measure::of(points[0], points[1]))
}

struct Crew {
    asker: Asker,
    measure: Measure,
}

impl Crew {
    fn request(&self, index: u64) -> Result<Request<Full<Bytes>>, LoadError> {
        let wish = &self.asker.wish;
        let mut random = Random::new(wish.seed.wrapping_add(index.wrapping_mul(0x1000_0001)));
        let words = self.measure.words(wish.prompt_tokens);
        self.asker
            .asking(&prompt(words, &mut random), wish.max_tokens.get())
    }

    async fn outcome(&self, request: &Request<Full<Bytes>>, due: Instant) -> Outcome {
        let sent = now();
        let story: Result<Story, Failure> = self.asker.ask(request, due).await;
        Outcome {
            late: sent.saturating_duration_since(due),
            story,
        }
    }
}

/// `clients` clients share `requests` requests; each sends its next when it was answered.
async fn closed(crew: &Arc<Crew>, clients: usize, requests: usize, seed: u64) -> Vec<Outcome> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..clients.min(requests) {
        let (crew, next) = (Arc::clone(crew), Arc::clone(&next));
        tasks.spawn(async move {
            let mut outcomes = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= requests {
                    return outcomes;
                }
                let Ok(request) = crew.request(seed + index as u64) else {
                    return outcomes;
                };
                outcomes.push(crew.outcome(&request, now()).await);
            }
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Requests begin when they are due, however many are still unanswered.
async fn open(crew: &Arc<Crew>, rate: f64, requests: usize) -> Vec<Outcome> {
    let (mut tasks, mut outcomes) = (JoinSet::new(), Vec::with_capacity(requests));
    let start = now();
    for (index, offset) in poisson(rate, requests, crew.asker.wish.seed)
        .into_iter()
        .enumerate()
    {
        let due = start + offset;
        let Ok(request) = crew.request(index as u64) else {
            break;
        };
        tokio::time::sleep_until(due.into()).await;
        while let Some(done) = tasks.try_join_next() {
            outcomes.extend(done.ok());
        }
        if tasks.len() >= IN_FLIGHT_MAX {
            let late = now().saturating_duration_since(due);
            outcomes.push(Outcome {
                late,
                story: Err(Failure::Unsent),
            });
            continue;
        }
        let crew = Arc::clone(crew);
        tasks.spawn(async move { crew.outcome(&request, due).await });
    }
    outcomes.extend(tasks.join_all().await);
    outcomes
}
