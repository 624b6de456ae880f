//! What `/metrics` exports: that it counts what happened, that the documentation and the dashboard
//! speak of the same families, and that no text of anybody's is in it or in the logs.

mod support;

use engine::fake::FakeConfig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::client::{Client, get, post};
use support::{Rig, config, vocab, wait_until};
use tracing_subscriber::fmt::MakeWriter;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// `GET /metrics`, parsed: families with their kinds, and each sample's value.
struct Exported {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Exported {
    fn from(rig: &Rig) -> Self {
        let reply = get(rig.addr, "/metrics");
        assert_eq!(reply.head.status, 200);
        let kind = reply.head.get("content-type").unwrap();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        Self::parse(&reply.body)
    }

    fn parse(text: &str) -> Self {
        let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(line) = line.strip_prefix("# TYPE ") {
                let (name, kind) = line.split_once(' ').unwrap();
                let before = kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} is one family");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let before = samples.insert(name.to_owned(), value.parse().unwrap());
                assert_eq!(before, None, "{name} is one sample");
            }
        }
        Self { kinds, samples }
    }

    fn value(&self, sample: &str) -> f64 {
        self.samples.get(sample).copied().unwrap_or(0.0)
    }

    /// Every name a query may use.
    fn names(&self) -> BTreeSet<String> {
        let parts = |name: &str, kind: &str| match kind {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .map(|part| format!("{name}{part}"))
                .collect(),
            _ => vec![name.to_owned()],
        };
        self.kinds.iter().flat_map(|(n, k)| parts(n, k)).collect()
    }

    /// The label names of a family's samples, `le` aside.
    fn labels(&self, family: &str) -> BTreeSet<String> {
        let of = |sample: &String| {
            let labels = sample.strip_prefix(family)?.strip_prefix('{')?;
            Some(
                labels
                    .trim_end_matches('}')
                    .split("\",")
                    .filter_map(|pair| pair.split_once('=').map(|(name, _)| name.to_owned()))
                    .collect::<Vec<_>>(),
            )
        };
        self.samples.keys().filter_map(of).flatten().collect()
    }
}

fn ask(content: &str, stream: bool) -> Value {
    json!({
        "messages": [{"role": "user", "content": content}], "seed": 1, "ignore_eos": true,
        "stream": stream, "max_tokens": 20,
    })
}

fn rig() -> Rig {
    let fake = FakeConfig {
        eos_probability: 0.0,
        ..support::fake()
    };
    Rig::with(fake, config())
}

/// Every label is used: a stream, a whole answer, refusals, a path that is nowhere.
fn used(rig: &Rig) {
    assert_eq!(post(rig.addr, CHAT, &ask("hi", true)).head.status, 200);
    assert_eq!(post(rig.addr, CHAT, &ask("hi", false)).head.status, 200);
    let completion = json!({"prompt": "hi", "max_tokens": 3, "ignore_eos": true});
    assert_eq!(post(rig.addr, COMPLETIONS, &completion).head.status, 200);
    assert_eq!(post(rig.addr, CHAT, &json!({})).head.status, 400);
    assert_eq!(get(rig.addr, "/nowhere").head.status, 404);
    rig.wait_until_empty();
}

