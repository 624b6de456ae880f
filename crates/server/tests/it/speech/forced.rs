//! Answers that must call, must call once, or must stop thinking.
//!
//! Promise (Structured output): a required tool call is one of the given tools, with valid arguments, and only one if
//! parallel calls are off. Reasoning ends at its budget and the constraint begins after it, also with text delimiters
//! and in channels. Both hold in every API, as does the 400 for unsupported schemas.
//! Also held by `generate/src/constraint/reasoning_budget.rs`, `generate/src/constraint/text_delimiters.rs`,
//! `generate/src/constraint/harmony.rs`, `server/tests/it/speech/options.rs`.

use super::dialects::{DIALECTS, Dialect, tools};
use super::story::Story;
use super::transcripts::hermes;
use crate::support::framing::Event;
use crate::support::named::call;
use crate::support::{Rig, config, fake, vocab};
use engine::fake::FakeConfig;
use model::Dims;
use serde_json::{Value, json};

pub(crate) fn streamed(rig: &Rig, dialect: &Dialect, script: &str, over: &Value) -> Story {
    let mut body = dialect.body(script, over);
    body["stream"] = json!(true);
    let reply = call(rig, "POST", dialect.path, "", &body);
    assert_eq!(reply.head.status, 200, "{}: {}", dialect.name, reply.body);
    let events: Vec<Event> = (dialect.events)(&reply.body).expect("whole events");
    let story = (dialect.story)(&events);
    body["stream"] = json!(false);
    let whole = call(rig, "POST", dialect.path, "", &body).json();
    let whole = (dialect.whole)(&whole);
    assert_eq!(
        (&whole.text, &whole.reasoning, &whole.end, whole.calls.len()),
        (&story.text, &story.reasoning, &story.end, story.calls.len()),
        "{}",
        dialect.name
    );
    story
}

/// What forces a call of any tool, or of this one, in each dialect that can say so.
pub(crate) fn forcing(dialect: &Dialect, name: Option<&str>) -> Option<Value> {
    Some(match (dialect.name, name) {
        ("anthropic.messages", None) => json!({"type": "any"}),
        ("anthropic.messages", Some(name)) => json!({"type": "tool", "name": name}),
        ("ollama.chat", _) => return None,
        (_, None) => json!("required"),
        ("openai.responses", Some(name)) => json!({"type": "function", "name": name}),
        (_, Some(name)) => json!({"type": "function", "function": {"name": name}}),
    })
}

pub(crate) fn validate(name: &str, arguments: &Value) {
    let tools = tools();
    let tool = tools.as_array().expect("a list").iter();
    let tool = tool
        .map(|tool| &tool["function"])
        .find(|tool| tool["name"] == name);
    let schema = &tool.expect("a tool that was given")["parameters"];
    let valid = jsonschema::validator_for(schema)
        .expect("a schema")
        .validate(arguments);
    assert!(valid.is_ok(), "{name}: {arguments}");
}

/// A model that may say any token at any time: 256 bytes, two control tokens, and so many words.
pub(crate) fn any_token(words: usize) -> FakeConfig {
    let vocab = 258 + words;
    FakeConfig {
        dims: Dims {
            vocab,
            context_max: 4096,
            pages: 8192,
            ..fake().dims
        },
        eos_probability: 0.2,
        tokens: 0..u32::try_from(vocab).expect("a small vocabulary"),
        ..fake()
    }
}

