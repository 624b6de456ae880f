//! `millrace streams` against a server with the built-in model.
//!
//! Promise (Settings and operation): `millrace streams` lists, shows, follows, replays and cancels the streams of a
//! running server; failures name their cause.

use super::refusal;
use crate::support::{Serving, command, millrace, millrace_with, stdout};
use serde_json::{Value, json};
use std::io::Read;
use std::process::{Output, Stdio};

const SERVE: [&str; 3] = ["serve", "--bind", "127.0.0.1:0"];
const ALL_TOKENS: usize = 40;

/// Opens a resumable stream and reads the answer; returns the id and the text.
fn answered(serving: &Serving, over: &Value) -> (String, String) {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Tell me about a fox."}], "temperature": 0, "max_tokens": ALL_TOKENS,
        "ignore_eos": true,
    });
    for (name, value) in over.as_object().unwrap() {
        body[name] = value.clone();
    }
    let fields = "x-stream-resumable: 1\r\n";
    let reply = serving.post_with(fields, "/v1/chat/completions", &body.to_string());
    let (head, answer) = reply.split_once("\r\n\r\n").unwrap();
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("x-stream-id: "));
    let answer: Value = serde_json::from_str(answer).unwrap_or_else(|why| panic!("{why}: {reply}"));
    let text = answer["choices"][0]["message"]["content"].as_str();
    (id.unwrap().to_owned(), text.unwrap_or_default().to_owned())
}

/// Runs `millrace streams` with these arguments and the server's address.
fn streams(serving: &Serving, args: &[&str]) -> Output {
    let url = serving.url();
    millrace(&[&["streams"], args, &["--url", &url]].concat())
}

