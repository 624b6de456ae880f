//! That a call was malformed reaches the log, and nothing of what it said.

use crate::support::client::post;
use crate::support::exported::CHAT;
use crate::support::logged::Logged;
use crate::support::{Rig, config};
use serde_json::json;
use testing::child::run_in_child;
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

/// What the model says, how many tokens of it, and how many calls of it are malformed.
type Row = (&'static str, Option<usize>, usize);

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

/// One line for an answer with calls that are malformed, with their number; none for another.
fn expect_logged(script: &str, malformed: usize, logs: &str) {
    let told: Vec<&str> = logs
        .lines()
        .filter(|line| line.contains("malformed="))
        .collect();
    let field = format!("malformed={malformed}");
    let counts = told
        .iter()
        .filter(|line| line.split_whitespace().any(|word| word == field));
    let lines = usize::from(malformed > 0);
    let found = (told.len(), counts.count());
    assert_eq!(found, (lines, lines), "{script}: {logs}");
    assert!(told.iter().all(|line| line.contains(" INFO ")), "{logs}");
}

#[test]
fn malformed_tool_calls_are_logged_without_their_content() {
    if run_in_child(malformed_tool_calls_are_logged_without_their_content) {
        return;
    }
    let logged = Logged::default();
    // The whole process: the work is done on other threads.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(logged.clone())
        .init();
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
            let is_told = stream || most.is_some() || reply.body.contains(MARK);
            assert!(
                is_told || !script.contains(MARK),
                "{script}: {}",
                reply.body
            );
            let logs = logged.text()[before..].to_owned();
            expect_logged(script, malformed, &logs);
        }
    }
    rig.wait_until_empty();
    assert!(
        !logged.text().contains(MARK),
        "what was called is in the log"
    );
}
