//! Fields of a request other than the conversation.

use super::{bad_fields, message};
use crate::anthropic::message_request;
use crate::fields::Fields;
use crate::request_parser::tests::parsed_request;
use crate::shared::error_response::status_code;
use generate::request::{GenerateRequest, Prompt};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn parsed(over: &Value) -> (Vec<Value>, Map<String, Value>) {
    let mut request = message(over).unwrap_or_else(|e| panic!("{over}: {}", e.message));
    match request.prompts.remove(0) {
        Prompt::Conversation { tools, kwargs, .. } => (tools, kwargs),
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_field_is_named() {
    let rows = [
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": "5"}), "max_tokens"),
        (json!({"stop_sequences": "x"}), "stop_sequences"),
        (json!({"stop_sequences": vec!["x"; 17]}), "stop_sequences"),
        (json!({"stop_sequences": ["x", ""]}), "stop_sequences[1]"),
        (
            json!({"stop_sequences": vec!["x"; 16], "stop": "y"}),
            "stop_sequences",
        ),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 1.5}), "top_p"),
        (json!({"top_k": 0.5}), "top_k"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"n": 2}), "n"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"metadata": "me"}), "metadata"),
        (json!({"metadata": {"user_id": 7}}), "metadata.user_id"),
        (json!({"service_tier": 1}), "service_tier"),
        (json!({"thinking": true}), "thinking"),
        (json!({"thinking": {"type": "deep"}}), "thinking.type"),
        (
            json!({"thinking": {"type": "enabled"}, "max_tokens": 9000}),
            "thinking.budget_tokens",
        ),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 1023}, "max_tokens": 9000}),
            "thinking.budget_tokens",
        ),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 9000}, "max_tokens": 9000}),
            "thinking.budget_tokens",
        ),
        (
            json!({"output_config": {"effort": 1}}),
            "output_config.effort",
        ),
        (json!({"mcp_servers": [{}]}), "mcp_servers"),
        (json!({"container": "c"}), "container"),
    ];
    rows.into_iter().for_each(assert_rejected);
}

#[test]
fn invalid_tool_is_named() {
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    let rows = [
        (json!({"tools": {}}), "tools"),
        (json!({"tools": ["f"]}), "tools[0]"),
        (json!({"tools": [{"input_schema": {}}]}), "tools[0].name"),
        (
            json!({"tools": [{"name": "a b", "input_schema": {}}]}),
            "tools[0].name",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema"),
        (
            json!({"tools": [{"name": "f", "input_schema": {}, "description": 1}]}),
            "tools[0].description",
        ),
        (
            json!({"tools": [{"type": 1, "name": "f"}]}),
            "tools[0].type",
        ),
        (
            json!({"tools": [{"name": "f", "input_schema": {}, "strict": 1}]}),
            "tools[0].strict",
        ),
        (json!({"tools": [tool, tool]}), "tools[1].name"),
        (json!({"tool_choice": "auto"}), "tool_choice"),
        (json!({"tool_choice": {"type": "auto"}}), "tool_choice"),
        (
            json!({"tools": [tool], "tool_choice": {"type": "tool"}}),
            "tool_choice.name",
        ),
        (
            json!({"tools": [tool], "tool_choice": {"type": "tool", "name": "g"}}),
            "tool_choice.name",
        ),
        (
            json!({"tools": [tool], "tool_choice": {"type": "must"}}),
            "tool_choice.type",
        ),
        (
            json!({"tools": [tool], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}),
            "tool_choice.disable_parallel_tool_use",
        ),
    ];
    rows.into_iter().for_each(assert_rejected);
}

/// Asserts that one field is rejected.
fn assert_rejected((over, want): (Value, &str)) {
    let error = message(&over).expect_err(want);
    assert_eq!(bad_fields(&error), [want], "{over}");
    assert_eq!(status_code(error.kind).as_u16(), 400, "{over}");
}

#[test]
fn all_invalid_fields_are_reported_at_once() {
    let over = json!({
        "messages": [], "max_tokens": null, "stop_sequences": [1], "temperature": 9, "tools": [{}],
    });
    let error = message(&over).expect_err("all fields are wrong");
    let want = [
        "messages",
        "tools[0].name",
        "tools[0].input_schema",
        "temperature",
        "stop_sequences[0]",
        "max_tokens",
    ];
    assert_eq!(bad_fields(&error), want);
}

type Check = fn(&GenerateRequest) -> bool;

#[test]
fn valid_request_is_parsed() {
    let rows: [(Value, Check); 7] = [
        (json!({}), |a| {
            a.n == 1 && a.params.max_tokens == Some(5) && !a.stream_options.stream
        }),
        (json!({"stream": true}), |a| {
            a.stream_options.stream && a.stream_options.include_usage
        }),
        (json!({"stop_sequences": ["a", "b"]}), |a| {
            a.params.stops == ["a", "b"]
        }),
        (json!({"stop_sequences": []}), |a| a.params.stops.is_empty()),
        (
            json!({"temperature": 0.5, "top_p": 0.25, "top_k": 7}),
            |a| {
                let sampling = &a.params.sampling;
                (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.25, 7)
            },
        ),
        (
            json!({"metadata": {"user_id": null}, "service_tier": "standard_only"}),
            |a| a.stream_options.service_tier_given,
        ),
        (
            json!({"frobnicate": {"a": 1}, "mcp_servers": [], "cache_control": {"type": "ephemeral"}}),
            |a| a.prompts.len() == 1,
        ),
    ];
    for (over, check) in rows {
        let request = message(&over).unwrap_or_else(|e| panic!("{over}: {}", e.message));
        assert!(check(&request), "{over}: {request:?}");
    }
}

#[test]
fn thinking_and_effort_set_template_variables() {
    let rows = [
        (json!({}), json!({})),
        (
            json!({"thinking": {"type": "disabled"}}),
            json!({"enable_thinking": false}),
        ),
        (
            json!({"thinking": {"type": "adaptive"}}),
            json!({"enable_thinking": true}),
        ),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096}),
            json!({"enable_thinking": true, "thinking_budget": 2048}),
        ),
        (
            json!({"output_config": {"effort": "low"}}),
            json!({"reasoning_effort": "low"}),
        ),
    ];
    for (over, want) in rows {
        assert_eq!(Value::Object(parsed(&over).1), want, "{over}");
    }
}

