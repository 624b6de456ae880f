//! One client that never reads, beside 31 that do: `cargo bench -p millrace --bench slow_reader -- --rounds 10 --seconds 4`.
//!
//! A round is a pair: without it and with it, in turn one and the other first, so that what the machine does meanwhile
//! falls on both. What the 31 must not notice: the p99 of the time between their tokens, by more than a tenth; what the
//! server must not: its memory. Fails when the rounds say that it is more, and says so where they differ too much to
//! say anything. (That the one takes no step of the model is a test: `crates/server/tests/slow_reader.rs`; what it holds
//! of memory another: `crates/server/tests/silent_memory.rs`.)
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../../server/benches/load/mod.rs"]
mod load;
mod serving;

use load::client::Client;
use load::figures::{Random, median, median_within, ms, quantile};
use load::{argument, client_runtime, now};
use serving::Serving;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/chat/completions";
const READERS: usize = 31;
/// Tokens of an answer: nearly the whole context.
const ANSWER: usize = 450;
/// The p99 of the others with it, over that without it, at most.
const RATIO_MAX: f64 = 1.1;
const SETTINGS: [(&str, &str); 5] = [
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_ADAPTIVE_LIMITS_MAX_STREAMS", "64"),
    ("MILLRACE_MODEL_THREADS", "1"),
    ("MILLRACE_MODEL_CONTEXT", "512"),
    ("MILLRACE_LOG_FILTER", "warn"),
];

fn ask(n: usize) -> serde_json::Value {
    serde_json::json!({
        "messages": [{"role": "user", "content": format!("client {n}")}], "stream": true,
        "max_tokens": ANSWER, "ignore_eos": true, "temperature": 0,
    })
}

/// Who will not read: with so much to each token that no buffer holds the answer.
fn ask_much() -> String {
    let mut ask = ask(READERS);
    ask["logprobs"] = true.into();
    ask["top_logprobs"] = 10.into();
    ask.to_string()
}

/// Reads until it is time; gives the times between frames that brought text, after a warm-up.
async fn reader(
    addr: SocketAddr,
    n: usize,
    from: Instant,
    until: Instant,
) -> io::Result<Vec<Duration>> {
    let mut gaps = Vec::new();
    let mut client = Client::connect(addr).await?;
    let body = ask(n).to_string();
    while now() < until {
        client.post(PATH, &body).await?;
        let mut last = None;
        while client.chunk(|_| ()).await? {
            let at = now();
            gaps.extend(last.filter(|_| at > from).map(|last| at - last));
            last = Some(at);
        }
    }
    Ok(gaps)
}

/// What one side of a round measured.
struct Side {
    gaps: Vec<Duration>,
    p50: f64,
    p99: f64,
}

async fn side(serving: &Serving, deaf: bool, seconds: f64) -> io::Result<Side> {
    let from = now() + Duration::from_secs_f64(seconds / 4.0);
    let until = from + Duration::from_secs_f64(seconds);
    let never_reads = match deaf {
        true => {
            let mut client = Client::narrow(serving.addr).await?;
            client.post(PATH, &ask_much()).await?;
            Some(client)
        }
        false => None,
    };
    let tasks: Vec<_> = (0..READERS)
        .map(|n| tokio::spawn(reader(serving.addr, n, from, until)))
        .collect();
    tokio::time::sleep_until((until - Duration::from_millis(100)).into()).await;
    let parked = serving
        .metric("millrace_sequences{state=\"parked\"}")
        .await?;
    let mut gaps = Vec::new();
    for task in tasks {
        gaps.extend(task.await.map_err(io::Error::other)??);
    }
    drop(never_reads);
    while serving.metric("millrace_answers_open").await? > 0.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (p50, p99) = (ms(quantile(&mut gaps, 0.5)), ms(quantile(&mut gaps, 0.99)));
    let (name, count) = (if deaf { "with" } else { "without" }, gaps.len());
    println!("{name:>8}: p50 {p50:.3} p99 {p99:.3} ms of {count} gaps; {parked} parked");
    if deaf && parked < 1.0 {
        return Err(io::Error::other("who never reads was not parked"));
    }
    Ok(Side { gaps, p50, p99 })
}

/// All rounds: each side of each.
async fn rounds(serving: &Serving, rounds: usize, seconds: f64) -> io::Result<[Vec<Side>; 2]> {
    let mut all = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let first = round % 2 == 1;
        for deaf in [first, !first] {
            all[usize::from(deaf)].push(side(serving, deaf, seconds).await?);
        }
    }
    Ok(all)
}

/// Prints what the rounds say; false when they say that it is more than a tenth.
fn tell(all: &[Vec<Side>; 2]) -> bool {
    for (name, sides) in ["without", "with"].into_iter().zip(all) {
        let mut gaps: Vec<_> = sides.iter().flat_map(|side| side.gaps.clone()).collect();
        println!(
            "{name:>8}: medians over rounds p50 {:.3} p99 {:.3} ms; all {} gaps together p50 {:.3} p99 {:.3} ms",
            median(sides.iter().map(|side| side.p50).collect()),
            median(sides.iter().map(|side| side.p99).collect()),
            gaps.len(),
            ms(quantile(&mut gaps, 0.5)),
            ms(quantile(&mut gaps, 0.99)),
        );
    }
    let pairs = all[0].iter().zip(&all[1]);
    let ratios: Vec<f64> = pairs
        .map(|(without, with)| with.p99 / without.p99)
        .collect();
    let (ratio, low, high) = median_within(&ratios, &mut Random(1));
    let says = match () {
        () if high <= RATIO_MAX => "within 10 %",
        () if low > RATIO_MAX => "more than 10 %",
        () => "no verdict on 10 %: rounds differ too much",
    };
    println!("p99 with / without: {ratio:.3} (95 %: {low:.3} to {high:.3}): {says}");
    low <= RATIO_MAX
}

fn main() -> io::Result<()> {
    let (count, seconds) = (
        argument("--rounds", 10.0) as usize,
        argument("--seconds", 4.0),
    );
    let serving = Serving::start("small-llama", &SETTINGS)?;
    let all = client_runtime()?.block_on(async {
        side(&serving, true, 1.0).await?;
        println!("resident before: {} KiB", serving.process.resident() >> 10);
        let all = rounds(&serving, count, seconds).await?;
        println!("resident after: {} KiB", serving.process.resident() >> 10);
        io::Result::Ok(all)
    })?;
    match tell(&all) {
        true => Ok(()),
        false => Err(io::Error::other("who never reads slowed the others down")),
    }
}
