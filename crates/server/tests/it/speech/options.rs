//! What a request may ask of reasoning, calls and forms, in the words of each dialect.

use super::dialects::{DIALECTS, Dialect, tools};
use super::forced::{forcing, streamed, validate};
use super::transcripts::hermes;
use crate::support::named::call;
use crate::support::{Rig, client, config};
use serde_json::{Value, json};

fn dialect(name: &str) -> &'static Dialect {
    let found = DIALECTS.iter().find(|dialect| dialect.name == name);
    found.expect("a dialect")
}

/// Anthropic's least budget, and more thoughts than that.
const BUDGET_MIN: usize = 1024;
const THOUGHTS: usize = BUDGET_MIN + 16;

#[test]
fn reasoning_budget_reaches_the_engine() {
    let rig = Rig::echoing(hermes(), config());
    let thought = "t".repeat(THOUGHTS);
    let opened = json!({"enable_thinking": true});
    let rows = [
        (
            "openai.responses",
            "<think>abcdefgh</think>x",
            json!({"reasoning": {"max_tokens": 4}}),
            4,
        ),
        (
            "openai.responses",
            "<think>abcdefgh</think>x",
            json!({"reasoning": {"max_tokens": 9}}),
            8,
        ),
        (
            "openai.responses",
            "abcdefgh</think>x",
            json!({"thinking": {"budget_tokens": 5}, "chat_template_kwargs": opened}),
            5,
        ),
        (
            "anthropic.messages",
            &format!("{thought}</think>x"),
            json!({"max_tokens": 1200, "thinking": {"type": "enabled", "budget_tokens": BUDGET_MIN}}),
            BUDGET_MIN,
        ),
        (
            "anthropic.messages",
            &format!("{thought}</think>x"),
            json!({"max_tokens": 1200, "thinking": {"type": "enabled", "budget_tokens": THOUGHTS + 1}}),
            THOUGHTS,
        ),
    ];
    for (name, script, over, thought) in rows {
        let story = streamed(&rig, dialect(name), script, &over);
        assert_eq!(story.reasoning.len(), thought, "{name}: {over}");
        // What it had not thought is what it says, for it says its script.
        assert!(story.text.ends_with('x'), "{name}: {story:?}");
    }
    let body = json!({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 1200,
        "thinking": {"type": "enabled", "budget_tokens": BUDGET_MIN - 1},
    });
    let refused = call(&rig, "POST", "/v1/messages", "", &body);
    assert_eq!(refused.head.status, 400, "{}", refused.body);
    assert!(
        refused.body.contains("thinking.budget_tokens"),
        "{}",
        refused.body
    );
}

#[test]
fn strict_tools_hold_in_every_dialect() {
    let rig = Rig::echoing(hermes(), config());
    let said = |arguments: &str| {
        format!("<tool_call>{{\"name\":\"weather\",\"arguments\":{arguments}}}</tool_call>")
    };
    let wrong = "{\"city\":\"Rome\",\"days\":99,\"more\":1}";
    for dialect in &DIALECTS {
        for strict in [true, false] {
            let mut given = tools();
            given[0]["function"]["strict"] = json!(strict);
            let over = json!({"tools": (dialect.tools)(&given)});
            let right = streamed(&rig, dialect, &said("{\"city\":\"Rome\"}"), &over);
            assert_eq!(right.calls.len(), 1, "{}: {right:?}", dialect.name);
            assert_eq!(
                right.calls[0].2,
                json!({"city": "Rome"}),
                "{}",
                dialect.name
            );
            let story = streamed(&rig, dialect, &said(wrong), &over);
            assert_eq!(story.calls.len(), 1, "{}: {story:?}", dialect.name);
            if strict {
                validate("weather", &story.calls[0].2);
            } else {
                assert_eq!(story.calls[0].2["days"], 99, "{}", dialect.name);
            }
        }
    }
}

/// What lines of `/api/generate` say together: thoughts and answer.
fn generated(body: &str) -> (String, String) {
    let lines = body
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let (mut thinking, mut response) = (String::new(), String::new());
    for line in lines {
        thinking += line["thinking"].as_str().unwrap_or_default();
        response += line["response"].as_str().unwrap_or_default();
    }
    (thinking, response)
}

