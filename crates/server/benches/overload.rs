//! Twice what there is capacity for, over sockets: `cargo bench -p server --bench overload`.
//!
//! Arrivals do not wait for answers (open loop). The model sleeps through its steps, so the times are those of a
//! plant with a known capacity. Three phases: twice the capacity; long prompts, which are too slow for the target; twice
//! the capacity again. A share of the callers is polite: told when to come back, they do.
#![expect(clippy::print_stdout, reason = "the figures")]

mod load;
#[path = "../tests/support/mod.rs"]
mod support;

use engine::EngineConfig;
use engine::fake::{FakeConfig, Gate};
use load::client::Client;
use load::figures::{Random, ms, quantile};
use load::paced::{Pace, Paced};
use load::{argument, client_runtime, now};
use server::{AdaptiveLimits, Keys, QueueLimits, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::Rig;

const PATH: &str = "/v1/chat/completions";
/// Tokens of an answer.
const ANSWER: usize = 50;
/// Letters of a prompt, each a token.
const PROMPT: usize = 100;
const PROMPT_LONG: usize = 2000;
/// Answers per second at the largest limit, nearly: 50 steps of 50 sequences, and their prompts.
const CAPACITY: f64 = 80.0;
const TARGET_TTFT: Duration = Duration::from_millis(500);
/// What a polite caller tries at most.
const TRIES: usize = 8;

fn rig() -> Rig {
    let model = FakeConfig {
        eos_probability: 0.0,
        dims: model::Dims {
            context_max: 4096,
            pages: 1 << 15,
            ..support::fake().dims
        },
        ..support::fake()
    };
    let pace = Pace {
        step: Duration::from_millis(2),
        sequence: Duration::from_micros(100),
        prompt_token: Duration::from_micros(20),
    };
    let config = ServerConfig {
        adaptive_limits: AdaptiveLimits {
            adjustment_interval: Duration::from_secs(1),
            target_ttft: TARGET_TTFT,
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: 128,
            timeout: Duration::from_secs(5),
            ..QueueLimits::default()
        },
        connections_per_ip_max: 4096,
        ..support::config()
    };
    let model = Box::new(Paced::new(model, pace));
    let gate = Arc::new(Gate::default());
    let mut rig = Rig::over(
        model,
        gate,
        EngineConfig::default(),
        config,
        Arc::new(Keys::anonymous()),
    );
    rig.ready();
    rig
}

/// What became of one caller.
#[derive(Debug, Default)]
struct Story {
    /// Of the try that was let in, at once or from the queue.
    ttft: Option<Duration>,
    /// From the request to the head of each refusal.
    refusals: Vec<Duration>,
    /// What it was told first, and how long it took to be let in; a polite one only.
    told: Option<Duration>,
    took: Option<Duration>,
    /// Endings of the answer: one, of whoever was let in.
    endings: usize,
    was_let_in: bool,
}

async fn caller(addr: SocketAddr, name: u64, prompt: usize, polite: bool) -> io::Result<Story> {
    let words = format!("{name:016x}{}", "x".repeat(prompt - 16));
    let body = serde_json::json!({
        "messages": [{"role": "user", "content": words}], "max_tokens": ANSWER, "stream": true,
        "ignore_eos": true,
    })
    .to_string();
    let (mut story, mut first) = (Story::default(), None);
    for _ in 0..TRIES {
        let asked = now();
        let mut client = Client::connect(addr).await?;
        let head = client.post(PATH, &body).await?;
        if head.status == 200 {
            story.was_let_in = true;
            story.took = first.map(|first: Instant| asked - first);
            read(&mut client, &mut story).await?;
            return Ok(story);
        }
        assert_eq!(head.status, 503);
        story.refusals.push(asked.elapsed());
        let Some(told) = head.retry_after.filter(|_| polite) else {
            return Ok(story);
        };
        first = first.or(Some(now()));
        story.told = story.told.or(Some(told));
        tokio::time::sleep(told).await;
    }
    Ok(story)
}

/// The first token counts from the permit: what comes first after that names the role.
async fn read(client: &mut Client, story: &mut Story) -> io::Result<()> {
    let mut begun = now();
    loop {
        let (mut begins, mut speaks, mut ends) = (false, false, 0);
        let more = client
            .chunk(|bytes| {
                let text = String::from_utf8_lossy(bytes);
                begins = text.contains("\"role\"");
                speaks = text.contains("\"delta\":{\"content\":");
                ends = text.matches("[DONE]").count() + text.matches("\"error\"").count();
            })
            .await?;
        story.endings += ends;
        if begins {
            begun = now();
        }
        if speaks && story.ttft.is_none() {
            story.ttft = Some(begun.elapsed());
        }
        if !more {
            return Ok(());
        }
    }
}

type Stories = Arc<Mutex<Vec<io::Result<Story>>>>;

struct Phase {
    name: &'static str,
    per_second: f64,
    prompt: usize,
    seconds: f64,
}

/// Callers come for a time; samples the limit meanwhile.
async fn phase(
    addr: SocketAddr,
    phase: &Phase,
    polite: f64,
    random: &mut Random,
) -> io::Result<Vec<Story>> {
    let stories: Stories = Arc::default();
    let (end, mut next) = (now() + Duration::from_secs_f64(phase.seconds), now());
    let (mut limits, mut tasks) = (Vec::new(), Vec::new());
    let mut watcher = Client::connect(addr).await?;
    let mut look = now();
    while next < end {
        tokio::time::sleep_until(next.into()).await;
        let (name, is_polite) = (random.bits(), random.unit() < polite);
        let (stories, prompt) = (Arc::clone(&stories), phase.prompt);
        tasks.push(tokio::spawn(async move {
            let story = caller(addr, name, prompt, is_polite).await;
            stories
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(story);
        }));
        next += random.gap(phase.per_second);
        if now() >= look {
            look = now() + Duration::from_millis(250);
            limits.push(limit(&mut watcher).await?);
        }
    }
    let last = limits.last().copied().unwrap_or_default();
    let (low, high) = (limits.iter().min(), limits.iter().max());
    println!(
        "{}: {:.0}/s for {:.0} s; limit from {} to {last} (least {}, most {})",
        phase.name,
        phase.per_second,
        phase.seconds,
        limits.first().copied().unwrap_or_default(),
        low.copied().unwrap_or_default(),
        high.copied().unwrap_or_default(),
    );
    for task in tasks {
        task.await.map_err(io::Error::other)?;
    }
    let mut stories = stories.lock().unwrap_or_else(PoisonError::into_inner);
    stories.drain(..).collect()
}

async fn limit(watcher: &mut Client) -> io::Result<usize> {
    let text = watcher.get("/metrics").await?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("millrace_admission_streams{state=\"limit\"} "));
    Ok(line.and_then(|n| n.parse().ok()).unwrap_or_default())
}

