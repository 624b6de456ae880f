//! gpt-oss: what is thought is free, and the form is that of the final channel, or of the call in the commentary channel.

use super::dialects::{DIALECTS, Dialect, tools};
use super::forced::{any_token, forcing, streamed, validate};
use crate::support::echo::Echo;
use crate::support::{Rig, config, vocab};
use engine::fake::{FakeModel, Gate};
use serde_json::{Value, json};
use std::sync::Arc;

const THOUGHT: &str = "<|channel|>analysis<|message|>hm {\"a\": 2} to=x<|end|><|start|>assistant";

fn echoing() -> Rig {
    Rig::in_channels(Box::new(Echo::in_channels()), config())
}

fn schema() -> Value {
    json!({
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 5}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"], "additionalProperties": false,
    })
}

/// A form as each dialect asks for it.
fn form(dialect: &Dialect) -> Value {
    let form = json!({"type": "json_schema", "schema": schema()});
    let mut over = match dialect.name {
        "anthropic.messages" => json!({"output_config": {"format": form}}),
        "openai.responses" => {
            json!({"text": {"format": {"type": "json_schema", "name": "it", "schema": schema()}}})
        }
        "ollama.chat" => json!({"format": schema()}),
        _ => json!({"response_format": form}),
    };
    over["tools"] = json!([]);
    over
}

#[test]
fn structured_output_applies_to_the_final_channel() {
    let rig = echoing();
    let right = r#"{"a": 1, "b": "x"}"#;
    let bent = r#"{"a": 17, "c": [1, 2], "b": "z"} and more"#;
    for dialect in &DIALECTS {
        for (said, exact) in [(right, true), (bent, false), ("no JSON at all", false)] {
            for thought in [THOUGHT, ""] {
                let script = format!("{thought}<|channel|>final<|message|>{said}<|return|>");
                let story = streamed(&rig, dialect, &script, &form(dialect));
                let case = format!("{}: {script}: {story:?}", dialect.name);
                let want = if thought.is_empty() {
                    ""
                } else {
                    "hm {\"a\": 2} to=x"
                };
                assert_eq!(story.reasoning, want, "{case}");
                let value: Value = serde_json::from_str(&story.text).expect(&case);
                let valid = jsonschema::validator_for(&schema())
                    .expect("a schema")
                    .validate(&value)
                    .is_ok();
                assert!(valid, "{case}");
                assert!(!exact || story.text == right, "{case}");
            }
        }
    }
}

