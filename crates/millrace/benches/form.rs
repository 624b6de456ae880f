//! What a form of answers costs the step: `cargo bench -p millrace --bench form`.
//!
//! The shape of Qwen 3 0.6B in Q8_0, and eight clients that read one chat after the other: free, then in each of
//! three forms, in turn on one server. Time per token of a stream from the first chunk of an answer to its last,
//! as all eight decode together; the ratio is what masks and their sampling cost, end to end. Two of the forms
//! leave a choice everywhere, so that each token is a step; the third has names and punctuation that are
//! forced, which take none.
#![expect(clippy::print_stdout, reason = "the figures")]

#[path = "../../server/benches/load/mod.rs"]
mod load;
mod serving;

use load::client::Client;
use load::figures::{ms, quantile};
use load::{argument, client_runtime, now};
use serde_json::{Value, json};
use serving::Serving;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/chat/completions";
const CLIENTS: usize = 8;
/// Tokens of an answer: neither kind ends before.
const ANSWER: u32 = 100;
const TOKENS: &str = "millrace_generated_tokens_total";
const FORCED: &str = "millrace_forced_tokens_total";
const SETTINGS: [(&str, &str); 3] = [
    ("MILLRACE_ADAPTIVE_LIMITS_ENABLED", "false"),
    ("MILLRACE_MODEL_CONTEXT", "1024"),
    ("MILLRACE_LOG_FILTER", "warn"),
];

/// Answers that go on, each with its label.
fn forms() -> [(&'static str, Value); 3] {
    let records = json!({
        "type": "array", "minItems": 1000, "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 24},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "mood": {"enum": ["glad", "calm", "sad"]},
            },
            "required": ["name", "age", "mood"],
            "additionalProperties": false,
        },
    });
    let long = json!({"type": "string", "minLength": 8000});
    let schema = |schema| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}});
    [
        (
            "letters and blanks",
            json!({"guided_regex": "[a-z ]{8000,}"}),
        ),
        ("a long string", schema(long)),
        ("records", schema(records)),
    ]
}

fn body(n: usize, form: Option<&Value>) -> String {
    let mut body = json!({
        "messages": [{"role": "user", "content": format!("client {n}")}], "stream": true,
        "max_tokens": ANSWER, "temperature": 1, "seed": n,
    });
    match form.and_then(Value::as_object) {
        Some(form) => form
            .iter()
            .for_each(|(name, value)| body[name] = value.clone()),
        None => body["ignore_eos"] = json!(true),
    }
    body.to_string()
}

/// Reads one answer; the time from its first chunk to its last.
async fn answer(addr: SocketAddr, body: String) -> io::Result<Duration> {
    let mut client = Client::connect(addr).await?;
    let head = client.post(PATH, &body).await?;
    if head.status != 200 {
        return Err(io::Error::other(format!("status {}", head.status)));
    }
    let (mut first, mut last) = (None, now());
    while client.chunk(|_| ()).await? {
        last = now();
        first.get_or_insert(last);
    }
    let first: Instant = first.ok_or_else(|| io::Error::other("an empty answer"))?;
    Ok(last - first)
}

/// Eight answers at once: the median time of a token, and how many were forced.
async fn round(serving: &Serving, form: Option<&Value>) -> io::Result<(Duration, f64)> {
    let (before, forced) = (serving.metric(TOKENS).await?, serving.metric(FORCED).await?);
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(answer(serving.addr, body(n, form))))
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.map_err(io::Error::other)??);
    }
    let tokens = serving.metric(TOKENS).await? - before;
    if tokens != f64::from(ANSWER) * CLIENTS as f64 {
        return Err(io::Error::other(format!(
            "{tokens} tokens: an answer ended early"
        )));
    }
    let forced = serving.metric(FORCED).await? - forced;
    Ok((quantile(&mut times, 0.5) / (ANSWER - 1), forced / tokens))
}

fn main() -> io::Result<()> {
    let serving = Serving::start("qwen3-0.6b", &SETTINGS)?;
    let (forms, mut free) = (forms(), Vec::new());
    let mut formed = forms.each_ref().map(|_| (Vec::new(), 0.0));
    client_runtime()?.block_on(async {
        // Once before it counts: the vocabulary's trie and the grammars are made then.
        for (_, form) in &forms {
            round(&serving, Some(form)).await?;
        }
        for _ in 0..argument("--rounds", 5.0) as u32 {
            free.push(round(&serving, None).await?.0);
            for ((_, form), (times, forced)) in forms.iter().zip(&mut formed) {
                let (time, share) = round(&serving, Some(form)).await?;
                times.push(time);
                *forced = share;
            }
        }
        Ok::<_, io::Error>(())
    })?;
    let free = quantile(&mut free, 0.5);
    println!(
        "{CLIENTS} streams, milliseconds per token of each, medians of the rounds; free: {:.2}",
        ms(free)
    );
    println!("| form | ms | ratio | forced |\n|---|---|---|---|");
    for ((label, _), (times, forced)) in forms.iter().zip(&mut formed) {
        let time = quantile(times, 0.5);
        let ratio = time.as_secs_f64() / free.as_secs_f64();
        println!(
            "| {label} | {:.2} | {ratio:.3} | {:.0} % |",
            ms(time),
            *forced * 100.0
        );
    }
    Ok(())
}
