//! One script, in every dialect, streamed and whole; and byte for byte where the format is not ours.

use super::dialects::{DIALECTS, Dialect};
use super::story::Story;
use crate::support::named::{call, kept};
use crate::support::{Rig, client, config};
use serde_json::{Value, json};
use server::{ReasoningField, ServerConfig};
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

/// What the model thinks, says and calls.
pub(crate) const SCRIPT: &str = "<think>\nhm, a city</think>\n\nI look.\n<tool_call>\n\
    {\"name\": \"weather\", \"arguments\": {\"city\": \"K\u{f6}ln \\\"x\\\"\", \"days\": 3}}\n</tool_call>\n\
    <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

/// How it writes that.
pub(crate) fn hermes() -> AnswerFormat {
    AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    }
}

fn streamed(rig: &Rig, dialect: &Dialect, script: &str, over: &Value) -> (Story, String) {
    let mut body = dialect.body(script, over);
    body["stream"] = json!(true);
    let reply = call(rig, "POST", dialect.path, "", &body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let events = (dialect.events)(&reply.body).expect("whole events");
    ((dialect.story)(&events), reply.body)
}

fn whole(rig: &Rig, dialect: &Dialect, script: &str, over: &Value) -> Story {
    let mut body = dialect.body(script, over);
    body["stream"] = json!(false);
    let reply = call(rig, "POST", dialect.path, "", &body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    (dialect.whole)(&reply.json())
}

/// The same story but for the names of calls, which are each stream's own.
fn unnamed(story: &Story) -> Story {
    let mut story = story.clone();
    for call in &mut story.calls {
        assert!(!call.0.is_empty(), "every call has a name");
        call.0.clear();
    }
    story
}

#[test]
fn every_dialect_has_the_parsed_answer() {
    let rig = Rig::echoing(hermes(), config());
    for dialect in &DIALECTS {
        let (story, body) = streamed(&rig, dialect, SCRIPT, &json!({}));
        assert_eq!(story.text, "I look.", "{}: {body}", dialect.name);
        assert_eq!(story.reasoning, "hm, a city", "{}", dialect.name);
        let calls: Vec<_> = story
            .calls
            .iter()
            .map(|(_, name, args)| (name.as_str(), args))
            .collect();
        let city = json!({"city": "K\u{f6}ln \"x\"", "days": 3});
        assert_eq!(
            calls,
            [("weather", &city), ("now", &json!({}))],
            "{}",
            dialect.name
        );
        assert_ne!(story.calls[0].0, story.calls[1].0, "{}", dialect.name);
        assert_eq!(story.end, dialect.calls, "{}", dialect.name);
        let all = whole(&rig, dialect, SCRIPT, &json!({}));
        assert_eq!(unnamed(&all), unnamed(&story), "{}", dialect.name);
        assert!(
            !body.contains("tool_call>") && !body.contains("think>"),
            "{body}"
        );
    }
}

#[test]
fn no_tool_calls_without_tools() {
    let rig = Rig::echoing(hermes(), config());
    let script = "<think>x</think>a <tool_call>b</tool_call>";
    for dialect in &DIALECTS {
        let (story, _) = streamed(&rig, dialect, script, &json!({"tools": []}));
        assert_eq!(story.text, "a <tool_call>b</tool_call>", "{}", dialect.name);
        assert_eq!((story.reasoning.as_str(), story.calls.len()), ("x", 0));
        assert_eq!(
            unnamed(&whole(&rig, dialect, script, &json!({"tools": []}))),
            story
        );
    }
}

#[test]
fn prompt_that_opens_the_reasoning_is_continued_as_reasoning() {
    let rig = Rig::echoing(hermes(), config());
    let thinks = json!({"chat_template_kwargs": {"enable_thinking": true}});
    let script = "hm</think>\n\nyes";
    for dialect in &DIALECTS {
        let over = match dialect.name {
            "anthropic.messages" => json!({
                "max_tokens": 1100, "thinking": {"type": "enabled", "budget_tokens": 1024}
            }),
            "ollama.chat" => json!({"think": true}),
            _ => thinks.clone(),
        };
        let (story, _) = streamed(&rig, dialect, script, &over);
        assert_eq!(story.reasoning, "hm", "{}", dialect.name);
        assert_eq!(story.text, "yes", "{}", dialect.name);
        let (plain, _) = streamed(&rig, dialect, script, &json!({}));
        assert_eq!(
            (plain.reasoning.as_str(), plain.text.as_str()),
            ("", script)
        );
    }
}

#[test]
fn incomplete_or_malformed_call_loses_no_text() {
    let rig = Rig::echoing(hermes(), config());
    let start = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ro";
    for dialect in &DIALECTS {
        let short = json!({
            "max_tokens": start.len(), "options": {"num_predict": start.len(), "temperature": 0},
        });
        let script = format!("{start}me\"}}}}</tool_call>");
        let (story, _) = streamed(&rig, dialect, &script, &short);
        assert_eq!(story.end, dialect.length, "{}", dialect.name);
        assert_eq!(story.calls.len(), 1, "{}", dialect.name);
        assert!(story.calls[0].2.to_string().contains("Ro"), "{story:?}");
        let all = whole(&rig, dialect, &script, &short);
        assert!(all.calls[0].2.to_string().contains("Ro"), "{all:?}");
        let broken = "a <tool_call>\nno JSON</tool_call> b";
        let (story, _) = streamed(&rig, dialect, broken, &json!({}));
        assert_eq!(
            (story.text.as_str(), story.calls.len()),
            (broken, 0),
            "{}",
            dialect.name
        );
        assert_eq!(unnamed(&whole(&rig, dialect, broken, &json!({}))), story);
    }
}

#[test]
fn tool_call_ids_are_stable() {
    let rig = Rig::echoing(hermes(), kept());
    let mut body = DIALECTS[0].body(SCRIPT, &json!({"n": 2, "stream": true}));
    body["stream_options"] = json!({"include_usage": true});
    let reply = call(
        &rig,
        "POST",
        DIALECTS[0].path,
        "x-stream-resumable: 1\r\n",
        &body,
    );
    let id = reply.head.get("x-stream-id").expect("a name").to_owned();
    let names = |body: &str| -> Vec<String> {
        let ids = body
            .match_indices("call_")
            .map(|(at, _)| body[at..].chars().take(29).collect());
        let mut ids: Vec<String> = ids.filter(|id: &String| !id.contains('"')).collect();
        ids.sort();
        // Some dialects name a call more than once.
        ids.dedup();
        ids
    };
    let told = names(&reply.body);
    assert_eq!(told.len(), 4, "{}", reply.body);
    for dialect in &DIALECTS {
        let path = format!("/v1/streams/{id}/events?dialect={}", dialect.name);
        let again = call(&rig, "GET", &path, "", &Value::Null);
        assert_eq!(names(&again.body), told, "{}", dialect.name);
    }
}

#[test]
fn chat_chunks_byte_for_byte() {
    let rig = Rig::echoing(hermes(), config());
    let script = "<think>h</think><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let (_, body) = streamed(&rig, &DIALECTS[0], script, &json!({}));
    let deltas: Vec<Value> = body
        .split_terminator("\n\n")
        .filter_map(|frame| serde_json::from_str::<Value>(frame.strip_prefix("data: ")?).ok())
        .map(|chunk| chunk["choices"][0]["delta"].clone())
        .collect();
    let id = deltas
        .iter()
        .find_map(|delta| delta["tool_calls"][0]["id"].as_str())
        .expect("a name");
    let args: Vec<&str> = deltas
        .iter()
        .filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!((args[0], args.concat().as_str()), ("", "{}"));
    assert_eq!(deltas[0], json!({"role": "assistant", "content": ""}));
    assert_eq!(deltas[1], json!({"reasoning_content": "h"}));
    assert_eq!(
        deltas[2],
        json!({"tool_calls": [{"index": 0, "id": id, "type": "function",
            "function": {"name": "now", "arguments": ""}}]})
    );
    assert_eq!(
        deltas[3],
        json!({"tool_calls": [{"index": 0, "function": {"arguments": args[1]}}]})
    );
    assert_eq!(deltas.last(), Some(&json!({})));
}

#[test]
fn reasoning_field_is_configurable() {
    for (field, names) in [
        (ReasoningField::ReasoningContent, &["reasoning_content"][..]),
        (ReasoningField::Reasoning, &["reasoning"]),
        (ReasoningField::Both, &["reasoning_content", "reasoning"]),
    ] {
        let config = ServerConfig {
            reasoning_field: field,
            ..config()
        };
        let rig = Rig::echoing(hermes(), config);
        let mut body = DIALECTS[0].body("<think>h</think>x", &json!({}));
        let reply = client::post(rig.addr, DIALECTS[0].path, &body).json();
        body["stream"] = json!(true);
        let chunks = client::post(rig.addr, DIALECTS[0].path, &body).chunks();
        for name in ["reasoning_content", "reasoning"] {
            let want = if names.contains(&name) {
                json!("h")
            } else {
                Value::Null
            };
            assert_eq!(reply["choices"][0]["message"][name], want, "{field:?}");
            assert_eq!(chunks[1]["choices"][0]["delta"][name], want, "{field:?}");
        }
    }
}

/// The last counts of a body, streamed or whole.
fn last_usage(body: &str) -> Value {
    let frames = body.lines().filter_map(|line| {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        serde_json::from_str::<Value>(line).ok()
    });
    let mut usages =
        frames.flat_map(|frame| [frame["usage"].clone(), frame["response"]["usage"].clone()]);
    usages.rfind(Value::is_object).expect("counts")
}

#[test]
fn reasoning_tokens_are_counted() {
    // The mark that opens it, and two letters; what closes it goes with what follows.
    const THOUGHT: u64 = 3;
    let rig = Rig::echoing(hermes(), kept());
    for (script, thought) in [("<think>hm</think>yes", THOUGHT), ("yes", 0)] {
        for (name, place) in [
            ("openai.chat", "/completion_tokens_details/reasoning_tokens"),
            (
                "openai.responses",
                "/output_tokens_details/reasoning_tokens",
            ),
        ] {
            let dialect = DIALECTS.iter().find(|d| d.name == name).expect("there");
            let mut body = dialect.body(script, &json!({"tools": []}));
            let whole = call(&rig, "POST", dialect.path, "", &body).body;
            (body["stream"], body["stream_options"]) =
                (json!(true), json!({"include_usage": true}));
            let fields = "x-stream-resumable: 1\r\n";
            let streamed = call(&rig, "POST", dialect.path, fields, &body);
            let id = streamed.head.get("x-stream-id").expect("a name");
            let path = format!("/v1/streams/{id}/events?dialect={name}");
            let again = call(&rig, "GET", &path, "", &Value::Null).body;
            let mut cursor = streamed
                .body
                .lines()
                .filter_map(|line| line.strip_prefix("id: "));
            let cursor = cursor.nth(1).expect("a place to come back to");
            let rest = call(
                &rig,
                "GET",
                &path,
                &format!("last-event-id: {cursor}\r\n"),
                &Value::Null,
            )
            .body;
            for (label, body) in [
                ("whole", &whole),
                ("streamed", &streamed.body),
                ("again", &again),
                ("the rest", &rest),
            ] {
                let usage = last_usage(body);
                assert_eq!(
                    usage.pointer(place),
                    Some(&json!(thought)),
                    "{name}, {label}: {usage}"
                );
            }
        }
    }
}