#[test]
fn generate_route_has_reasoning() {
    let rig = Rig::echoing(hermes(), config());
    let rows = [
        ("hm</think>\n\nyes", json!(true), "hm", "yes"),
        ("hm</think>\n\nyes", json!(false), "", "hm</think>\n\nyes"),
        ("hm</think>\n\nyes", json!("high"), "hm", "yes"),
        ("<think>hm</think>yes", Value::Null, "hm", "yes"),
        ("yes", Value::Null, "", "yes"),
    ];
    for (script, think, thinking, response) in rows {
        for stream in [true, false] {
            let mut body = json!({
                "prompt": script, "stream": stream,
                "options": {"temperature": 0, "num_predict": 100, "repeat_penalty": 1},
            });
            if !think.is_null() {
                body["think"] = think.clone();
            }
            let reply = client::post(rig.addr, "/api/generate", &body);
            assert_eq!(reply.head.status, 200, "{}", reply.body);
            let told = generated(&reply.body);
            assert_eq!(
                (told.0.as_str(), told.1.as_str()),
                (thinking, response),
                "{script}, {think}"
            );
        }
    }
}

/// A schema that no grammar keeps, at `properties.x`.
fn never_kept() -> Value {
    json!({"type": "object", "properties": {"x": {"not": {"pattern": "a"}}}})
}

fn refused_with(rig: &Rig, path: &str, body: &Value, places: &[&str]) {
    let reply = call(rig, "POST", path, "", body);
    assert_eq!(reply.head.status, 400, "{path}: {body}: {}", reply.body);
    for place in places {
        assert!(
            reply.body.contains(place),
            "{path}: {place}: {}",
            reply.body
        );
    }
}

#[test]
fn unsupported_schema_is_rejected_with_its_path() {
    let rig = Rig::echoing(hermes(), config());
    let (schema, given) = (
        never_kept(),
        json!({"type": "json_schema", "schema": never_kept()}),
    );
    let openai = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}});
    let rows = [
        (
            "/v1/chat/completions",
            openai.clone(),
            "response_format.json_schema.schema",
        ),
        (
            "/v1/completions",
            openai.clone(),
            "response_format.json_schema.schema",
        ),
        (
            "/v1/inference",
            openai,
            "response_format.json_schema.schema",
        ),
        (
            "/v1/messages",
            json!({"output_config": {"format": given}}),
            "output_config.format.schema",
        ),
        (
            "/v1/responses",
            json!({"text": {"format": {"type": "json_schema", "name": "it", "schema": schema}}}),
            "text.format.schema",
        ),
        ("/api/chat", json!({"format": schema}), "format"),
        ("/api/generate", json!({"format": schema}), "format"),
    ];
    for (path, form, field) in rows {
        let mut body = json!({"max_tokens": 5, "options": {"num_predict": 5}});
        match path {
            "/v1/completions" | "/api/generate" => body["prompt"] = json!("x"),
            "/v1/responses" => body["input"] = json!("x"),
            _ => body["messages"] = json!([{"role": "user", "content": "x"}]),
        }
        assert_eq!(
            call(&rig, "POST", path, "", &body).head.status,
            200,
            "{path}: it is the form"
        );
        for (name, value) in form.as_object().expect("fields") {
            body[name] = value.clone();
        }
        refused_with(&rig, path, &body, &[&format!("{field}.properties.x")]);
    }
}

#[test]
fn unsupported_strict_tool_is_rejected_with_its_path() {
    let rig = Rig::echoing(hermes(), config());
    let tool = |strict: bool| json!({"type": "function", "function": {"name": "f", "strict": strict, "parameters": never_kept()}});
    for dialect in &DIALECTS {
        let given = |strict| (dialect.tools)(&json!([tools()[1], tool(strict)]));
        let free = dialect.body("x", &json!({"tools": given(false)}));
        let reply = call(&rig, "POST", dialect.path, "", &free);
        assert_eq!(reply.head.status, 200, "{}: {}", dialect.name, reply.body);
        let strict = dialect.body("x", &json!({"tools": given(true)}));
        refused_with(
            &rig,
            dialect.path,
            &strict,
            &["tools[1]", "parameters.properties.x"],
        );
        if let Some(choice) = forcing(dialect, None) {
            let must = dialect.body("x", &json!({"tools": given(false), "tool_choice": choice}));
            // The tool takes any object then: a call of another tool may be meant.
            let reply = call(&rig, "POST", dialect.path, "", &must);
            assert_eq!(reply.head.status, 200, "{}: {}", dialect.name, reply.body);
        }
    }
}
