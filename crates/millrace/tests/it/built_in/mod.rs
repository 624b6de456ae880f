//! The built-in model, as a user meets it: a real, trained model in every dialect. Answers are the likeliest tokens, so
//! that they are the same on every machine.
//!
//! Promise (APIs): the built-in model gives the same answer in four APIs, streamed, non-streaming and resumed: text,
//! reasoning, tool calls, stop strings, long stories, earlier turns.

mod dialects;
mod forms;
mod terminal;

use crate::support::{Folder, Serving, millrace, stdout};
use dialects::{DIALECTS, Dialect, Said, body_of, streamed, with};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// How often a stream that is to be cut is asked for.
const ATTEMPTS: usize = 20;
const ARGS: [&str; 3] = ["serve", "--bind", "127.0.0.1:0"];

/// Asks every dialect, whole and streamed, and expects the same of all. What is expected here is what every training
/// of the model reaches; how often it is right beyond that is the evaluation's to say.
fn check(case: &str, body: &Value, right: impl Fn(&Said) -> bool) {
    let serving = Serving::start(&ARGS);
    let mut first = None;
    for dialect in &DIALECTS {
        let name = dialect.name;
        let post = |stream: bool| {
            let body = with(&(dialect.spelled)(body), json!({"stream": stream}));
            body_of(&serving.post(dialect.path, &body.to_string()))
        };
        let whole = post(false);
        let whole: Value =
            serde_json::from_str(&whole).unwrap_or_else(|_| panic!("{case}, {name}: {whole}"));
        let said = (dialect.whole)(&whole);
        assert!(right(&said), "{case}, {name}: {said:?}");
        assert_eq!(streamed(dialect, &post(true)), said.text, "{case}, {name}");
        assert_eq!(first.get_or_insert(said.clone()), &said, "{case}, {name}");
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn ask(text: &str) -> Value {
    json!({"messages": [user(text)]})
}

#[test]
fn answer_in_every_dialect() {
    let day = ask("What day comes after Monday?");
    check("a day", &day, |said| {
        said.text.contains("Monday") && said.reasoning.is_empty() && said.calls.is_empty()
    });
}

#[test]
fn reasoning_on_request() {
    let body = with(&ask("What is 23 + 45?"), json!({"thinking": true}));
    check("a sum", &body, |said| {
        said.reasoning.contains("Ones: 3 + 5") && !said.text.contains("Ones")
    });
}

/// A tool, and a question for it.
fn weather() -> Value {
    let parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let function = json!({"name": "get_weather", "description": "Get the weather in a city", "parameters": parameters});
    let tools = json!([{"type": "function", "function": function}]);
    with(
        &ask("What is the weather in Gremolux?"),
        json!({"tools": tools}),
    )
}

#[test]
fn tool_call_of_a_fitting_tool() {
    let wanted = json!({"city": "Gremolux"});
    check("a call", &weather(), |said| {
        said.text.is_empty() && said.calls == [("get_weather".to_owned(), wanted.clone())]
    });
}

#[test]
fn unfitting_tool_is_not_called() {
    let other = with(
        &weather(),
        json!({"messages": [user("Count from 3 to 6.")]}),
    );
    check("no call", &other, |said| {
        said.text.starts_with("3, 4, 5, 6") && said.calls.is_empty()
    });
}

#[test]
fn tool_result_is_used() {
    let serving = Serving::start(&ARGS);
    let function = json!({"name": "get_weather", "arguments": "{\"city\": \"Gremolux\"}"});
    let call = json!({"id": "call_1", "type": "function", "function": function});
    let messages = json!([
        user("What is the weather in Gremolux?"),
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": r#"{"temperature": 17, "sky": "sunny"}"#},
    ]);
    let body = with(&weather(), json!({"messages": messages, "temperature": 0}));
    let reply = serving.post("/v1/chat/completions", &body.to_string());
    assert!(
        reply.contains("It is 17 degrees and sunny in Gremolux."),
        "{reply}"
    );
}

#[test]
fn stop_strings_end_and_do_not_leak() {
    let body = with(&ask("Count from 1 to 9."), json!({"stop": ["5"]}));
    check("a stop string", &body, |said| said.text == "1, 2, 3, 4, ");
}

#[test]
fn long_story_is_complete() {
    let body = ask("Make up a longer story about a fox and a lantern.");
    check("a story", &body, |said| {
        let has = |word: &str| said.text.contains(word);
        said.text.len() > 400 && has("fox") && has("lantern") && said.text.ends_with('.')
    });
}

#[test]
fn earlier_turns_are_remembered() {
    let messages = json!([
        user("My name is Tilda."),
        {"role": "assistant", "content": "Nice to meet you, Tilda!"},
        user("What is 2 + 3?"),
        {"role": "assistant", "content": "2 + 3 = 5"},
        user("What is my name?"),
    ]);
    check("a name", &json!({"messages": messages}), |said| {
        said.text == "Your name is Tilda."
    });
}

#[test]
fn cut_stream_resumes_in_every_dialect() {
    let serving = Serving::start(&ARGS);
    for dialect in &DIALECTS {
        let Dialect { name, path, .. } = dialect;
        let body = with(
            &(dialect.spelled)(&ask("Count from 10 to 24.")),
            json!({"stream": true}),
        );
        // A busy machine may send a short answer in one frame, which has no middle: then the question is asked again.
        let is_cut = (0..ATTEMPTS).any(|_| {
            let reply = serving.post_with("x-stream-resumable: 1\r\n", path, &body.to_string());
            let id = reply
                .lines()
                .find_map(|line| line.strip_prefix("x-stream-id: "))
                .expect("a stream's id");
            let whole = body_of(&reply);
            let (before, place) = dialects::cut(dialect, &whole);
            let rest = body_of(&serving.get(&format!("/v1/streams/{id}/events?after={place}")));
            let (first, second) = (streamed(dialect, &before), streamed(dialect, &rest));
            let together = format!("{first}{second}");
            assert_eq!(
                together,
                streamed(dialect, &whole),
                "{name}: cut after {before}"
            );
            assert!(together.starts_with("10, 11, 12"), "{name}: {together}");
            first.len() > 5 && !second.is_empty()
        });
        assert!(is_cut, "{name}: cut in the middle of the text");
    }
}

#[test]
fn run_and_chat_work_without_a_model_argument() {
    let said = stdout(&millrace(&["run", "Hello", "--temperature", "0"]));
    assert!(
        said.starts_with("Hello!") || said.starts_with("Hi!"),
        "{said}"
    );
    let mut chat = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["chat", "--temperature", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let typed = b"My name is Otto.\nWhat is my name?\n/bye\n";
    chat.stdin.take().unwrap().write_all(typed).unwrap();
    let shown = stdout(&chat.wait_with_output().unwrap());
    assert!(shown.contains("Your name is Otto."), "{shown}");
}

#[test]
fn model_argument_replaces_the_built_in_model() {
    let folder = Folder::new("replaces");
    let model = crate::support::synth(&folder);
    for args in [["--model", &model], [&model, "--bind"]] {
        let bind = if args[0] == "--model" {
            vec!["--bind", "127.0.0.1:0"]
        } else {
            vec!["127.0.0.1:0"]
        };
        let serving = Serving::start(&[&["serve"], &args[..], &bind[..]].concat());
        let models = serving.get("/v1/models");
        let first = r#""data":[{"id":"tiny""#;
        assert!(
            models.contains(first),
            "the built-in one comes after it: {models}"
        );
        let asked = serving.post("/v1/completions", r#"{"prompt":"A","max_tokens":1}"#);
        assert!(asked.contains(r#""model":"tiny""#), "{asked}");
    }
    let both = millrace(&["serve", &model, "--model", &model]);
    assert!(!both.status.success());
}
