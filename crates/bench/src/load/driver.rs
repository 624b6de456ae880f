//! A load run: probes, warm-up, then the measured requests.

use super::arrivals::{Random, poisson};
use super::client::LoadClient;
use super::options::{Arrivals, IN_FLIGHT_MAX, LoadError, LoadOptions, PROMPT_MAX, REQUESTS_MAX};
use super::prompt_text::{TokenEstimate, random_prompt};
use super::report::LoadReport;
use super::request_trace::{Failure, RequestTrace};
use super::statistics::RequestOutcome;
use crate::clock::now;
use crate::process::Process;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
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