/// Tools whose arguments come to an end, whatever is said.
fn bounded() -> Value {
    let weather = json!({"type": "object", "properties": {
        "unit": {"enum": ["c", "f"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9},
    }, "required": ["unit"], "additionalProperties": false});
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tool = |name: &str, parameters| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    json!([tool("weather", weather), tool("now", none)])
}

#[test]
fn required_tool_call_is_in_the_commentary_channel() {
    let rig = echoing();
    let right = json!({"unit": "f", "days": 2});
    let call = |args: &str| {
        format!(
            "{THOUGHT}<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{args}<|call|>"
        )
    };
    let scripts = [
        (call(&right.to_string()), Some(&right)),
        (call(r#"{"days": 99, "town": "x"}"#), None),
        (
            format!("{THOUGHT}<|channel|>final<|message|>I had rather not.<|return|>"),
            None,
        ),
        (
            format!("{THOUGHT}<|channel|>commentary to=functions.nobody<|message|>{{}}<|call|>"),
            None,
        ),
    ];
    for dialect in &DIALECTS {
        for name in [None, Some("weather")] {
            let Some(choice) = forcing(dialect, name) else {
                continue;
            };
            for (script, exact) in &scripts {
                let over = json!({"tool_choice": choice, "tools": (dialect.tools)(&bounded())});
                let story = streamed(&rig, dialect, script, &over);
                let case = format!("{}, {name:?}: {script}: {story:?}", dialect.name);
                assert_eq!(story.reasoning, "hm {\"a\": 2} to=x", "{case}");
                assert_eq!((story.text.as_str(), story.calls.len()), ("", 1), "{case}");
                let (_, called, arguments) = &story.calls[0];
                assert!(name.is_none_or(|name| name == called), "{case}");
                let schemas = bounded();
                let schema = schemas
                    .as_array()
                    .expect("a list")
                    .iter()
                    .find(|tool| tool["function"]["name"] == **called);
                let schema = &schema.expect("a tool that was given")["function"]["parameters"];
                let valid = jsonschema::validator_for(schema)
                    .expect("a schema")
                    .validate(arguments)
                    .is_ok();
                assert!(valid, "{case}");
                assert!(exact.is_none_or(|exact| exact == arguments), "{case}");
                assert_eq!(story.end, dialect.calls, "{case}");
            }
        }
    }
}

#[test]
fn required_tool_call_in_channels_is_made_by_any_model() {
    const SEEDS: usize = 6;
    let fake = any_token(vocab::CHANNELS.len());
    let gate = Arc::new(Gate::default());
    gate.open();
    let rig = Rig::in_channels(Box::new(FakeModel::gated(fake, gate)), config());
    let (mut whole, mut all) = (0, 0);
    for dialect in &DIALECTS {
        let Some(choice) = forcing(dialect, None) else {
            continue;
        };
        for seed in 0..SEEDS {
            let over =
                json!({"tool_choice": choice, "max_tokens": 1500, "temperature": 1, "seed": seed});
            let story = streamed(&rig, dialect, "x", &over);
            all += 1;
            if story.end == dialect.length {
                continue;
            }
            whole += 1;
            assert_eq!(
                (story.text.as_str(), story.calls.len()),
                ("", 1),
                "{}: {story:?}",
                dialect.name
            );
            validate(&story.calls[0].1, &story.calls[0].2);
            assert_eq!(story.end, dialect.calls, "{}", dialect.name);
        }
    }
    assert!(whole * 10 > all * 5, "{whole} of {all} came to an end");
}

#[test]
fn strict_tools_hold_in_channels() {
    let rig = echoing();
    let mut strict = tools();
    strict[0]["function"]["strict"] = json!(true);
    let call = |args: &str| {
        format!(
            "{THOUGHT}<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary \
             to=functions.weather <|constrain|>json<|message|>{args}<|call|>"
        )
    };
    let free =
        format!("{THOUGHT}<|channel|>final<|message|>to=functions.weather is {{free}}.<|return|>");
    for budget in [json!(null), json!({"max_tokens": 4})] {
        let over = json!({"tools": strict, "reasoning": budget});
        for dialect in [&DIALECTS[0], &DIALECTS[1]] {
            let right = streamed(&rig, dialect, &call(r#"{"city":"Rome"}"#), &over);
            let case = format!("{}: {right:?}", dialect.name);
            if budget.is_null() {
                assert_eq!(
                    (right.text.as_str(), right.reasoning.as_str()),
                    ("I look.", "hm {\"a\": 2} to=x"),
                    "{case}"
                );
                assert_eq!(right.calls[0].2, json!({"city": "Rome"}), "{case}");
                let bent = streamed(
                    &rig,
                    dialect,
                    &call(r#"{"city":"Rome","days":99,"more":1}"#),
                    &over,
                );
                assert_eq!(bent.calls.len(), 1, "{bent:?}");
                validate("weather", &bent.calls[0].2);
                let text = streamed(&rig, dialect, &free, &over);
                assert_eq!(
                    (text.text.as_str(), text.calls.len()),
                    ("to=functions.weather is {free}.", 0)
                );
            } else {
                assert_eq!(right.reasoning.chars().count(), 4, "{case}");
                for (_, name, arguments) in &right.calls {
                    validate(name, arguments);
                }
            }
        }
    }
}