/// Prints what became of all, and whether each that was let in ended once.
fn tell(stories: &[Story]) -> bool {
    let let_in = stories.iter().filter(|s| s.was_let_in).count();
    let mut ttft: Vec<_> = stories.iter().filter_map(|s| s.ttft).collect();
    let mut refusals: Vec<_> = stories.iter().flat_map(|s| s.refusals.clone()).collect();
    let told: Vec<_> = stories
        .iter()
        .filter_map(|s| Some((s.told?, s.took)))
        .collect();
    let step = Duration::from_millis(50);
    let is_true = |(told, took): &&(Duration, Option<Duration>)| {
        took.is_some_and(|took| took <= 2 * *told + step)
    };
    let honest = told.iter().filter(is_true).count();
    let mut times: Vec<_> = told.iter().map(|(told, _)| *told).collect();
    println!(
        "  {} callers, {let_in} let in: TTFT from the permit p50 {:.0} p95 {:.0} ms (target {:.0})",
        stories.len(),
        ms(quantile(&mut ttft, 0.5)),
        ms(quantile(&mut ttft, 0.95)),
        ms(TARGET_TTFT),
    );
    println!(
        "  {} refusals, answered in p50 {:.2} p99 {:.2} ms",
        refusals.len(),
        ms(quantile(&mut refusals, 0.5)),
        ms(quantile(&mut refusals, 0.99)),
    );
    println!(
        "  {} polite were told p50 {:.0} p95 {:.0} ms; true within 2x for {:.1} %",
        told.len(),
        ms(quantile(&mut times, 0.5)),
        ms(quantile(&mut times, 0.95)),
        100.0 * honest as f64 / told.len().max(1) as f64,
    );
    let odd = stories
        .iter()
        .filter(|s| s.endings != usize::from(s.was_let_in))
        .count();
    println!("  {odd} without exactly one ending");
    odd == 0
}

fn main() -> io::Result<()> {
    let (seconds, polite) = (argument("--seconds", 30.0), argument("--polite", 0.05));
    let rig = rig();
    let runtime = client_runtime()?;
    let mut random = Random(argument("--seed", 1.0) as u64);
    let over = |name| Phase {
        name,
        per_second: 2.0 * CAPACITY,
        prompt: PROMPT,
        seconds,
    };
    let long = Phase {
        name: "long prompts",
        per_second: CAPACITY / 4.0,
        prompt: PROMPT_LONG,
        seconds: seconds / 2.0,
    };
    let mut good = true;
    for next in [
        over("twice the capacity"),
        long,
        over("twice the capacity again"),
    ] {
        let stories = runtime.block_on(phase(rig.addr, &next, polite, &mut random))?;
        good &= tell(&stories);
    }
    rig.wait_until_empty();
    match good {
        true => Ok(()),
        false => Err(io::Error::other("a stream was lost or ended twice")),
    }
}
