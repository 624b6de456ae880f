//! A prompt of 32,000 tokens beside eight streams that generate: `cargo bench -p millrace --bench long_prompt -- --prompt 32000`.
//!
//! A model of 0.1 B parameters, so that it takes minutes and not an hour. Printed: the time between two tokens of the
//! eight without the prompt and while it is computed. Fails where the p99 is more than one and a half times
//! `engine.step_target_ms`, to which a step is cut that others wait for (or five quarters of what it takes without a
//! prompt, where that is more: `engine::pace`); the half is for what a machine does besides.
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../../server/benches/load/mod.rs"]
mod load;
mod serving;

use load::client::Client;
use load::figures::{Random, ms, quantile};
use load::{argument, client_runtime, now};
use serde_json::json;
use serving::Serving;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATH: &str = "/v1/completions";
const STREAMS: usize = 8;
/// Tokens of an answer of the eight; then they ask again.
const ANSWER: usize = 1000;
const VOCAB: usize = 32_000;
/// A twelfth of the parameters of Llama 3.2 1B, and a context for the prompt.
const SHAPE: [&str; 20] = [
    "--preset",
    "small-llama",
    "--quant",
    "Q4_K_M",
    "--dim",
    "768",
    "--layers",
    "12",
    "--heads",
    "12",
    "--kv-heads",
    "4",
    "--head-dim",
    "64",
    "--ffn",
    "2048",
    "--vocab",
    "32000",
    "--train-context",
    "65536",
];
const STEP_TARGET_MS: f64 = 100.0;
/// How much longer than its target a step may be, at p99.
const BESIDES: f64 = 1.5;
const SETTINGS: [(&str, &str); 8] = [
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_ADAPTIVE_LIMITS_MAX_STREAMS", "16"),
    ("MILLRACE_ENGINE_STEP_TARGET_MS", "100"),
    ("MILLRACE_MODEL_CONTEXT", "65536"),
    ("MILLRACE_MODEL_KV_MIB", "1024"),
    ("MILLRACE_CLOCKS_FIRST_TOKEN_MS", "0"),
    ("MILLRACE_CLOCKS_TOTAL_MS", "0"),
    ("MILLRACE_LOG_FILTER", "warn"),
];

/// When a frame came, and how long after the one before it.
type Gap = (Instant, Duration);

/// Reads answers until it is told to stop.
async fn reader(addr: SocketAddr, n: usize, stop: Arc<AtomicBool>) -> io::Result<Vec<Gap>> {
    let mut gaps = Vec::new();
    let body = json!({
        "prompt": format!("client {n}"), "stream": true, "max_tokens": ANSWER, "ignore_eos": true, "seed": n,
    })
    .to_string();
    while !stop.load(Ordering::Relaxed) {
        let mut client = Client::connect(addr).await?;
        expect_taken(client.post(PATH, &body).await?.status)?;
        let mut last = None;
        while client.chunk(|_| ()).await? && !stop.load(Ordering::Relaxed) {
            let at = now();
            gaps.extend(last.map(|last| (at, at - last)));
            last = Some(at);
        }
    }
    Ok(gaps)
}

/// Asks with a prompt of so many tokens; from when until when it was computed.
async fn long_prompt(addr: SocketAddr, tokens: usize) -> io::Result<Range<Instant>> {
    let mut random = Random(7);
    let ids: Vec<usize> = (0..tokens)
        .map(|_| 300 + random.below(VOCAB - 300))
        .collect();
    let body = json!({"prompt": ids, "stream": true, "max_tokens": 1, "ignore_eos": true});
    let mut client = Client::connect(addr).await?;
    let asked = now();
    expect_taken(client.post(PATH, &body.to_string()).await?.status)?;
    let mut speaks = false;
    while !speaks {
        let more = client.chunk(|bytes| speaks = bytes.windows(7).any(|at| at == b"\"text\":"));
        if !more.await? {
            return Err(io::Error::other("it ended without a token"));
        }
    }
    Ok(asked..now())
}

fn expect_taken(status: u16) -> io::Result<()> {
    match status {
        200 => Ok(()),
        status => Err(io::Error::other(format!("status {status}"))),
    }
}

/// p50 and p99 of those in this time, in milliseconds.
fn figures(label: &str, gaps: &[Gap], time: &Range<Instant>) -> (f64, f64) {
    let inside = gaps.iter().filter(|(at, _)| time.contains(at));
    let mut inside: Vec<Duration> = inside.map(|(_, gap)| *gap).collect();
    let (p50, p99) = (
        ms(quantile(&mut inside, 0.5)),
        ms(quantile(&mut inside, 0.99)),
    );
    let longest = ms(quantile(&mut inside, 1.0));
    let (count, seconds) = (inside.len(), (time.end - time.start).as_secs_f64());
    println!(
        "{label:>8}: {seconds:.1} s, {count} gaps between tokens: p50 {p50:.1} p99 {p99:.1} longest {longest:.1} ms"
    );
    (p50, p99)
}

fn main() -> io::Result<()> {
    let (tokens, seconds) = (
        argument("--prompt", 32_000.0) as usize,
        argument("--seconds", 10.0),
    );
    let serving = Serving::shaped(&SHAPE, &SETTINGS)?;
    let (gaps, without, with) = client_runtime()?.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let reader = |n| tokio::spawn(reader(serving.addr, n, Arc::clone(&stop)));
        let tasks: Vec<_> = (0..STREAMS).map(reader).collect();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let began = now();
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        let without = began..now();
        let with = long_prompt(serving.addr, tokens).await?;
        stop.store(true, Ordering::Relaxed);
        let mut gaps = Vec::new();
        for task in tasks {
            gaps.extend(task.await.map_err(io::Error::other)??);
        }
        io::Result::Ok((gaps, without, with))
    })?;
    let (p50, _) = figures("without", &gaps, &without);
    let (_, p99_with) = figures("with", &gaps, &with);
    let bound = STEP_TARGET_MS.max(p50 * 5.0 / 4.0) * BESIDES;
    let rate = tokens as f64 / (with.end - with.start).as_secs_f64();
    println!(
        "a prompt of {tokens} tokens, {rate:.0}/s; p99 {p99_with:.1} ms of at most {bound:.1}"
    );
    if p99_with <= bound {
        Ok(())
    } else {
        Err(io::Error::other(
            "the eight waited longer than the settings allow",
        ))
    }
}
