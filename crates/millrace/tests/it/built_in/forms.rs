//! Schemas over a real vocabulary and a real forward pass: tokens of several letters cross the borders of a form, and
//! some are forced.

use super::ARGS;
use super::dialects::body_of;
use crate::support::Serving;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

use testing::schemas;

const AT_ONCE: usize = 8;
/// Of an answer. The model fills what a form leaves open as it likes, so some answers are longer.
const TOKENS_MAX: u32 = 300;

/// What a streamed answer says, each call's arguments, and why it ended.
#[derive(Default)]
struct Answer {
    text: String,
    arguments: Vec<String>,
    end: String,
}

impl Answer {
    fn of(serving: &Serving, seed: usize, fields: &Value) -> Self {
        let mut body = json!({
            "messages": [{"role": "user", "content": "Tell me about a fox."}],
            "stream": true, "seed": seed, "temperature": 1, "max_tokens": TOKENS_MAX,
        });
        let fields = fields.as_object().expect("fields").clone();
        body.as_object_mut().expect("a body").extend(fields);
        let reply = serving.post("/v1/chat/completions", &body.to_string());
        assert!(reply.starts_with("HTTP/1.1 200"), "{body}: {reply}");
        let mut answer = Self::default();
        for data in body_of(&reply)
            .lines()
            .filter_map(|line| line.strip_prefix("data: {"))
        {
            let chunk: Value = serde_json::from_str(&format!("{{{data}")).expect("a chunk");
            answer.take(&chunk["choices"][0]);
        }
        answer
    }

    fn take(&mut self, choice: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.text += &text(&choice["delta"]["content"]);
        self.end += &text(&choice["finish_reason"]);
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let at = call["index"].as_u64().expect("a place") as usize;
            self.arguments
                .resize(self.arguments.len().max(at + 1), String::new());
            self.arguments[at] += &text(&call["function"]["arguments"]);
        }
    }
}

fn expect_valid(label: &str, schema: &Value, said: &str) {
    // A number that is greater than a double can be is JSON, and few read it.
    let Some(value) = schemas::parse(said) else {
        return;
    };
    let value = value.unwrap_or_else(|error| panic!("{label}: {error}: {said:?}"));
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(schema);
    let valid = validator
        .expect("a schema")
        .validate(&value)
        .map_err(|error| error.to_string());
    valid.unwrap_or_else(|error| panic!("{label}: {error}: {said}"));
}

/// Asks for each schema, several at once: how many answers came to their end.
fn count_whole(
    schemas: &[(String, Value)],
    is_whole: impl Fn(usize, &str, &Value) -> bool + Sync,
) -> usize {
    let (next, whole) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((label, schema)) = schemas.get(at) else {
                        break;
                    };
                    whole.fetch_add(usize::from(is_whole(at, label, schema)), Ordering::Relaxed);
                }
            });
        }
    });
    whole.into_inner()
}

fn forced(serving: &Serving) -> f64 {
    let metrics = serving.get("/metrics");
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("millrace_forced_tokens_total "));
    line.and_then(|count| count.trim().parse().ok())
        .expect("a counter")
}

#[test]
fn complete_answer_is_valid_under_each_schema() {
    let serving = Serving::start(&ARGS);
    let schemas = schemas::all();
    assert!(schemas.len() >= 200);
    let whole = count_whole(&schemas, |at, label, schema| {
        let form = json!({"type": "json_schema", "json_schema": {"name": "it", "strict": true, "schema": schema}});
        let answer = Answer::of(&serving, at, &json!({"response_format": form}));
        let is_whole = answer.end != "length";
        if is_whole {
            assert_eq!(answer.end, "stop", "{label}: {}", answer.text);
            expect_valid(label, schema, &answer.text);
        }
        is_whole
    });
    assert!(
        whole * 10 > schemas.len() * 8,
        "{whole} of {} came to an end",
        schemas.len()
    );
    assert!(forced(&serving) > 0.0, "no token was forced");
}

#[test]
fn arguments_of_required_tools_are_valid_under_each_schema() {
    let serving = Serving::start(&ARGS);
    let schemas: Vec<_> = schemas::all()
        .into_iter()
        .filter(|(_, schema)| schema["type"] == "object")
        .collect();
    assert!(schemas.len() >= 120);
    let whole = count_whole(&schemas, |at, label, schema| {
        let function = json!({"name": "it", "parameters": schema});
        let tools = json!([{"type": "function", "function": function}]);
        let answer = Answer::of(
            &serving,
            at,
            &json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false}),
        );
        let is_whole = answer.end != "length";
        if is_whole {
            assert_eq!(answer.end, "tool_calls", "{label}: {}", answer.text);
            assert!(!answer.arguments.is_empty(), "{label}: nothing is called");
            for arguments in &answer.arguments {
                expect_valid(label, schema, arguments);
            }
        }
        is_whole
    });
    assert!(
        whole * 10 > schemas.len() * 8,
        "{whole} of {} came to an end",
        schemas.len()
    );
}
