//! Tools other than functions: custom ones and those of namespaces are called as their client knows them, hosted ones are
//! left out and named.

use super::{RESPONSES, path_of};
use crate::support::client::{Reply, get, post};
use crate::support::named::{kept, set_fields};
use crate::support::{Rig, config};
use serde_json::{Value, json};
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

const IGNORED: &str = "x-millrace-ignored-fields";
/// The calls that the model writes: a custom tool, a function of a namespace, a custom tool of a namespace by arguments of
/// another form.
const SCRIPT: &str = concat!(
    r#"<tool_call>{"name": "apply_patch", "arguments": {"input": "*** Begin\n+\"x\"\n"}}</tool_call>"#,
    r#"<tool_call>{"name": "agents__spawn", "arguments": {"task": "t"}}</tool_call>"#,
    r#"<tool_call>{"name": "agents__run", "arguments": {"code": "1 + 1"}}</tool_call>"#,
);

fn hermes() -> AnswerFormat {
    AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    }
}

fn tools() -> Value {
    json!([
        {"type": "function", "name": "exec", "parameters": {"type": "object"}, "strict": false},
        {"type": "custom", "name": "apply_patch", "description": "d",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [
            {"type": "function", "name": "spawn", "description": "One.", "parameters": {"type": "object"}},
            {"type": "custom", "name": "run"},
            {"type": "mcp", "server_label": "m"},
        ]},
        {"type": "web_search", "external_web_access": false},
    ])
}

fn ask(rig: &Rig, over: &Value) -> Reply {
    let mut body = json!({
        "input": SCRIPT, "temperature": 0, "max_output_tokens": 900, "tools": tools(),
    });
    set_fields(&mut body, over);
    let reply = post(rig.addr, RESPONSES, &body);
    assert_eq!(reply.head.status, 200, "{over}: {}", reply.body);
    reply
}

/// The items of calls without what is each stream's own.
fn calls(output: &Value) -> Vec<Value> {
    let items = output.as_array().expect("items").iter();
    items
        .map(|item| {
            let mut item = item.clone();
            let id = item["id"].as_str().unwrap_or_default();
            item["id"] = json!(id.split('_').next());
            assert!(item["call_id"].is_string(), "{item}");
            item["call_id"] = Value::Null;
            item
        })
        .collect()
}

fn expected() -> Vec<Value> {
    let same = json!({"status": "completed", "call_id": null});
    let with = |fields: Value| {
        let mut item = same.clone();
        for (name, value) in fields.as_object().expect("fields") {
            item[name] = value.clone();
        }
        item
    };
    vec![
        with(
            json!({"id": "ctc", "type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin\n+\"x\"\n"}),
        ),
        with(json!({
            "id": "fc", "type": "function_call", "namespace": "agents", "name": "spawn", "arguments": "{\"task\": \"t\"}",
        })),
        with(
            json!({"id": "ctc", "type": "custom_tool_call", "namespace": "agents", "name": "run", "input": "1 + 1"}),
        ),
    ]
}

#[test]
fn custom_and_namespaced_calls_have_the_form_of_the_client() {
    let rig = Rig::echoing(hermes(), kept());
    let whole = ask(&rig, &json!({})).json();
    assert_eq!(calls(&whole["output"]), expected());
    assert_eq!(get(rig.addr, &path_of(&whole)).json(), whole, "stored");
    let streamed = ask(&rig, &json!({"stream": true})).body;
    let events: Vec<Value> = streamed
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let done: Value = of("response.output_item.done")
        .map(|event| event["item"].clone())
        .collect();
    assert_eq!(calls(&done), expected());
    let last = &of("response.completed").next().expect("the last event")["response"];
    assert_eq!(calls(&last["output"]), expected());
    let text = |kind: &'static str, name: &str| {
        of(kind)
            .map(|event| event[name].as_str().expect("text"))
            .collect::<String>()
    };
    assert_eq!(
        text("response.custom_tool_call_input.delta", "delta"),
        "*** Begin\n+\"x\"\n"
    );
    assert_eq!(
        text("response.custom_tool_call_input.done", "input"),
        "*** Begin\n+\"x\"\n1 + 1"
    );
    assert_eq!(
        text("response.function_call_arguments.delta", "delta"),
        "{\"task\": \"t\"}"
    );
    let first = &of("response.output_item.added").next().expect("an item")["item"];
    assert_eq!(
        (&first["type"], &first["input"]),
        (&json!("custom_tool_call"), &json!(""))
    );
    rig.wait_until_empty();
}

#[test]
fn history_of_custom_and_hosted_calls_is_read() {
    let rig = Rig::echoing(hermes(), config());
    let earlier = ask(&rig, &json!({})).json();
    let mut input = vec![json!({"role": "user", "content": "a"})];
    for item in earlier["output"].as_array().expect("items") {
        input.push(item.clone());
    }
    for item in earlier["output"].as_array().expect("items") {
        let kind = format!("{}_output", item["type"].as_str().expect("a type"));
        input.push(json!({"type": kind, "call_id": item["call_id"], "output": "done"}));
    }
    input.push(json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}));
    input.push(json!({"role": "user", "content": "no calls"}));
    let reply = ask(&rig, &json!({"input": input}));
    let named = reply.head.get(IGNORED).expect("the header");
    assert_eq!(
        named,
        "input.web_search_call, tools.format, tools.mcp, tools.web_search"
    );
    let kinds: Vec<Value> = get(
        rig.addr,
        &format!("{}/input_items?order=asc", path_of(&reply.json())),
    )
    .json()["data"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| item["type"].clone())
        .collect();
    assert_eq!(kinds[1], "custom_tool_call", "{kinds:?}");
    assert_eq!(kinds[4], "custom_tool_call_output", "{kinds:?}");
    // All of it again, by the id of the response.
    let then = ask(
        &rig,
        &json!({"previous_response_id": reply.json()["id"], "input": "b"}),
    );
    assert_eq!(then.head.status, 200, "{}", then.body);
    rig.wait_until_empty();
}

#[test]
fn tools_of_servers_are_left_out_in_every_protocol() {
    let rig = Rig::echoing(hermes(), config());
    let function = json!({"type": "function", "function": {"name": "f"}});
    let use_of = json!([
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "text", "text": "b"},
    ]);
    let turns = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": use_of}, {"role": "user", "content": "c"}]);
    let searched = json!({"type": "web_search_20250305", "name": "web_search"});
    for (path, body, named) in [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "a"}], "tools": [function, {"type": "web_search_preview"}]}),
            "tools.web_search_preview",
        ),
        (
            "/v1/messages",
            json!({"max_tokens": 5, "messages": turns, "tools": [searched], "tool_choice": {"type": "auto"}}),
            "messages.server_tool_use, tools.web_search_20250305",
        ),
        (
            RESPONSES,
            json!({"input": "a", "tools": [{"type": "a b"}, {"type": "web_search"}, {"type": "web_search"}]}),
            "..., tools.web_search",
        ),
    ] {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
        assert_eq!(reply.head.get(IGNORED), Some(named), "{path}");
    }
    rig.wait_until_empty();
}