#[test]
fn required_tool_call_is_made_by_any_model() {
    const SEEDS: usize = 6;
    let rig = Rig::with(any_token(vocab::WORDS.len()), config());
    let (mut whole, mut all) = (0, 0);
    for dialect in &DIALECTS {
        for name in [None, Some("weather"), Some("now")] {
            let Some(choice) = forcing(dialect, name) else {
                continue;
            };
            for seed in 0..SEEDS {
                let case = format!("{}, {name:?}, {seed}", dialect.name);
                let over = json!({
                    "tool_choice": choice, "max_tokens": 1500, "temperature": 1, "seed": seed
                });
                let story = streamed(&rig, dialect, "x", &over);
                all += 1;
                assert_eq!(
                    (story.text.as_str(), story.reasoning.as_str()),
                    ("", ""),
                    "{case}"
                );
                if story.end == dialect.length {
                    continue;
                }
                whole += 1;
                assert_eq!(story.end, dialect.calls, "{case}");
                assert!(!story.calls.is_empty(), "{case}");
                assert!(name.is_none() || story.calls.len() == 1, "{case}");
                for (_, called, arguments) in &story.calls {
                    assert!(name.is_none_or(|name| name == called), "{case}: {called}");
                    validate(called, arguments);
                }
            }
        }
    }
    assert!(whole * 10 > all * 8, "{whole} of {all} came to an end");
}

#[test]
fn required_tool_call_has_no_content_at_any_cut() {
    let rig = Rig::echoing(hermes(), config());
    let script = "[{\"name\": \"now\", \"arguments\": {}}\n,\n{\n  \"name\": \"weather\",\n  \"arguments\": {\"city\": \"Rome\"}}\n]";
    for dialect in &DIALECTS {
        let Some(choice) = forcing(dialect, None) else {
            continue;
        };
        let mut most = 0;
        for max_tokens in (1..script.len()).step_by(3) {
            let over = json!({"tool_choice": choice, "max_tokens": max_tokens});
            let story = streamed(&rig, dialect, script, &over);
            let case = format!("{}, {max_tokens}: {story:?}", dialect.name);
            assert_eq!(story.text, "", "{case}");
            most = most.max(story.calls.len());
        }
        assert_eq!(most, 2, "{}", dialect.name);
    }
}

#[test]
fn reasoning_is_optional_before_a_required_tool_call() {
    let rig = Rig::echoing(hermes(), config());
    let call = json!({"name": "weather", "arguments": {"city": "Rome", "days": 2}});
    let script = format!("<think>\nhm {{}}</think>[{call}]");
    for dialect in &DIALECTS {
        let Some(choice) = forcing(dialect, None) else {
            continue;
        };
        let story = streamed(&rig, dialect, &script, &json!({"tool_choice": choice}));
        assert_eq!(story.reasoning, "hm {}", "{}", dialect.name);
        assert_eq!(
            (story.text.as_str(), story.calls.len()),
            ("", 1),
            "{}",
            dialect.name
        );
        assert_eq!(story.calls[0].2, call["arguments"], "{}", dialect.name);
        assert_eq!(story.end, dialect.calls, "{}", dialect.name);
    }
}

#[test]
fn single_tool_call_is_made_once() {
    let rig = Rig::echoing(hermes(), config());
    let one = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let script = format!("a{one}{one}b");
    for dialect in &DIALECTS[..4] {
        let once = match dialect.name {
            "anthropic.messages" => {
                json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})
            }
            _ => json!({"parallel_tool_calls": false}),
        };
        let story = streamed(&rig, dialect, &script, &once);
        assert_eq!(
            (story.calls.len(), story.text.as_str()),
            (1, "a"),
            "{}",
            dialect.name
        );
        assert_eq!(story.end, dialect.calls, "{}", dialect.name);
        let all = streamed(&rig, dialect, &script, &json!({}));
        assert_eq!(
            (all.calls.len(), all.text.as_str()),
            (2, "ab"),
            "{}",
            dialect.name
        );
    }
}

