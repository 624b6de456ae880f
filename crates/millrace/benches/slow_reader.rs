//! One client that never reads, beside 31 that do: `cargo bench -p millrace --bench slow_reader -- --rounds 80 --seconds 0.7`.
//!
//! The 31 read all the time. A round is two spans of it, one without the one and one while it is parked, in turn the one
//! and the other first: many short spans, so that what else the machine does falls on both. What the 31 must not notice:
//! the p99 of the time between their tokens, by more than a tenth; what the server must not: its memory. Fails when the rounds say that it is more, and says so where they differ too much to
//! say anything. (That the one takes no step of the model is a test: `crates/server/tests/it/slow_reader.rs`; what it holds
//! of memory another: `crates/server/tests/it/silent_memory.rs`.)
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../../server/benches/load/mod.rs"]
mod load;
mod serving;

use load::client::Client;
use load::figures::{Random, median_within, ms, quantile};
use load::{argument, client_runtime, now};
use serving::Serving;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// When a frame came, and how long after the one before it.
type Gap = (Instant, Duration);

/// Reads answers until it is told to stop.
async fn reader(addr: SocketAddr, n: usize, stop: Arc<AtomicBool>) -> io::Result<Vec<Gap>> {
    let mut gaps = Vec::new();
    let mut client = Client::connect(addr).await?;
    let body = ask(n).to_string();
    while !stop.load(Ordering::Relaxed) {
        client.post(PATH, &body).await?;
        let mut last = None;
        while client.chunk(|_| ()).await? {
            let at = now();
            gaps.extend(last.map(|last| (at, at - last)));
            last = Some(at);
        }
    }
    Ok(gaps)
}

/// Waits until so many sequences are parked.
async fn parked(serving: &Serving, count: f64) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let asked = now();
    while serving
        .metric("millrace_sequences{state=\"parked\"}")
        .await?
        != count
    {
        if asked.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{count} were never parked")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A span with the one parked, or without it.
async fn span(serving: &Serving, deaf: bool, length: Duration) -> io::Result<Range<Instant>> {
    let never_reads = if deaf {
        let mut client = Client::narrow(serving.addr).await?;
        client.post(PATH, &ask_much()).await?;
        Some(client)
    } else {
        None
    };
    parked(serving, f64::from(u8::from(deaf))).await?;
    let from = now();
    tokio::time::sleep(length).await;
    let span = from..now();
    // Parked all the time: nobody ended it meanwhile.
    parked(serving, f64::from(u8::from(deaf))).await?;
    drop(never_reads);
    parked(serving, 0.0).await?;
    Ok(span)
}

/// Rounds of two spans: without and with.
type Rounds = Vec<[Range<Instant>; 2]>;

async fn rounds(serving: &Serving, count: usize, length: Duration) -> io::Result<Rounds> {
    let mut rounds = Vec::with_capacity(count);
    for round in 0..count {
        let first = round % 2 == 1;
        let one = span(serving, first, length).await?;
        let other = span(serving, !first, length).await?;
        rounds.push(if first { [other, one] } else { [one, other] });
    }
    Ok(rounds)
}

/// Those of these gaps, by time, that ended in this span.
fn within(gaps: &[Gap], span: &Range<Instant>) -> Vec<Duration> {
    let from = gaps.partition_point(|(at, _)| *at < span.start);
    let until = gaps.partition_point(|(at, _)| *at < span.end);
    gaps[from..until].iter().map(|(_, gap)| *gap).collect()
}

/// Prints what the rounds say; false when they say that it is more than a tenth.
fn tell(rounds: &Rounds, gaps: &[Gap]) -> bool {
    for (side, name) in ["without", "with"].into_iter().enumerate() {
        let mut all: Vec<Duration> = rounds
            .iter()
            .flat_map(|round| within(gaps, &round[side]))
            .collect();
        let [p50, p99] = [0.5, 0.99].map(|share| ms(quantile(&mut all, share)));
        println!(
            "{name:>8}: {} gaps; p50 {p50:.3} p99 {p99:.3} ms",
            all.len()
        );
    }
    let ratio = |share: f64| {
        let of = |span| ms(quantile(&mut within(gaps, span), share));
        let ratios: Vec<f64> = rounds.iter().map(|[a, b]| of(b) / of(a)).collect();
        median_within(&ratios, &mut Random(1))
    };
    let (middle, low, high) = ratio(0.5);
    println!("p50 with / without: {middle:.3} (95 %: {low:.3} to {high:.3})");
    let (middle, low, high) = ratio(0.99);
    let says = match () {
        () if high <= RATIO_MAX => "within 10 %",
        () if low > RATIO_MAX => "more than 10 %",
        () => "no verdict on 10 %: rounds differ too much",
    };
    println!("p99 with / without: {middle:.3} (95 %: {low:.3} to {high:.3}): {says}");
    low <= RATIO_MAX
}

fn main() -> io::Result<()> {
    let count = argument("--rounds", 80.0) as usize;
    let length = Duration::from_secs_f64(argument("--seconds", 0.7));
    let serving = Serving::start("small-llama", &SETTINGS)?;
    let (rounds, gaps) = client_runtime()?.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let reader = |n| tokio::spawn(reader(serving.addr, n, Arc::clone(&stop)));
        let readers: Vec<_> = (0..READERS).map(reader).collect();
        tokio::time::sleep(Duration::from_secs(3)).await;
        span(&serving, true, length).await?;
        println!("resident before: {} KiB", serving.process.resident() >> 10);
        let rounds = rounds(&serving, count, length).await?;
        println!("resident after: {} KiB", serving.process.resident() >> 10);
        stop.store(true, Ordering::Relaxed);
        let mut gaps = Vec::new();
        for reader in readers {
            gaps.extend(reader.await.map_err(io::Error::other)??);
        }
        gaps.sort_unstable();
        io::Result::Ok((rounds, gaps))
    })?;
    if tell(&rounds, &gaps) {
        Ok(())
    } else {
        Err(io::Error::other("who never reads slowed the others down"))
    }
}