#[test]
fn streams_are_listed_and_shown() {
    let serving = Serving::start(&SERVE);
    let head = "ID  MODEL  API  STATE  TOKENS  AGE\n";
    assert_eq!(stdout(&streams(&serving, &["list"])), head);
    assert_eq!(stdout(&streams(&serving, &["list", "--json"])), "[]\n");
    let (first, _) = answered(&serving, &json!({}));
    let (second, _) = answered(&serving, &json!({"n": 2, "max_tokens": 3}));
    let shown = stdout(&streams(&serving, &["list"]));
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1][..6],
        [
            &*first,
            "millrace-mini",
            "openai.chat",
            "ended",
            "(length)",
            "40"
        ],
        "{shown}"
    );
    assert_eq!((lines[2][0], lines.len()), (&*second, 3), "{shown}");
    let listed = stdout(&streams(&serving, &["list", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed[0]["id"], &listed[1]["id"]),
        (&json!(first), &json!(second))
    );
    let shown = stdout(&streams(&serving, &["show", &second]));
    for line in [
        "model        millrace-mini",
        "state        ended (length)",
        "answer       6 tokens",
        "choices      3, 3",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let shown = stdout(&streams(&serving, &["show", &second, "--json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["choices"][1]["tokens"], 3);
}

#[test]
fn stream_is_followed_to_its_end() {
    let serving = Serving::start(&SERVE);
    let (id, text) = answered(&serving, &json!({}));
    for args in [
        &["follow", &id][..],
        &["follow", &id, "--replay=1000"],
        &["follow", "--replay", &id],
    ] {
        let output = streams(&serving, args);
        assert_eq!(stdout(&output), format!("{text}\n"), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
    let lines = stdout(&streams(&serving, &["follow", &id, "--json"]));
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let texts = lines.iter().filter_map(|line| line["t"].as_str());
    assert_eq!(texts.collect::<String>(), text);
    assert_eq!(lines.last().unwrap()["stop_reason"], "MAX_TOKENS");
    let (id, text) = answered(&serving, &json!({"n": 2, "max_tokens": 5}));
    let output = streams(&serving, &["follow", &id]);
    assert_eq!(
        stdout(&output),
        format!("{text}\n{text}\n"),
        "greedy choices are equal"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "[choice 1]\n");
}

#[test]
fn reasoning_and_tool_calls_are_printed_as_by_run() {
    let serving = Serving::start(&SERVE);
    let messages = json!([{"role": "user", "content": "What is 23 + 45?"}]);
    let over = json!({"messages": messages, "max_tokens": 200, "ignore_eos": false, "chat_template_kwargs": {"enable_thinking": true}});
    let (id, text) = answered(&serving, &over);
    let output = streams(&serving, &["follow", &id]);
    assert_eq!(stdout(&output), format!("{text}\n"));
    let reasoning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        reasoning.starts_with("[reasoning]\n") && reasoning.ends_with("\n[/reasoning]\n"),
        "{reasoning}"
    );
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]});
    let function = json!({"name": "get_weather", "description": "Get the weather in a city", "parameters": parameters});
    let messages = json!([{"role": "user", "content": "What is the weather in Gremolux?"}]);
    let over = json!({"messages": messages, "tools": [{"type": "function", "function": function}], "max_tokens": 200, "ignore_eos": false});
    let (id, _) = answered(&serving, &over);
    let shown = stdout(&streams(&serving, &["follow", &id]));
    let call: Value = serde_json::from_str(&shown).unwrap_or_else(|why| panic!("{why}: {shown}"));
    assert_eq!(
        call,
        json!({"name": "get_weather", "arguments": {"city": "Gremolux"}})
    );
}

/// A stream that was paused at once, and a client that follows the stream: what is generated later is printed later.
#[test]
fn running_stream_is_followed_and_cancelled() {
    let serving = Serving::start(&SERVE);
    let body = json!({"prompt": "Hello", "max_tokens": 1500, "ignore_eos": true, "temperature": 0});
    let opened = serving.post("/v1/jobs", &body.to_string());
    let opened: Value = serde_json::from_str(opened.split_once("\r\n\r\n").unwrap().1).unwrap();
    let id = opened["job_id"].as_str().unwrap();
    serving.post(&format!("/v1/streams/{id}/pause"), "");
    let mut follower = command(&["streams", "follow", id, "--url", &serving.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    serving.post(&format!("/v1/streams/{id}/resume"), "");
    let mut first = [0; 8];
    follower
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    serving.post(&format!("/v1/streams/{id}/pause"), "");
    let cancelled = stdout(&streams(&serving, &["cancel", id, "--json"]));
    let cancelled: Value = serde_json::from_str(&cancelled).unwrap();
    assert_eq!(cancelled["id"], id);
    let output = follower.wait_with_output().unwrap();
    if !output.status.success() {
        assert!(
            refusal(&output).contains("the stream was cancelled"),
            "{output:?}"
        );
    }
    for _ in 0..2 {
        let again = stdout(&streams(&serving, &["cancel", id]));
        assert!(
            again.contains("state        ended"),
            "an ended stream stays: {again}"
        );
    }
}

#[test]
fn failures_name_their_cause() {
    let serving = Serving::start(&[&SERVE[..], &["--api-key", "0123456789abcdef"]].concat());
    let said = refusal(&streams(&serving, &["list"]));
    assert!(
        said.contains("requires an API key: --api-key KEY"),
        "{said}"
    );
    let key = [("MILLRACE_API_KEY", "0123456789abcdef")];
    let unknown = "0".repeat(32);
    let shown = millrace_with(
        &["streams", "show", &unknown, "--url", &serving.url()],
        &key,
    );
    let said = refusal(&shown);
    assert!(said.contains("404"), "{said}");
    let said = refusal(&streams(&serving, &["follow", "../x"]));
    assert!(said.contains("is no stream id"), "{said}");
    let url = serving.url();
    assert!(serving.terminate().success());
    let said = refusal(&millrace(&["streams", "list", "--url", &url]));
    assert!(said.contains("no server answers at"), "{said}");
    let speed = millrace(&["streams", "follow", &unknown, "--replay=0"]);
    assert_eq!(speed.status.code(), Some(2));
}