#[test]
fn strict_tools_keep_their_schemas_and_text_is_unconstrained() {
    let rig = Rig::echoing(hermes(), config());
    let call = |arguments: &str| {
        format!("a<tool_call>{{\"name\":\"weather\",\"arguments\":{arguments}}}</tool_call>b")
    };
    // What is wrong is bent until it is right.
    let wrong = call("{\"city\":\"Rome\",\"days\":99,\"more\":1}");
    for strict in [true, false] {
        let mut tools = tools();
        tools[0]["function"]["strict"] = json!(strict);
        let over = json!({"tools": tools});
        for dialect in [&DIALECTS[0], &DIALECTS[1], &DIALECTS[4]] {
            let right = streamed(&rig, dialect, &call("{\"city\":\"Rome\"}"), &over);
            assert_eq!(
                (right.text.as_str(), right.calls.len()),
                ("ab", 1),
                "{}",
                dialect.name
            );
            assert_eq!(
                right.calls[0].2,
                json!({"city": "Rome"}),
                "{}",
                dialect.name
            );
            let bent = streamed(&rig, dialect, &wrong, &over);
            assert_eq!(bent.calls.len(), 1, "{bent:?}");
            let arguments = &bent.calls[0].2;
            if strict {
                validate("weather", arguments);
            } else {
                assert_eq!(arguments["days"], 99);
            }
        }
        let thought = format!("<think><tool_call>{{</think>{}", call("{\"city\":\"x\"}"));
        let story = streamed(&rig, &DIALECTS[0], &thought, &over);
        assert_eq!(
            (story.reasoning.as_str(), story.calls.len()),
            ("<tool_call>{", 1)
        );
    }
}

#[test]
fn reasoning_ends_at_its_budget() {
    let rig = Rig::echoing(hermes(), config());
    for dialect in &DIALECTS[..2] {
        for (script, over) in [
            ("<think>abcdefgh</think>x", json!({})),
            (
                "abcdefgh</think>x",
                json!({"chat_template_kwargs": {"enable_thinking": true}}),
            ),
        ] {
            let mut over = over;
            over["reasoning"] = json!({"max_tokens": 4});
            let story = streamed(&rig, dialect, script, &over);
            assert_eq!(story.reasoning, "abcd", "{}: {script}", dialect.name);
            over["reasoning"] = json!({"max_tokens": 8});
            let story = streamed(&rig, dialect, script, &over);
            assert_eq!(
                (story.reasoning.as_str(), story.text.as_str()),
                ("abcdefgh", "x")
            );
        }
    }
}

#[test]
fn structured_output_begins_after_the_reasoning() {
    let rig = Rig::echoing(hermes(), config());
    let form = json!({"type": "json_schema", "json_schema": {"schema": {
        "type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false,
    }}});
    let opened = json!({"enable_thinking": true});
    for (script, kwargs) in [
        ("<think>hm</think>{\"a\":1}", json!({})),
        ("hm</think>{\"a\":1}", opened),
    ] {
        let over = json!({"tools": [], "response_format": form, "chat_template_kwargs": kwargs});
        let story = streamed(&rig, &DIALECTS[0], script, &over);
        assert_eq!(story.reasoning, "hm", "{script}");
        let value: Value = serde_json::from_str(&story.text).expect("JSON");
        assert_eq!(value, json!({"a": 1}), "{script}");
        assert_eq!(story.end, "stop", "{script}");
    }
}

/// Another tool is called with arguments that match; without `strict`, the unsupported schema takes any object.
#[test]
fn unsupported_schema_is_rejected_if_the_tool_is_strict() {
    let rig = Rig::echoing(hermes(), config());
    let tool = |name: &str, parameters: Value, strict: bool| json!({"type": "function", "function": {"name": name, "strict": strict, "parameters": parameters}});
    let unsupported = json!({"type": "object", "properties": {"x": {"not": {"pattern": "a"}}}});
    let ask = |strict, choice: Value| {
        let tools = [
            tool("f", unsupported.clone(), strict),
            tool("g", json!({"type": "object", "properties": {}}), strict),
        ];
        let body = DIALECTS[0].body("x", &json!({"tools": tools, "tool_choice": choice}));
        call(&rig, "POST", DIALECTS[0].path, "", &body)
    };
    let named = json!({"type": "function", "function": {"name": "f"}});
    for choice in [json!("required"), named] {
        let error = ask(true, choice.clone());
        assert_eq!(error.head.status, 400, "{choice}");
        let error = error.json();
        assert_eq!(error["error"]["code"], "invalid_json_schema", "{error}");
        let place = error["error"]["param"].as_str().expect("a place");
        assert!(
            place.starts_with("tools[0].parameters.properties.x"),
            "{place}"
        );
        assert_eq!(ask(false, choice.clone()).head.status, 200, "{choice}");
    }
}
