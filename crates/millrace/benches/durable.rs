//! What durability costs: `cargo bench -p millrace --bench durable -- --clients 32 --seconds 20 --rounds 3`.
//!
//! One server with a journal, and three kinds of clients in turn: plain streams, resumable streams without the journal
//! (`X-Stream-Durable: 0`), and durable streams. The shape of the model follows `--preset`; `server-layer`, the default, has next
//! to no arithmetic, so the share of the journal is larger than with any real model.
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
const SETTINGS: [(&str, &str); 7] = [
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_ADAPTIVE_LIMITS_MAX_STREAMS", "256"),
    ("MILLRACE_ENGINE_SEQUENCES_MAX", "256"),
    ("MILLRACE_SERVER_CONNECTIONS_PER_IP_MAX", "1024"),
    ("MILLRACE_MODEL_CONTEXT", "1024"),
    ("MILLRACE_STREAMS_RETENTION_S", "1"),
    ("MILLRACE_LOG_FILTER", "warn"),
];
/// Kinds of streams, with their header fields.
const KINDS: [(&str, &str); 3] = [
    ("plain", ""),
    (
        "resumable",
        "x-stream-resumable: 1\r\nx-stream-durable: 0\r\n",
    ),
    ("durable", "x-stream-resumable: 1\r\n"),
];
const TOKENS: &str = "millrace_generated_tokens_total";

/// One client's answers until it is time: times to the first chunk, and between chunks.
async fn reader(
    addr: SocketAddr,
    (number, fields, answer): (usize, &str, usize),
    until: Instant,
) -> io::Result<(Vec<Duration>, Vec<Duration>)> {
    let body = serde_json::json!({
        "messages": [{"role": "user", "content": format!("client {number}")}], "stream": true,
        "max_tokens": answer, "ignore_eos": true, "temperature": 0,
    })
    .to_string();
    let (mut firsts, mut gaps) = (Vec::new(), Vec::new());
    let mut client = Client::connect(addr).await?;
    while now() < until {
        let (asked, mut last) = (now(), None::<Instant>);
        let head = client.post_with(PATH, fields, &body).await?;
        if head.status != 200 {
            return Err(io::Error::other(format!("status {}", head.status)));
        }
        while client.chunk(|_| ()).await? {
            let at = now();
            match last.replace(at) {
                None => firsts.push(at - asked),
                Some(before) => gaps.push(at - before),
            }
        }
    }
    Ok((firsts, gaps))
}

/// One kind of streams for a while: tokens per second, CPU of the journal's threads in ns per token, and both quantiles.
async fn measure(serving: &Serving, fields: &'static str) -> io::Result<[f64; 5]> {
    let seconds = argument("--seconds", 10.0);
    let (clients, answer) = (
        argument("--clients", 32.0) as usize,
        argument("--answer", 200.0) as usize,
    );
    let cpu = || serving.process.cpu("journal").as_secs_f64();
    let (tokens, busy, start) = (serving.metric(TOKENS).await?, cpu(), now());
    let until = start + Duration::from_secs_f64(seconds);
    let readers =
        (0..clients).map(|n| tokio::spawn(reader(serving.addr, (n, fields, answer), until)));
    let (mut firsts, mut gaps) = (Vec::new(), Vec::new());
    for reader in readers.collect::<Vec<_>>() {
        let (first, gap) = reader.await.map_err(io::Error::other)??;
        firsts.extend(first);
        gaps.extend(gap);
    }
    let took = start.elapsed().as_secs_f64();
    let tokens = serving.metric(TOKENS).await? - tokens;
    let journal_ns = (cpu() - busy) * 1e9 / tokens;
    let [p50, p99] = [0.5, 0.99].map(|share| ms(quantile(&mut gaps, share)));
    Ok([
        tokens / took,
        journal_ns,
        ms(quantile(&mut firsts, 0.5)),
        p50,
        p99,
    ])
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--preset");
    let preset = arguments
        .nth(1)
        .unwrap_or_else(|| "server-layer".to_owned());
    let journal = std::env::temp_dir().join(format!("millrace-durable-{}", std::process::id()));
    let folder = journal.display().to_string();
    let settings: Vec<_> = SETTINGS
        .into_iter()
        .chain([("MILLRACE_JOURNAL_DIRECTORY", &*folder)])
        .collect();
    let serving = Serving::start(&preset, &settings)?;
    println!(
        "| streams | tokens/s | journal CPU ns/token | first chunk p50 ms | gap p50 ms | gap p99 ms |"
    );
    println!("|---|---|---|---|---|---|");
    let mut rates = [const { Vec::new() }; KINDS.len()];
    client_runtime()?.block_on(async {
        for _ in 0..argument("--rounds", 3.0) as usize {
            for ((kind, fields), rates) in KINDS.into_iter().zip(&mut rates) {
                let [rate, journal, first, p50, p99] = measure(&serving, fields).await?;
                println!(
                    "| {kind} | {rate:.0} | {journal:.0} | {first:.1} | {p50:.2} | {p99:.2} |"
                );
                rates.push(rate);
            }
        }
        io::Result::Ok(())
    })?;
    let [plain, resumable, durable] = rates.map(median);
    println!(
        "durable / plain {:.3}, durable / resumable {:.3}",
        durable / plain,
        durable / resumable
    );
    drop(serving);
    std::fs::remove_dir_all(journal)
}
