//! What the server costs beside the model: `cargo bench -p millrace --bench layer`.
//!
//! A model of next to no arithmetic (2 layers of 64, a vocabulary of 4096), and 1, 16, 64 and 256 clients that read one chat
//! after the other. CPU per token by kind of thread, as the kernel counts it; the clients are in
//! another process and not in the figures, but they take their part of the machine.
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../../server/benches/load/mod.rs"]
mod load;
mod serving;

use load::client::Client;
use load::figures::{ms, quantile};
use load::{argument, client_runtime, now};
use serving::Serving;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/chat/completions";
const ANSWER: usize = 200;
const CLIENTS: [usize; 4] = [1, 16, 64, 256];
/// Threads by their names' beginnings.
const THREADS: [&str; 4] = ["io-", "engine", "kernel", ""];
const TOKENS: &str = "millrace_generated_tokens_total";
const SETTINGS: [(&str, &str); 7] = [
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_ADAPTIVE_LIMITS_MAX_STREAMS", "256"),
    ("MILLRACE_ENGINE_SEQUENCES_MAX", "256"),
    ("MILLRACE_SERVER_CONNECTIONS_PER_IP_MAX", "1024"),
    ("MILLRACE_MODEL_THREADS", "1"),
    ("MILLRACE_MODEL_CONTEXT", "1024"),
    ("MILLRACE_LOG_FILTER", "warn"),
];

/// Reads answers until it is time; gives the times to the first text, and counts chunks.
async fn reader(addr: SocketAddr, n: usize, until: Instant) -> io::Result<(Vec<Duration>, u64)> {
    let body = serde_json::json!({
        "messages": [{"role": "user", "content": format!("client {n}")}], "stream": true,
        "max_tokens": ANSWER, "ignore_eos": true, "temperature": 0,
    })
    .to_string();
    let (mut firsts, mut chunks) = (Vec::new(), 0);
    let mut client = Client::connect(addr).await?;
    while now() < until {
        let (asked, mut first) = (now(), None);
        let head = client.post(PATH, &body).await?;
        if head.status != 200 {
            return Err(io::Error::other(format!("status {}", head.status)));
        }
        while client.chunk(|_| chunks += 1).await? {
            first.get_or_insert_with(|| asked.elapsed());
        }
        firsts.extend(first);
    }
    Ok((firsts, chunks))
}

async fn row(serving: &Serving, clients: usize, seconds: f64) -> io::Result<()> {
    let cpu = || THREADS.map(|thread| serving.process.cpu(thread));
    let (tokens, before, began) = (serving.metric(TOKENS).await?, cpu(), now());
    let until = began + Duration::from_secs_f64(seconds);
    let tasks: Vec<_> = (0..clients)
        .map(|n| tokio::spawn(reader(serving.addr, n, until)))
        .collect();
    let (mut firsts, mut chunks) = (Vec::new(), 0);
    for task in tasks {
        let (more, count) = task.await.map_err(io::Error::other)??;
        firsts.extend(more);
        chunks += count;
    }
    let (after, time) = (cpu(), began.elapsed().as_secs_f64());
    let tokens = serving.metric(TOKENS).await? - tokens;
    let us = |i: usize| (after[i] - before[i]).as_secs_f64() * 1e6 / tokens;
    println!(
        "| {clients} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | {:.2} |",
        tokens / time,
        us(0),
        us(1),
        us(2),
        us(3),
        ms(quantile(&mut firsts, 0.5)),
        ms(quantile(&mut firsts, 0.99)),
        tokens / chunks as f64,
    );
    Ok(())
}

fn main() -> io::Result<()> {
    let seconds = argument("--seconds", 5.0);
    let serving = Serving::start("server-layer", &SETTINGS)?;
    println!(
        "| clients | tokens/s | io us | engine us | kernels us | process us | head p50 ms | p99 ms | tokens per frame |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    client_runtime()?.block_on(async {
        for _ in 0..argument("--rounds", 1.0) as u32 {
            for clients in CLIENTS {
                row(&serving, clients, seconds).await?;
            }
        }
        Ok(())
    })
}