#[test]
fn it_counts_what_happened() {
    let rig = rig();
    used(&rig);
    wait_until("the connections are seen to be closed", || {
        Exported::from(&rig).value("millrace_connections_open") == 1.0
    });
    wait_until("the last step is told", || {
        let told = Exported::from(&rig);
        told.value("millrace_step_seconds_count") == told.value("millrace_steps_total")
    });
    let told = Exported::from(&rig);
    let rows = [
        (
            r#"millrace_http_requests_total{route="/v1/chat/completions",status="200"}"#,
            2.0,
        ),
        (
            r#"millrace_http_requests_total{route="/v1/chat/completions",status="400"}"#,
            1.0,
        ),
        (
            r#"millrace_http_requests_total{route="/v1/completions",status="200"}"#,
            1.0,
        ),
        (
            r#"millrace_http_requests_total{route="none",status="404"}"#,
            1.0,
        ),
        (r#"millrace_rejections_total{reason="not_found"}"#, 1.0),
        (
            r#"millrace_answers_total{dialect="openai.chat",outcome="complete"}"#,
            2.0,
        ),
        (
            r#"millrace_answers_total{dialect="openai.completions",outcome="complete"}"#,
            1.0,
        ),
        ("millrace_answers_open", 0.0),
        ("millrace_answer_seconds_count", 3.0),
        ("millrace_admission_wait_seconds_count", 3.0),
        ("millrace_socket_time_to_first_token_seconds_count", 1.0),
        ("millrace_engine_queue_wait_seconds_count", 3.0),
        ("millrace_engine_time_to_first_token_seconds_count", 3.0),
        ("millrace_engine_inter_token_seconds_count", 40.0),
        ("millrace_prefill_rows_total", 6.0),
        ("millrace_step_prefill_rows_sum", 6.0),
        (r#"millrace_admission_streams{state="running"}"#, 0.0),
        ("millrace_admission_waiting", 0.0),
        ("millrace_streams_registered_total", 3.0),
        (r#"millrace_streams{state="open"}"#, 0.0),
        ("millrace_prompt_tokens_total", 6.0),
        ("millrace_generated_tokens_total", 43.0),
        (r#"millrace_endings_total{kind="length"}"#, 3.0),
        (r#"millrace_endings_total{kind="cancelled"}"#, 0.0),
        (r#"millrace_pages{state="used"}"#, 0.0),
        (r#"millrace_log_bytes{pool="tokens"}"#, 0.0),
        (r#"millrace_build_info{version="0.1.0",model="fake"}"#, 1.0),
    ];
    for (sample, want) in rows {
        assert_eq!(told.value(sample), want, "{sample}");
    }
    for sample in [
        r#"millrace_http_bytes_total{direction="received"}"#,
        r#"millrace_http_bytes_total{direction="sent"}"#,
        "millrace_steps_total",
    ] {
        assert!(told.value(sample) > 0.0, "{sample}");
    }
}

/// A stream that its client reads again from the beginning.
fn read_again(rig: &Rig) {
    let body = ask("hi", true).to_string();
    let head = "host: localhost\r\nx-stream-resumable: 1\r\ncontent-type: application/json";
    let mut client = Client::connect(rig.addr);
    client.send(
        format!(
            "POST {CHAT} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    let first = client.reply();
    let id = first.head.get("x-stream-id").expect("its name");
    let again = get(rig.addr, &format!("/v1/streams/{id}/events"));
    assert_eq!(again.body, first.body);
}

/// Reads a frame that has text in it.
fn token(client: &mut Client) {
    loop {
        let chunk = client.chunk().expect("a frame");
        if chunk.contains(r#""content":""#) && !chunk.contains(r#""content":"""#) {
            return;
        }
    }
}

#[test]
fn each_frame_with_tokens_is_timed_once() {
    const FIRST: &str = "millrace_socket_time_to_first_token_seconds_count";
    const NEXT: &str = "millrace_socket_inter_token_seconds_count";
    let rig = Rig::gated(support::fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true));
    client.head();
    for frames in 1..5_u32 {
        rig.gate.allow(1);
        token(&mut client);
        wait_until("its frame is taken", || {
            let told = Exported::from(&rig);
            told.value(FIRST) + told.value(NEXT) >= f64::from(frames)
        });
        let told = Exported::from(&rig);
        let counts = (told.value(FIRST), told.value(NEXT));
        assert_eq!(counts, (1.0, f64::from(frames - 1)));
    }
}

#[test]
fn who_reads_again_is_counted_apart() {
    let rig = rig();
    read_again(&rig);
    let of = |family: &str| format!(r#"{family}{{dialect="openai.chat",outcome="complete"}}"#);
    let (answers, attached) = (of("millrace_answers_total"), of("millrace_attached_total"));
    wait_until("both readers are over", || {
        let told = Exported::from(&rig);
        (told.value(&answers), told.value(&attached)) == (1.0, 1.0)
    });
    let told = Exported::from(&rig);
    for (sample, want) in [
        ("millrace_socket_time_to_first_token_seconds_count", 1.0),
        ("millrace_prompt_tokens_total", 2.0),
        ("millrace_streams_registered_total", 1.0),
        ("millrace_attached_open", 0.0),
    ] {
        assert_eq!(told.value(sample), want, "{sample}");
    }
}

#[test]
fn a_client_that_leaves_is_counted_as_such() {
    let rig = Rig::gated(support::fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask("hi", true));
    rig.gate.allow(2);
    client.head();
    drop(client);
    let left = r#"millrace_answers_total{dialect="openai.chat",outcome="left"}"#;
    wait_until("it is counted", || Exported::from(&rig).value(left) == 1.0);
}

#[test]
fn the_same_is_told_in_json() {
    let rig = rig();
    used(&rig);
    let mut client = Client::connect(rig.addr);
    client.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n");
    let told = client.reply().json();
    assert_eq!(told["generated_tokens"], 43);
    assert_eq!(told["socket_time_to_first_token"]["count"], 1);
    assert!(told["socket_time_to_first_token"]["p99_s"].as_f64() > Some(0.0));
    let stalls = &told["reader_stall"];
    assert_eq!(
        stalls["p50_s"].is_null(),
        stalls["count"] == 0,
        "no data is no number"
    );
}

fn project(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A row of the table in docs/metrics.md: name, kind, labels.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = project("docs/metrics.md");
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let labels = cells[3].split(',').map(|l| l.trim().trim_matches('`'));
        let labels = labels.filter(|l| !l.is_empty() && *l != "–");
        let labels = labels.map(str::to_owned).collect();
        name.starts_with("millrace_")
            .then(|| (name.to_owned(), (cells[2].to_owned(), labels)))
    });
    rows.collect()
}

#[test]
fn every_family_is_documented_and_nothing_else_is() {
    let rig = rig();
    used(&rig);
    read_again(&rig);
    let told = Exported::from(&rig);
    let documented = documented();
    let names = |of: &mut dyn Iterator<Item = &String>| of.cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&mut documented.keys()),
        names(&mut told.kinds.keys()),
        "documented / exported"
    );
    for (name, (kind, labels)) in &documented {
        assert_eq!(kind, &told.kinds[name], "{name}");
        assert_eq!(labels, &told.labels(name), "labels of {name}");
    }
}

/// All strings under a key, anywhere.
fn strings<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => strings(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, key, found)),
        _ => {}
    }
}

/// Words of a query that are our names.
fn used_names(query: &str) -> impl Iterator<Item = &str> {
    query
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("millrace_"))
}

#[test]
fn the_dashboard_asks_for_what_is_exported() {
    let rig = rig();
    let names = Exported::from(&rig).names();
    let dashboard: Value = serde_json::from_str(&project("deploy/grafana/millrace.json")).unwrap();
    let mut queries = Vec::new();
    strings(&dashboard, "expr", &mut queries);
    strings(&dashboard, "query", &mut queries);
    strings(&dashboard, "definition", &mut queries);
    let used: BTreeSet<&str> = queries.iter().flat_map(|query| used_names(query)).collect();
    assert!(used.len() > 15, "the dashboard shows something: {used:?}");
    for name in used {
        assert!(
            names.contains(name),
            "{name} is in the dashboard and not exported"
        );
    }
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["id"])
        .collect();
    let distinct: BTreeSet<_> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(ids.len(), distinct.len(), "each panel has an id of its own");
}

/// Everything that was logged, at any level.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn what_is_said_reaches_neither_metrics_nor_logs() {
    const MARK: &str = "Zebra7Marker";
    const ANSWER: &str = "hello";
    let logged = Logged::default();
    // The whole process: the work is done on other threads. Other tests only add to it.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(logged.clone())
        .init();
    // A model that says nothing but one word.
    let rig = Rig::with(
        FakeConfig {
            eos_probability: 0.0,
            tokens: vocab::WORD..vocab::WORD + 1,
            ..support::fake()
        },
        config(),
    );
    for stream in [true, false] {
        let reply = post(rig.addr, CHAT, &ask(MARK, stream));
        assert!(reply.body.contains(ANSWER), "{}", reply.body);
    }
    let mut refused = vec![json!({"model": MARK, "messages": []})];
    for field in ["stop", "seed", "user", "tools", "priority", MARK] {
        let mut body = ask(MARK, true);
        body[field] = json!(MARK);
        refused.push(body);
    }
    refused.push(json!({"messages": [{"role": MARK, "content": MARK}]}));
    refused.push(ask(&MARK.repeat(100), true));
    for body in &refused {
        post(rig.addr, CHAT, body);
        post(rig.addr, COMPLETIONS, body);
    }
    get(rig.addr, &format!("/{MARK}"));
    get(rig.addr, &format!("/v1/models/{MARK}"));
    let mut client = Client::connect(rig.addr);
    client.send(format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {MARK}\r\nx-priority: {MARK}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{{{MARK}", MARK.len() + 1).as_bytes());
    assert_eq!(client.reply().head.status, 400);
    rig.wait_until_empty();
    let (metrics, logs) = (get(rig.addr, "/metrics").body, logged.text());
    assert!(logs.contains("submitted"), "something was logged: {logs}");
    for (place, text) in [("metrics", metrics), ("logs", logs)] {
        for said in [MARK, ANSWER] {
            assert!(!text.contains(said), "{said:?} in the {place}: {text}");
        }
    }
}
