//! Objects that are closed by default, in every field that takes a schema and for tools; what a request and the
//! settings say otherwise.

use super::dialects::{DIALECTS, Dialect};
use super::forced::{forcing, streamed};
use super::transcripts::hermes;
use crate::support::{Rig, config};
use serde_json::{Value, json};
use server::ServerConfig;

const SCRIPT: &str = "{\"a\":1,\"z\":2}";

fn schema() -> Value {
    json!({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})
}

/// Every way in which a dialect takes a schema.
fn forms(dialect: &Dialect) -> Vec<Value> {
    let schema = schema();
    let named = json!({"type": "json_schema", "json_schema": {"name": "it", "schema": schema}});
    let flat = json!({"type": "json_schema", "name": "it", "schema": schema});
    match dialect.name {
        "openai.responses" => vec![json!({"text": {"format": flat}})],
        "anthropic.messages" => vec![
            json!({"output_config": {"format": flat}}),
            json!({"output_format": flat}),
        ],
        "ollama.chat" => vec![json!({"format": schema})],
        _ => vec![
            json!({"response_format": named}),
            json!({"response_format": {"type": "json_object", "schema": schema}}),
            json!({"structured_outputs": {"json": schema}}),
            json!({"guided_json": schema}),
            json!({"json_schema": schema}),
        ],
    }
}

fn said(rig: &Rig, dialect: &Dialect, over: &Value) -> Value {
    let story = streamed(rig, dialect, SCRIPT, over);
    serde_json::from_str(&story.text).unwrap_or_else(|error| panic!("{error}: {over}: {story:?}"))
}

#[test]
fn objects_of_structured_output_are_closed_by_default() {
    let rig = Rig::echoing(hermes(), config());
    let set_open = ServerConfig {
        closed_objects: false,
        ..config()
    };
    let open = Rig::echoing(hermes(), set_open);
    let (closed, written) = (json!({"a": 1}), json!({"a": 1, "z": 2}));
    for dialect in &DIALECTS {
        for mut over in forms(dialect) {
            over["tools"] = json!([]);
            let case = format!("{}: {over}", dialect.name);
            assert_eq!(said(&rig, dialect, &over), closed, "{case}");
            assert_eq!(said(&open, dialect, &over), written, "{case}");
            over["disable_additional_properties"] = json!(false);
            assert_eq!(said(&rig, dialect, &over), written, "{case}");
            over["disable_additional_properties"] = json!(true);
            assert_eq!(said(&open, dialect, &over), closed, "{case}");
        }
    }
    let inside = json!({"json": schema(), "disable_additional_properties": false});
    let inside = json!({"tools": [], "structured_outputs": inside});
    assert_eq!(said(&rig, &DIALECTS[0], &inside), written);
    let mut explicit = schema();
    explicit["additionalProperties"] = json!(true);
    let explicit = json!({"tools": [], "guided_json": explicit});
    assert_eq!(said(&rig, &DIALECTS[0], &explicit), written);
}

/// Tools of which the first has properties and says nothing of others.
fn tools(dialect: &Dialect, strict: bool) -> Value {
    (dialect.tools)(&json!([{"type": "function", "function": {
        "name": "f", "parameters": schema(), "strict": strict,
    }}]))
}

#[test]
fn tool_arguments_are_closed_by_default() {
    let rig = Rig::echoing(hermes(), config());
    let call = format!("{{\"name\":\"f\",\"arguments\":{SCRIPT}}}");
    for dialect in &DIALECTS {
        let required = forcing(dialect, None).map(|choice| (choice, format!("[{call}]"), false));
        let named = forcing(dialect, Some("f")).map(|choice| (choice, call.clone(), false));
        let strict = match dialect.name {
            "ollama.chat" => None,
            "anthropic.messages" => Some(json!({"type": "auto"})),
            _ => Some(json!("auto")),
        };
        let strict = strict.map(|choice| (choice, format!("<tool_call>{call}</tool_call>"), true));
        for (choice, script, strict) in [required, named, strict].into_iter().flatten() {
            let mut over = json!({"tools": tools(dialect, strict), "tool_choice": choice});
            for (is_open, arguments) in [(false, json!({"a": 1})), (true, json!({"a": 1, "z": 2}))]
            {
                if is_open {
                    over["disable_additional_properties"] = json!(false);
                }
                let story = streamed(&rig, dialect, &script, &over);
                let case = format!("{}: {over}: {story:?}", dialect.name);
                assert_eq!(story.calls.len(), 1, "{case}");
                assert_eq!(story.calls[0].2, arguments, "{case}");
            }
        }
    }
}