#[test]
fn invalid_output_format_is_named() {
    let rows = [
        (
            json!({"output_config": {"format": {"type": "json_schema"}}}),
            "output_config.format.schema",
        ),
        (
            json!({"output_config": {"format": {"type": "regex"}}}),
            "output_config.format.type",
        ),
        (
            json!({"output_format": {"type": "json_schema", "schema": 7}}),
            "output_format.schema",
        ),
        (json!({"output_format": 7}), "output_format"),
        (
            json!({
                "output_config": {"format": {"type": "json_schema", "schema": {}}},
                "guided_regex": "a",
            }),
            "guided_regex",
        ),
    ];
    rows.into_iter().for_each(assert_rejected);
}

#[test]
fn output_format_is_parsed() {
    let schema = json!({"type": "object", "properties": {"yes": {"type": "boolean"}}});
    let format = json!({"type": "json_schema", "schema": schema});
    for (over, field) in [
        (json!({}), None),
        (json!({"output_config": {"format": null}}), None),
        (
            json!({"output_config": {"format": format, "effort": "low"}}),
            Some("output_config.format.schema"),
        ),
        (
            json!({"output_format": format}),
            Some("output_format.schema"),
        ),
    ] {
        let response_format = message(&over).expect("understood").params.response_format;
        let source = text::GrammarSource::JsonSchema(schema.clone());
        let got = response_format
            .as_ref()
            .map(|response_format| (response_format.field.as_str(), &response_format.source));
        assert_eq!(got, field.map(|field| (field, &source)), "{over}");
    }
}

#[test]
fn tools_are_converted_for_the_chat_template() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tools = json!([
        {"name": "weather", "description": "Tells it.", "input_schema": schema},
        {"type": "custom", "name": "time", "input_schema": {}},
    ]);
    let weather = json!({"type": "function", "function": {
        "name": "weather", "description": "Tells it.", "parameters": schema,
    }});
    let time = json!({"type": "function", "function": {"name": "time", "parameters": {}}});
    for (choice, want) in [
        (Value::Null, vec![weather.clone(), time.clone()]),
        (json!({"type": "auto"}), vec![weather, time]),
        (json!({"type": "none"}), Vec::new()),
    ] {
        let over = json!({"tools": tools, "tool_choice": choice});
        assert_eq!(parsed(&over).0, want, "{choice}");
    }
}

proptest! {
    /// No body causes a panic; every error response names a field or a position.
    #[test]
    fn any_body_is_parsed_or_rejected(body in any_body()) {
        let parsed = parsed_request(message_request::parse, body.as_bytes());
        let counted = Fields::parse(body.as_bytes()).and_then(message_request::parse_prompt);
        for error in [parsed.err(), counted.err()].into_iter().flatten() {
            prop_assert!(status_code(error.kind).is_client_error() && !error.message.is_empty());
            prop_assert!(error.problems.iter().all(|p| !p.field.is_empty()));
        }
    }
}

/// Objects whose known fields have any value, and blocks of any type.
fn any_body() -> impl Strategy<Value = String> {
    const NAMES: [&str; 14] = [
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "metadata",
        "role",
        "content",
        "type",
        "text",
        "input",
        "tool_use_id",
        "max_tokens",
        "stop_sequences",
    ];
    const WORDS: [&str; 9] = [
        "user",
        "assistant",
        "text",
        "tool_use",
        "tool_result",
        "thinking",
        "enabled",
        "auto",
        "é\n",
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        prop::sample::select(&WORDS[..]).prop_map(|word| json!(word).to_string()),
        Just(r#"{"role":"user","content":"x"}"#.to_owned()),
    ];
    let value = leaf.prop_recursive(4, 24, 4, |inner| {
        let pair = (prop::sample::select(&NAMES[..]), inner.clone())
            .prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..4).prop_map(|pairs| format!("{{{}}}", pairs.join(","))),
        ]
    });
    let field = (prop::sample::select(&NAMES[..]), value)
        .prop_map(|(name, value)| format!("\"{name}\":{value}"));
    prop::collection::vec(field, 0..6).prop_map(|fields| format!("{{{}}}", fields.join(",")))
}
