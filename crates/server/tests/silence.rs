//! What is said reaches neither metrics nor logs; that a call was malformed reaches the log.

mod support;

use engine::fake::FakeConfig;
use serde_json::json;
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use support::client::{Client, get, post};
use support::exported::{CHAT, COMPLETIONS, ask};
use support::{Rig, config, vocab};
use text::{AnswerFormat, ReasoningFamily, ToolFamily};
use tracing_subscriber::fmt::MakeWriter;

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

/// The log of the whole process: the work is done on other threads. Each test only adds to it.
static LOGGED: LazyLock<Logged> = LazyLock::new(|| {
    let logged = Logged::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(logged.clone())
        .init();
    logged
});

#[test]
fn what_is_said_reaches_neither_metrics_nor_logs() {
    const MARK: &str = "Zebra7Marker";
    const ANSWER: &str = "hello";
    let logged = &*LOGGED;
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

/// What the model says, how many tokens of it, and how many calls of it are malformed.
type Row = (&'static str, Option<usize>, usize);

#[test]
fn that_a_call_is_malformed_reaches_the_log_and_nothing_of_the_call() {
    const MARK: &str = "Okapi5Marker";
    const ROWS: [Row; 8] = [
        ("no call", None, 0),
        (
            "<tool_call>{\"name\": \"put\", \"arguments\": {\"s\": \"Okapi5Marker\"}}</tool_call>",
            None,
            0,
        ),
        ("a <tool_call>Okapi5Marker</tool_call> b", None, 1),
        (
            "<tool_call>{\"name\": \"put\", \"arguments\": {\"Okapi5Marker\": ?}}</tool_call>",
            None,
            1,
        ),
        (
            "<tool_call>Okapi5Marker</tool_call> <tool_call>{\"Okapi5Marker\": ?}</tool_call>",
            None,
            2,
        ),
        (
            "<tool_call>{\"name\": \"put\", \"arguments\": {\"s\": \"Okapi5Marker",
            None,
            1,
        ),
        (
            "<tool_call>{\"name\": \"put\", \"arguments\": {\"s\": \"Okapi5Marker\"}}",
            Some(50),
            0,
        ),
        ("<tool_call>{\"name\": \"Okapi5Marker", Some(12), 0),
    ];
    let logged = &*LOGGED;
    let format = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    let rig = Rig::echoing(format, config());
    let put = json!({"type": "function", "function": {"name": "put"}});
    for (script, most, malformed) in ROWS {
        for stream in [true, false] {
            let before = logged.text().len();
            let body = json!({
                "messages": [{"role": "user", "content": script}], "tools": [put], "stream": stream,
                "max_tokens": most.unwrap_or(500), "temperature": 0,
            });
            let reply = post(rig.addr, CHAT, &body);
            assert_eq!(reply.head.status, 200, "{}", reply.body);
            let is_whole = most.is_some() || !script.contains(MARK) || reply.body.contains("Okapi");
            assert!(is_whole, "{script}: {}", reply.body);
            let logs = logged.text()[before..].to_owned();
            let told: Vec<&str> = logs
                .lines()
                .filter(|line| line.contains("malformed="))
                .collect();
            let counts = told
                .iter()
                .filter(|line| line.contains(&format!("malformed={malformed} ")));
            let lines = usize::from(malformed > 0);
            assert_eq!(
                (told.len(), counts.count()),
                (lines, lines),
                "{script}: {logs}"
            );
            assert!(told.iter().all(|line| line.contains(" INFO ")), "{logs}");
        }
    }
    rig.wait_until_empty();
    assert!(
        !logged.text().contains(MARK),
        "what was called is in the log"
    );
}
