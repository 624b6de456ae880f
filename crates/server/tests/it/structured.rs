//! Answers with a form: whatever the model would say, a whole answer is valid, streamed or not.

use crate::support::client::{Reply, post};
use crate::support::{Rig, config, fake, vocab};
use engine::fake::FakeConfig;
use model::Dims;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use testing::schemas;

/// A model that may say any token at any time.
fn any_token() -> FakeConfig {
    let vocab = 258 + vocab::WORDS.len();
    FakeConfig {
        dims: Dims {
            vocab,
            context_max: 4096,
            pages: 8192,
            ..fake().dims
        },
        eos_probability: 0.2,
        tokens: 0..vocab as u32,
        ..fake()
    }
}

fn chat(rig: &Rig, seed: usize, fields: &Value) -> Reply {
    let mut body = json!({
        "model": crate::support::MODEL,
        "messages": [{"role": "user", "content": "go on"}],
        "seed": seed,
        "max_tokens": 3000,
    });
    let fields = fields.as_object().expect("fields").clone();
    body.as_object_mut().expect("a body").extend(fields);
    post(rig.addr, "/v1/chat/completions", &body)
}

/// The text of a streamed answer, and why it ended.
fn streamed(reply: &Reply) -> (String, String) {
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let (mut text, mut reason) = (String::new(), String::new());
    for chunk in reply.chunks() {
        let choice = &chunk["choices"][0];
        text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        reason.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    (text, reason)
}

/// Whether the answer came to an end; it is valid then.
fn is_whole(rig: &Rig, at: usize, label: &str, schema: &Value) -> bool {
    let form = json!({"type": "json_schema", "json_schema": {"name": "it", "strict": true, "schema": schema}});
    let (text, reason) = streamed(&chat(
        rig,
        at,
        &json!({"stream": true, "response_format": form}),
    ));
    if reason == "length" {
        return false;
    }
    assert_eq!(reason, "stop", "{label}: {text}");
    expect_valid(label, schema, &text);
    true
}

/// The text is valid under the schema, unless its numbers are larger than any reader's.
fn expect_valid(label: &str, schema: &Value, text: &str) {
    let Some(value) = schemas::parse(text) else {
        return;
    };
    let value = value.unwrap_or_else(|error| panic!("{label}: {error}: {text:?}"));
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(schema);
    let valid = validator
        .expect("a schema")
        .validate(&value)
        .map_err(|e| e.to_string());
    valid.unwrap_or_else(|error| panic!("{label}: {error}: {text}"));
}

/// Promise (Structured output): an answer that is not cut is valid under its schema, whatever the model prefers: 206
/// schemas, streamed, eight at once.
/// Also held by `millrace/tests/it/built_in/forms.rs`, `text/tests/it/grammars.rs`.
#[test]
fn complete_answer_is_valid_under_each_schema() {
    let rig = Rig::with(any_token(), config());
    let schemas = schemas::all();
    assert!(schemas.len() >= 200);
    let (next, whole) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Several at once: they share the batch, the cache of grammars and the thread of masks.
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((label, schema)) = schemas.get(at) else {
                        break;
                    };
                    let came = is_whole(&rig, at, label, schema);
                    whole.fetch_add(usize::from(came), Ordering::Relaxed);
                }
            });
        }
    });
    let whole = whole.into_inner();
    assert!(whole * 10 > schemas.len() * 9, "{whole} came to an end");
    rig.wait_until_empty();
}

#[test]
fn other_structured_outputs_hold_streamed_and_non_streaming() {
    let rig = Rig::with(any_token(), config());
    type Valid = fn(&str) -> bool;
    let rows: [(Value, Valid); 7] = [
        (
            json!({"guided_choice": ["yes", "no", "\u{20AC} and more"]}),
            |text| ["yes", "no", "\u{20AC} and more"].contains(&text),
        ),
        (json!({"guided_regex": "[0-9]{4}-[0-9]{2}"}), |text| {
            text.len() == 7 && text.as_bytes()[4] == b'-'
        }),
        (
            json!({"structured_outputs": {"grammar": "start: \"a\" \"b\"* \"c\""}}),
            |text| text.starts_with('a') && text.ends_with('c'),
        ),
        (
            json!({"grammar": "root ::= \"a\" [b-d]{0,3} \"d\" # GBNF, which is not greedy"}),
            |text| text.starts_with('a') && text.ends_with('d'),
        ),
        (
            json!({"guided_choice": ["hello world, STOP"], "logprobs": true, "top_logprobs": 2}),
            |text| text == "hello world, STOP",
        ),
        (
            json!({"guided_choice": ["hello world"], "temperature": 0, "min_tokens": 50}),
            |text| text == "hello world",
        ),
        (
            json!({"guided_choice": ["hello world"], "ignore_eos": true, "n": 1}),
            |text| text == "hello world",
        ),
    ];
    for (form, valid) in rows {
        for seed in 0..8 {
            let mut wanted = form.clone();
            let whole = chat(&rig, seed, &wanted);
            assert_eq!(whole.head.status, 200, "{form}: {}", whole.body);
            let choice = whole.json()["choices"][0].clone();
            let text = choice["message"]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            assert_eq!(choice["finish_reason"], "stop", "{form}: {text}");
            assert!(valid(&text), "{form}: {text:?}");
            wanted["stream"] = json!(true);
            assert_eq!(streamed(&chat(&rig, seed, &wanted)).0, text, "{form}");
        }
    }
    rig.wait_until_empty();
}

