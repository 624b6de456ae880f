//! Tools for a model whose template has no place for them, and thoughts for one that cannot be asked for any.

use super::dialects::{DIALECTS, tools};
use super::forced::{forcing, streamed};
use crate::support::Rig;
use crate::support::client::{get, post};
use serde_json::{Value, json};
use text::{AnswerFormat, ToolFamily};

const CHAT: &str = "/v1/chat/completions";

fn rig(tools: ToolFamily) -> Rig {
    Rig::without_tools(AnswerFormat {
        tools,
        ..AnswerFormat::default()
    })
}

/// Tokens of a chat's prompt.
fn prompt_tokens(rig: &Rig, body: &Value) -> u64 {
    let reply = post(rig.addr, CHAT, body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    reply.json()["usage"]["prompt_tokens"]
        .as_u64()
        .expect("a number")
}

#[test]
fn generic_tool_calls_are_parsed() {
    let scripts = [
        (
            ToolFamily::Json,
            r#"{"name": "weather", "arguments": {"city": "Rome", "days": 3}}"#,
        ),
        (
            ToolFamily::Json,
            r#"[{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]"#,
        ),
        (
            ToolFamily::Hermes,
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_call>",
        ),
        // Without the delimiters of the family.
        (
            ToolFamily::Hermes,
            r#"{"name": "weather", "arguments": {"city": "Rome", "days": 3}}"#,
        ),
        (
            ToolFamily::Hermes,
            "```json\n{\n  \"name\": \"weather\",\n  \"arguments\": {\"city\": \"Rome\", \"days\": 3}\n}\n```",
        ),
        (
            ToolFamily::Mistral,
            r#"{"name": "weather", "parameters": {"city": "Rome", "days": 3}}"#,
        ),
    ];
    for (family, script) in scripts {
        let rig = rig(family);
        for dialect in &DIALECTS {
            let story = streamed(&rig, dialect, script, &json!({}));
            let calls: Vec<_> = story
                .calls
                .iter()
                .map(|(_, name, args)| (name.as_str(), args))
                .collect();
            let label = format!("{}, {}: {script}", dialect.name, family.name());
            assert_eq!(
                calls,
                [("weather", &json!({"city": "Rome", "days": 3}))],
                "{label}"
            );
            assert_eq!(
                (story.text.as_str(), story.end.as_str()),
                ("", dialect.calls),
                "{label}"
            );
            for text in [
                "It is warm.",
                r#"{"name": "fly", "arguments": {"to": "Rome"}}"#,
                "```json\n{\"city\": \"Rome\"}\n```",
            ] {
                let plain = streamed(&rig, dialect, text, &json!({}));
                let said = (plain.text.as_str(), plain.calls.len());
                assert_eq!(said, (text, 0), "{label}");
            }
        }
    }
}

#[test]
fn required_generic_tool_call_is_made() {
    let rig = rig(ToolFamily::Json);
    for dialect in &DIALECTS {
        let Some(choice) = forcing(dialect, Some("now")) else {
            continue;
        };
        let script = r#"{"name": "now", "arguments": {}}"#;
        let story = streamed(&rig, dialect, script, &json!({"tool_choice": choice}));
        let names: Vec<_> = story.calls.iter().map(|call| call.1.as_str()).collect();
        assert_eq!(names, ["now"], "{}", dialect.name);
    }
}

#[test]
fn prompt_contains_tools_and_their_results() {
    let rig = rig(ToolFamily::Json);
    let user = json!({"role": "user", "content": "ok"});
    let without = json!({"messages": [user], "max_tokens": 2});
    let with = json!({"messages": [user], "max_tokens": 2, "tools": tools()});
    let (without, with) = (prompt_tokens(&rig, &without), prompt_tokens(&rig, &with));
    // A token is a byte, mostly.
    assert!(with > without + 500, "{without} and {with}");
    // The last message is what the model says: here, the result that it is told.
    let call =
        json!({"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}});
    let turns = json!([
        user,
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]);
    let body = json!({"messages": turns, "max_tokens": 200, "temperature": 0});
    let told = post(rig.addr, CHAT, &body).json();
    let want = r#"{"tool_response": {"function": "now", "result": "noon"}}"#;
    assert_eq!(told["choices"][0]["message"]["content"], want, "{told}");
    let rendered = post(rig.addr, "/apply-template", &body).json();
    let want =
        format!(r#"[user]ok[assistant]{{"name": "now", "arguments": {{}}}}<|eos|>{want}<|bos|>"#);
    assert_eq!(rendered["prompt"], want);
}

#[test]
fn tool_prompting_is_in_the_model_description() {
    let rig = rig(ToolFamily::Json);
    let card = &get(rig.addr, "/v1/models").json()["data"][0];
    assert_eq!(
        (&card["tools"], &card["thinking"]),
        (&json!("generic"), &json!(false))
    );
    let shown = post(rig.addr, "/api/show", &json!({"model": "fake"})).json();
    assert_eq!(shown["capabilities"], json!(["completion", "tools"]));
    assert_eq!(shown["tool_prompt"], "generic");
}

#[test]
fn model_without_a_tool_parser_gets_no_tools() {
    let rig = rig(ToolFamily::None);
    for dialect in &DIALECTS {
        let reply = post(
            rig.addr,
            dialect.path,
            &dialect.body("hi", &json!({"stream": false})),
        );
        assert_eq!(reply.head.status, 400, "{}: {}", dialect.name, reply.body);
        assert!(
            reply.body.contains("does not support tools"),
            "{}: {}",
            dialect.name,
            reply.body
        );
    }
    let none = json!({"messages": [{"role": "user", "content": "hi"}], "tools": tools(), "tool_choice": "none"});
    assert_eq!(
        post(rig.addr, CHAT, &none).head.status,
        200,
        "it is told of none"
    );
    let card = &get(rig.addr, "/v1/models").json()["data"][0];
    assert_eq!(card["tools"], "none");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of formats")]
fn model_without_reasoning_reports_that_in_each_dialect() {
    let rig = rig(ToolFamily::Json);
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, think, status) in [
        ("/api/chat", json!(true), 400),
        ("/api/chat", json!("high"), 400),
        ("/api/chat", json!(false), 200),
        ("/api/generate", json!(true), 400),
    ] {
        let body = json!({"messages": messages, "prompt": "hi", "think": think, "stream": false});
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, status, "{path} {think}: {}", reply.body);
        if status == 400 {
            let error = &reply.json()["error"];
            assert_eq!(error, "\"fake\" does not support thinking", "{path}");
        }
    }
    for (path, field, value, named) in [
        (
            CHAT,
            "reasoning_effort",
            json!("high"),
            Some("reasoning_effort"),
        ),
        (CHAT, "reasoning_effort", json!("none"), None),
        (
            "/v1/messages",
            "thinking",
            json!({"type": "enabled", "budget_tokens": 1024}),
            Some("thinking"),
        ),
        (
            "/v1/messages",
            "thinking",
            json!({"type": "disabled"}),
            None,
        ),
        (
            "/v1/responses",
            "reasoning",
            json!({"effort": "low"}),
            Some("reasoning"),
        ),
    ] {
        let mut body = json!({"messages": messages, "input": "hi", "max_tokens": 2000});
        let other = if path == "/v1/responses" {
            "messages"
        } else {
            "input"
        };
        body.as_object_mut().expect("an object").remove(other);
        if path == "/v1/responses" {
            body.as_object_mut()
                .expect("an object")
                .remove("max_tokens");
        }
        body[field] = value;
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
        assert_eq!(
            reply.head.get("x-millrace-ignored-fields"),
            named,
            "{path} {body}"
        );
    }
}
