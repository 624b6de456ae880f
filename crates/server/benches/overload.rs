//! Twice what there is capacity for, over sockets: `cargo bench -p server --bench overload`.
//!
//! Arrivals do not wait for answers (open loop). The model sleeps through its steps, so the times are those of a
//! plant with a known capacity. Three phases: twice the capacity; long prompts, whose own time is longer than the target and
//! lowers no limit; twice the capacity again. A share of the callers is polite: told when to come back, they do. Another is hasty: their
//! deadline is one that cannot be met while others wait, which they should be told at once.
//! `--seconds 10 --polite 0.25 --hasty 0.05 --deadline-ms 20`; the last lines are rows for measurements/notes.md.
#![expect(clippy::print_stdout, reason = "the figures")]

mod load;
#[path = "load/stories.rs"]
mod stories;
#[path = "../tests/it/support/mod.rs"]
mod support;

use engine::EngineConfig;
use engine::fake::{FakeConfig, Gate};
use load::client::Client;
use load::figures::Random;
use load::paced::{Pace, Paced};
use load::{argument, client_runtime, now};
use server::{AdaptiveLimits, Keys, QueueLimits, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stories::{Manner, Story, Summary};
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

async fn caller(addr: SocketAddr, name: u64, prompt: usize, manner: Manner) -> io::Result<Story> {
    let words = format!("{name:016x}{}", "x".repeat(prompt - 16));
    let body = serde_json::json!({
        "messages": [{"role": "user", "content": words}], "max_tokens": ANSWER, "stream": true,
        "ignore_eos": true,
    })
    .to_string();
    let fields = match manner {
        Manner::Hasty(deadline) => format!("request-timeout-ms: {}\r\n", deadline.as_millis()),
        Manner::Plain | Manner::Polite => String::new(),
    };
    let (mut story, mut first) = (Story::default(), None);
    story.manner = manner;
    for _ in 0..TRIES {
        let asked = now();
        let mut client = Client::connect(addr).await?;
        let head = client.post_with(PATH, &fields, &body).await?;
        if head.status == 200 {
            story.was_let_in = true;
            story.took = first.map(|first: Instant| asked - first);
            read(&mut client, asked, &mut story).await?;
            return Ok(story);
        }
        let answered = asked.elapsed();
        let said = client.text(head).await?;
        assert!(matches!(head.status, 503 | 504), "{} {said}", head.status);
        if said.contains("deadline_unattainable") {
            story.unattainable = Some(answered);
        } else {
            story.refusals.push(answered);
        }
        let Some(told) = head.retry_after.filter(|_| manner == Manner::Polite) else {
            return Ok(story);
        };
        first = first.or(Some(now()));
        story.told = story.told.or(Some(told));
        tokio::time::sleep(told).await;
    }
    Ok(story)
}

/// The first token counts from the permit, too: what comes first after that names the role.
async fn read(client: &mut Client, asked: Instant, story: &mut Story) -> io::Result<()> {
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
            story.from_arrival = Some(asked.elapsed());
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

/// Who comes.
#[derive(Clone, Copy)]
struct Crowd {
    /// The shares of those.
    polite: f64,
    hasty: f64,
    /// What the hasty have.
    deadline: Duration,
}

impl Crowd {
    fn manner(&self, random: &mut Random) -> Manner {
        let at = random.unit();
        match () {
            () if at < self.polite => Manner::Polite,
            () if at < self.polite + self.hasty => Manner::Hasty(self.deadline),
            () => Manner::Plain,
        }
    }
}

/// Callers come for a time; samples the limit meanwhile, and gives how it went.
async fn phase(
    addr: SocketAddr,
    phase: &Phase,
    crowd: Crowd,
    random: &mut Random,
) -> io::Result<(Vec<Story>, String)> {
    let stories: Stories = Arc::default();
    let (end, mut next) = (now() + Duration::from_secs_f64(phase.seconds), now());
    let (mut limits, mut tasks) = (Vec::new(), Vec::new());
    let mut watcher = Client::connect(addr).await?;
    let mut look = now();
    while next < end {
        tokio::time::sleep_until(next.into()).await;
        let (name, manner) = (random.bits(), crowd.manner(random));
        let (stories, prompt) = (Arc::clone(&stories), phase.prompt);
        tasks.push(tokio::spawn(async move {
            let story = caller(addr, name, prompt, manner).await;
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
    let at = |limit: Option<&usize>| limit.copied().unwrap_or_default();
    let limit = format!(
        "{} → {} (least {}, most {})",
        at(limits.first()),
        at(limits.last()),
        at(limits.iter().min()),
        at(limits.iter().max()),
    );
    println!(
        "{}: {:.0}/s for {:.0} s; limit {limit}",
        phase.name, phase.per_second, phase.seconds
    );
    for task in tasks {
        task.await.map_err(io::Error::other)?;
    }
    let mut stories = stories.lock().unwrap_or_else(PoisonError::into_inner);
    let stories: io::Result<Vec<Story>> = stories.drain(..).collect();
    Ok((stories?, limit))
}

async fn limit(watcher: &mut Client) -> io::Result<usize> {
    let text = watcher.get("/metrics").await?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("millrace_admission_streams{state=\"limit\"} "));
    Ok(line.and_then(|n| n.parse().ok()).unwrap_or_default())
}

/// What happens, one after the other.
fn phases(seconds: f64) -> [Phase; 3] {
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
    [
        over("twice the capacity"),
        long,
        over("twice the capacity again"),
    ]
}

fn main() -> io::Result<()> {
    let crowd = Crowd {
        polite: argument("--polite", 0.05),
        hasty: argument("--hasty", 0.05),
        deadline: Duration::from_secs_f64(argument("--deadline-ms", 20.0) / 1e3),
    };
    let rig = rig();
    let runtime = client_runtime()?;
    let mut random = Random(argument("--seed", 1.0) as u64);
    let (mut odd, mut rows) = (0, Vec::new());
    for next in phases(argument("--seconds", 30.0)) {
        let (stories, limit) = runtime.block_on(phase(rig.addr, &next, crowd, &mut random))?;
        let mut summary = Summary::of(&stories);
        summary.print(TARGET_TTFT);
        let label = format!(
            "{}, prompts of {}, {:.0}/s",
            next.name, next.prompt, next.per_second
        );
        rows.push(summary.row(&label, &limit));
        odd += summary.odd;
    }
    rig.wait_until_empty();
    rows.iter().for_each(|row| println!("{row}"));
    match odd {
        0 => Ok(()),
        _ => Err(io::Error::other("a stream was lost or ended twice")),
    }
}