#[test]
fn each_choice_has_its_own_grammar_state() {
    let rig = Rig::with(any_token(), config());
    let fields = json!({"n": 8, "guided_regex": "[a-z]{12}", "temperature": 1});
    let reply = chat(&rig, 3, &fields).json();
    let texts: Vec<String> = (0..8)
        .map(|i| {
            reply["choices"][i]["message"]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    for text in &texts {
        assert!(
            text.len() == 12 && text.bytes().all(|b| b.is_ascii_lowercase()),
            "{text:?}"
        );
    }
    assert!(texts.iter().any(|text| *text != texts[0]));
}

#[test]
fn unsupported_schema_is_rejected_with_its_path() {
    let rig = Rig::with(any_token(), config());
    let of_schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    let bad =
        json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}});
    for (fields, param) in [
        (
            of_schema(bad),
            "response_format.json_schema.schema.properties.a",
        ),
        (
            of_schema(json!({"$ref": "#/$defs/x"})),
            "response_format.json_schema.schema",
        ),
        (
            of_schema(json!({"items": {"$ref": "#/items"}})),
            "response_format.json_schema.schema",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema":
                {"items": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}}}),
            "response_format.json_schema.schema.items.oneOf",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema":
                {"items": {"format": "color"}}}}}),
            "response_format.json_schema.schema.items.format",
        ),
        (json!({"guided_regex": "(["}), "guided_regex"),
        (json!({"guided_regex": "a{1000000}"}), "guided_regex"),
        (json!({"guided_choice": ["a", ""]}), "guided_choice[1]"),
        (json!({"grammar": "root ::= root \"a\""}), "grammar"),
        (
            json!({"guided_regex": "a", "guided_json": {}}),
            "guided_regex",
        ),
    ] {
        for stream in [false, true] {
            let mut fields = fields.clone();
            fields["stream"] = json!(stream);
            let reply = chat(&rig, 0, &fields);
            assert_eq!(reply.head.status, 400, "{param}: {}", reply.body);
            assert_eq!(reply.json()["error"]["param"], param, "{}", reply.body);
        }
    }
    rig.wait_until_empty();
}

/// A discriminated union as pydantic writes it, branches that overlap, and a format that is not known.
///
/// Promise (Structured output): `oneOf` with mutually exclusive branches is enforced; other `oneOf` and unknown
/// formats are accepted, or with `strict` a 400 with the place.
/// Also held by `text/src/grammar/schema_relaxation.rs`.
#[test]
fn one_of_and_unknown_formats_are_accepted() {
    let rig = Rig::with(any_token(), config());
    let pet = |kind: &str| {
        json!({"type": "object", "properties": {"kind": {"const": kind, "type": "string"}}, "required": ["kind"],
            "additionalProperties": false})
    };
    let union = json!({
        "$defs": {"Cat": pet("cat"), "Dog": pet("dog")},
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    });
    assert!(is_whole(&rig, 1, "a union", &union), "strict");
    let loose = json!({"oneOf": [{"type": "integer"}, {"type": "number", "maximum": 3}]});
    let color = json!({"type": "string", "format": "color", "maxLength": 5});
    for schema in [loose, color] {
        let form = json!({"type": "json_schema", "json_schema": {"name": "it", "schema": schema}});
        let reply = chat(&rig, 2, &json!({"response_format": form}));
        assert_eq!(reply.head.status, 200, "{}", reply.body);
    }
    rig.wait_until_empty();
}

/// Those of the schemas that are of an object: what a tool may take.
fn of_objects() -> Vec<(String, Value)> {
    let schemas = schemas::all().into_iter();
    schemas
        .filter(|(_, schema)| schema["type"] == "object")
        .collect()
}

/// Whether a call that must be made came to its end; its arguments are valid then.
fn is_called(rig: &Rig, at: usize, label: &str, schema: &Value) -> bool {
    let tool = |name: &str, schema: &Value| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let tools = [tool("it", schema), tool("other", &json!({}))];
    let choice = json!({"type": "function", "function": {"name": "it"}});
    let reply = chat(
        rig,
        at,
        &json!({"stream": true, "tools": tools, "tool_choice": choice}),
    );
    assert_eq!(reply.head.status, 200, "{label}: {}", reply.body);
    let (mut arguments, mut names, mut reason) = (String::new(), Vec::new(), String::new());
    for chunk in reply.chunks() {
        let choice = &chunk["choices"][0];
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let function = &call["function"];
            names.extend(function["name"].as_str().map(str::to_owned));
            arguments.push_str(function["arguments"].as_str().unwrap_or_default());
        }
        reason.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    if reason == "length" {
        return false;
    }
    assert_eq!(
        (reason.as_str(), names.as_slice()),
        ("tool_calls", &["it".to_owned()][..]),
        "{label}"
    );
    expect_valid(label, schema, &arguments);
    true
}

/// Promise (Structured output): arguments of a required tool call are valid under its schema, for those of the 206
/// schemas that describe an object.
#[test]
fn arguments_of_required_tools_are_valid_under_each_schema() {
    let rig = Rig::with(any_token(), config());
    let schemas = of_objects();
    assert!(schemas.len() >= 120, "{}", schemas.len());
    let (next, whole) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some((label, schema)) = schemas.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let came = is_called(&rig, label.len(), label, schema);
                    whole.fetch_add(usize::from(came), Ordering::Relaxed);
                }
            });
        }
    });
    let whole = whole.into_inner();
    assert!(
        whole * 10 > schemas.len() * 9,
        "{whole} of {} came to an end",
        schemas.len()
    );
    rig.wait_until_empty();
}
