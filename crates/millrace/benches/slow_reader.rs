//! One client that never reads, beside 31 that do: `cargo bench -p millrace --bench slow_reader`.
//!
//! Rounds with and without it alternate. What the 31 must not notice: the time between their tokens; what the server
//! must not: its memory. (That the one takes no step of the model is a test: `crates/server/tests/slow_reader.rs`.)
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../../server/benches/load/mod.rs"]
mod load;
mod serving;

use load::client::Client;
use load::figures::{median, ms, quantile};
use load::{argument, client_runtime, now};
use serving::Serving;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/chat/completions";
const READERS: usize = 31;
/// Tokens of an answer: nearly the whole context.
const ANSWER: usize = 450;
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

/// (p50, p99, parked streams at the end)
async fn round(serving: &Serving, deaf: bool, seconds: f64) -> io::Result<(f64, f64, f64)> {
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
    Ok((
        ms(quantile(&mut gaps, 0.5)),
        ms(quantile(&mut gaps, 0.99)),
        parked,
    ))
}

fn main() -> io::Result<()> {
    let (rounds, seconds) = (
        argument("--rounds", 5.0) as usize,
        argument("--seconds", 6.0),
    );
    let serving = Serving::start("small-llama", &SETTINGS)?;
    client_runtime()?.block_on(async {
        round(&serving, true, 1.0).await?;
        println!("resident before: {} KiB", serving.process.resident() >> 10);
        let mut all = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for deaf in [false, true] {
                let (p50, p99, parked) = round(&serving, deaf, seconds).await?;
                let name = if deaf { "with" } else { "without" };
                println!("{name:>8}: between tokens p50 {p50:.3} p99 {p99:.3} ms; {parked} parked");
                all[usize::from(deaf)].push((p50, p99));
            }
        }
        println!("resident after: {} KiB", serving.process.resident() >> 10);
        let middle = |rows: &[(f64, f64)]| {
            let p50 = median(rows.iter().map(|row| row.0).collect());
            (p50, median(rows.iter().map(|row| row.1).collect()))
        };
        let (without, with) = (middle(&all[0]), middle(&all[1]));
        println!(
            "medians: without {:.3} / {:.3} ms, with {:.3} / {:.3} ms: p99 {:+.1} %",
            without.0,
            without.1,
            with.0,
            with.1,
            100.0 * (with.1 / without.1 - 1.0)
        );
        Ok(())
    })
}
