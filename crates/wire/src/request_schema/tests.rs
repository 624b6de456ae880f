//! Each property of a schema is compared with the parser, value by value.
//!
//! Promise (APIs): each request body in `/openapi.json` has the fields, types, bounds and required fields that its
//! parser has.

use super::*;
use crate::field_table::{self, FieldTable, Treatment};
use std::collections::{BTreeMap, BTreeSet};

/// Properties whose parsers also check what a schema cannot express, or other fields: their schemas may be wider.
const WIDER: [&str; 27] = [
    "best_of",
    "context_management",
    "format",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "input",
    "job_id",
    "json_schema",
    "keep_alive",
    "messages",
    "min_tokens",
    "output_config",
    "output_format",
    "priority",
    "prompt",
    "response_format",
    "seed",
    "structured_outputs",
    "system",
    "template",
    "text",
    "thinking",
    "tool_choice",
    "tools",
    "top_logprobs",
];

/// Properties that are valid or invalid by other properties too, so that a parser may accept more.
const NARROWER: [&str; 4] = ["keep_alive", "messages", "stream_options", "system"];

/// Properties with such a name whose schemas are neither wider nor narrower than the parser.
const EXACT: [(&str, &str); 7] = [
    ("EmbeddingRequest", "input"),
    ("OllamaEmbedRequest", "input"),
    ("OllamaEmbeddingsRequest", "prompt"),
    ("OllamaCreateRequest", "messages"),
    ("OllamaCreateRequest", "system"),
    ("OllamaCreateRequest", "template"),
    ("TokenizeRequest", "prompt"),
];

fn values() -> Vec<Value> {
    let text = r#"[true, false, -3, -2, -1, 0, 1, 2, 3, 1.5, 0.5, 1000, -1000, 1e300, "", "x", "auto", "none", "json",
        "high", "normal", "disabled", "5m", [], [1], ["a"], [""], [[1]], [{}], {}, {"a": "b"}, {"a": 1}, {"1": 5},
        {"1": 500}, {"type": "text"}, {"type": "json_object"}, {"type": "x"}]"#;
    serde_json::from_str(text).expect("JSON")
}

/// The bounds of a schema and the values beside them.
fn bounds(schema: &Value) -> Vec<Value> {
    let mut values = Vec::new();
    for (name, sign) in [("minimum", -1), ("maximum", 1)] {
        match &schema[name] {
            Value::Number(bound) if bound.is_f64() => {
                let bound = bound.as_f64().expect("a number");
                values.extend([json!(bound), json!(bound + 0.25 * f64::from(sign))]);
            }
            Value::Number(bound) => {
                let bound: i128 = bound.to_string().parse().expect("an integer");
                let beside = (bound + i128::from(sign)).to_string();
                values.push(schema[name].clone());
                values.extend(serde_json::from_str::<Value>(&beside));
            }
            _ => {}
        }
    }
    values.extend(schema["enum"].as_array().into_iter().flatten().cloned());
    values
}

/// Fields that the parser rejects of a body with this value at a path.
fn rejected(request: &RequestSchema, path: &[&str], value: &Value) -> (bool, BTreeSet<String>) {
    let mut body = value.clone();
    for name in path.iter().rev() {
        body = json!({ *name: body });
    }
    // Some fields are read with messages only.
    let is_alternative = request.alternatives.contains(&path[0]);
    if request.alternatives.contains(&"messages") && !is_alternative {
        body["messages"] = json!([{"role": "user", "content": "x"}]);
    }
    let (name, text) = (path.join("."), body.to_string());
    let recorder = FieldRecorder::default();
    let fields = Fields::parse(text.as_bytes()).expect("JSON");
    let error = request.parse(fields.with_recorder(&recorder)).err();
    let problems = error.map_or_else(Vec::new, |error| error.problems);
    let is_of_field = |field: &str| {
        let rest = field.strip_prefix(&*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    // A problem of one of the alternatives may be a problem of the first.
    let is_of_field = |field: &str| {
        is_of_field(field) || is_alternative && request.alternatives.first() == Some(&field)
    };
    let is_rejected = problems.iter().any(|problem| is_of_field(&problem.field));
    (
        is_rejected,
        recorder.take().into_iter().map(|(name, _)| name).collect(),
    )
}

/// Compares a property, and the properties inside of it.
fn compare(request: &RequestSchema, path: &[&str], schema: &Value, mismatches: &mut Vec<String>) {
    let name = path[path.len() - 1];
    if path[0] == "model" && request.names_model {
        return;
    }
    let is_exact = EXACT.contains(&(request.name, path[0]));
    let validator = jsonschema::validator_for(schema).expect("a schema");
    for value in values().into_iter().chain(bounds(schema)) {
        if path.len() > 1 && value.is_null() {
            continue;
        }
        let (is_rejected, _) = rejected(request, path, &value);
        let is_valid = validator.is_valid(&value);
        let is_excused = if is_rejected {
            WIDER.contains(&name) || WIDER.contains(&path[0])
        } else {
            NARROWER.contains(&path[0])
        };
        if is_valid == is_rejected && (is_exact || !is_excused) {
            let verb = if is_rejected { "rejects" } else { "accepts" };
            mismatches.push(format!(
                "{} {}: the parser {verb} {value}",
                request.name,
                path.join(".")
            ));
        }
    }
    let inner = schema["properties"].as_object().into_iter().flatten();
    for (name, schema) in inner.filter(|_| path.len() == 1 && !WIDER.contains(&name)) {
        compare(request, &[path[0], name], schema, mismatches);
    }
}

#[test]
fn schemas_accept_what_the_parsers_accept() {
    let mut mismatches = Vec::new();
    for request in REQUESTS {
        let schema = request.schema();
        for (name, property) in schema["properties"].as_object().expect("properties") {
            compare(request, &[name], property, &mut mismatches);
        }
    }
    assert!(mismatches.is_empty(), "{mismatches:#?}");
}

#[test]
fn schemas_have_every_field_that_the_parsers_read() {
    for request in REQUESTS {
        let schema = request.schema();
        let known = schema["properties"].as_object().expect("properties");
        for (name, property) in known {
            let is_typed = ["type", "enum", "anyOf", "description"]
                .iter()
                .any(|key| property.get(key).is_some());
            assert!(is_typed, "{} {name}: {property}", request.name);
            for value in values() {
                let (_, read) = rejected(request, &[name], &value);
                let missing: Vec<_> = read
                    .iter()
                    .filter(|name| !known.contains_key(*name))
                    .collect();
                assert!(
                    missing.is_empty(),
                    "{} {name} {value}: {missing:?}",
                    request.name
                );
            }
        }
    }
}

/// Fields with problems, and the problems.
fn problems(request: &RequestSchema, body: &Value) -> BTreeSet<(String, String)> {
    let text = body.to_string();
    let error = request
        .parse(Fields::parse(text.as_bytes()).expect("JSON"))
        .err();
    let problems = error.map_or_else(Vec::new, |error| error.problems);
    let problems = problems.into_iter();
    problems
        .map(|problem| (problem.field.to_string(), problem.constraint.to_string()))
        .collect()
}

#[test]
fn required_fields_are_those_that_an_empty_body_lacks() {
    for request in REQUESTS {
        let missing = problems(request, &json!({}));
        let missing: BTreeSet<_> = missing.iter().map(|(field, _)| field.as_str()).collect();
        let alternative = request.alternatives.first();
        let required: BTreeSet<_> = request
            .required
            .iter()
            .chain(alternative)
            .copied()
            .collect();
        assert_eq!(missing, required, "{}", request.name);
    }
}

#[test]
fn each_alternative_takes_the_place_of_the_first() {
    for request in REQUESTS {
        let Some(first) = request.alternatives.first() else {
            continue;
        };
        let lacks_all: Vec<_> = problems(request, &json!({}))
            .into_iter()
            .filter(|(field, _)| field == first)
            .collect();
        for name in request.alternatives {
            let mut with_name = values().into_iter().map(|value| json!({ *name: value }));
            let is_enough = |body| {
                let left = problems(request, &body);
                lacks_all.iter().all(|problem| !left.contains(problem))
            };
            let is_accepted = with_name.any(is_enough);
            assert!(is_accepted, "{}: {name}", request.name);
        }
        let validator = jsonschema::validator_for(&request.schema()).expect("a schema");
        assert!(!validator.is_valid(&json!({})), "{}", request.name);
    }
}

#[test]
fn former_field_names_are_in_the_schemas() {
    let named: Vec<_> = REQUESTS
        .iter()
        .filter(|request| request.schema()["properties"].get("name").is_some())
        .map(|request| request.name)
        .collect();
    assert_eq!(
        named,
        [
            "OllamaShowRequest",
            "OllamaPullRequest",
            "OllamaDeleteRequest",
            "OllamaCreateRequest",
        ]
    );
}

/// Images in conversations: the document accepts what the parser accepts, in each body that has messages.
#[test]
fn schemas_of_messages_have_images_where_they_are_read() {
    let url = "data:image/png;base64,AAAA";
    let part =
        |detail: &str| json!([{"type": "image_url", "image_url": {"url": url, "detail": detail}}]);
    let messages = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let with_images =
        |images: Value| json!({"messages": [{"role": "user", "content": "a", "images": images}]});
    let text = json!([{"type": "text", "text": "a"}]);
    for (name, body, is_accepted) in [
        ("ChatRequest", messages(part("original")), true),
        ("ChatRequest", messages(part("most")), false),
        ("JobRequest", messages(part("high")), true),
        ("ApplyTemplateRequest", messages(part("low")), true),
        ("TokenizeRequest", messages(part("low")), false),
        ("TokenizeRequest", messages(text.clone()), true),
        ("OllamaChatRequest", messages(part("low")), false),
        ("OllamaChatRequest", messages(text), false),
        ("OllamaChatRequest", messages(json!(null)), true),
        ("OllamaChatRequest", with_images(json!(["AAAA", url])), true),
        ("OllamaChatRequest", with_images(json!(null)), true),
        (
            "OllamaChatRequest",
            with_images(json!([{"url": url}])),
            false,
        ),
    ] {
        let request = REQUESTS.iter().find(|request| request.name == name);
        let request = request.expect("a body");
        let validator = jsonschema::validator_for(&request.schema()).expect("a schema");
        assert_eq!(
            validator.is_valid(&body),
            is_accepted,
            "schema of {name}: {body}"
        );
        assert_eq!(
            problems(request, &body).is_empty(),
            is_accepted,
            "{name}: {body}"
        );
        let images = &request.schema()["properties"]["messages"]["items"]["properties"]["images"];
        assert_eq!(images.is_null(), name != "OllamaChatRequest", "{name}");
    }
}

/// The field tables as a reader sees them.
const DOCUMENTATION: &str = include_str!("../../../../docs/request-fields.md");

/// Routes, their field table, and the body that they read, in the documentation's order.
const TABLES: [(&str, &FieldTable, &str); 13] = [
    (
        "`POST /v1/chat/completions`",
        &field_table::CHAT,
        "ChatRequest",
    ),
    (
        "`POST /v1/completions`",
        &field_table::COMPLETIONS,
        "CompletionRequest",
    ),
    (
        "`POST /v1/responses`, `POST /v1/responses/input_tokens`",
        &field_table::RESPONSES,
        "ResponseRequest",
    ),
    (
        "`POST /v1/messages`, `POST /v1/messages/count_tokens`",
        &field_table::MESSAGES,
        "MessageRequest",
    ),
    (
        "`POST /v1/embeddings`",
        &field_table::EMBEDDINGS,
        "EmbeddingRequest",
    ),
    ("`POST /v1/rerank`", &field_table::RERANK, "RerankRequest"),
    (
        "`POST /api/chat`",
        &field_table::OLLAMA_CHAT,
        "OllamaChatRequest",
    ),
    (
        "`POST /api/generate`",
        &field_table::OLLAMA_GENERATE,
        "OllamaGenerateRequest",
    ),
    (
        "`POST /api/embed`",
        &field_table::OLLAMA_EMBED,
        "OllamaEmbedRequest",
    ),
    (
        "`POST /api/embeddings`",
        &field_table::OLLAMA_EMBEDDINGS,
        "OllamaEmbeddingsRequest",
    ),
    (
        "`POST /v1/inference`, `POST /v1/jobs`",
        &field_table::JOBS,
        "JobRequest",
    ),
    (
        "`POST /completion`",
        &field_table::LLAMA_COMPLETION,
        "LlamaCompletionRequest",
    ),
    ("`POST /infill`", &field_table::INFILL, "InfillRequest"),
];

/// The treatment of a field in the documentation's words.
fn treatment_text(treatment: Treatment) -> String {
    match treatment {
        Treatment::Honored(words) => format!("honored; {words}"),
        Treatment::NoEffect(reason) => format!("no effect: {reason}"),
        Treatment::Rejected { accepted, instead } => {
            let accepted = accepted.iter().map(|value| format!("`{value}`"));
            let accepted = accepted.collect::<Vec<_>>().join(", ");
            let but = if accepted.is_empty() { "" } else { ", except " };
            let colon = if instead.is_empty() { "" } else { ": " };
            format!("**rejected**{but}{accepted}{colon}{instead}")
        }
    }
}

/// Bodies of the routes that take the common fields.
const GENERATION: [&str; 7] = [
    "ChatRequest",
    "CompletionRequest",
    "ResponseRequest",
    "MessageRequest",
    "JobRequest",
    "LlamaCompletionRequest",
    "InfillRequest",
];

/// Characters of a line of a list in the documentation.
const LIST_CHARS_MAX: usize = 160;

/// The fields of a body with their treatment: those that its parser reads, and those of the table.
fn treatments(table: &FieldTable, body: &str) -> BTreeMap<String, String> {
    let request = REQUESTS.iter().find(|request| request.name == body);
    let request = request.expect("a body");
    let read = request.recorded(request.samples).into_iter();
    let names = read.map(|(name, _)| name).chain(["model".to_owned()]);
    let mut fields: BTreeMap<String, String> =
        names.map(|name| (name, HONORED.to_owned())).collect();
    let rows = table.rows.iter();
    fields.extend(rows.map(|row| (row.name.to_owned(), treatment_text(row.treatment))));
    fields
}

/// The treatment of a field that its parser reads without a restriction.
const HONORED: &str = "honored";

/// Names as a list over several lines.
fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let (mut list, mut line) = (String::new(), 0);
    for name in names {
        let separator = match line {
            _ if list.is_empty() => "",
            0..LIST_CHARS_MAX => ", ",
            _ => ",\n",
        };
        line = match separator {
            ",\n" => 0,
            _ => line + separator.len(),
        };
        line += name.len() + 2;
        list.push_str(&format!("{separator}`{name}`"));
    }
    list
}

#[test]
fn documentation_shows_what_the_parsers_read_and_the_tables() {
    let all = TABLES.map(|(title, table, body)| (title, body, treatments(table, body)));
    let generation = all.iter().filter(|(_, body, _)| GENERATION.contains(body));
    let is_honored = |fields: &BTreeMap<String, String>, name: &str| {
        fields.get(name).is_some_and(|words| words == HONORED)
    };
    let mut common: Vec<&String> = all[0].2.keys().collect();
    common.retain(|name| {
        generation
            .clone()
            .all(|(_, _, fields)| is_honored(fields, name))
    });
    let list = listed(common.iter().copied());
    let mut written = format!("\n### Common fields\n\n{list}.\n");
    for (title, body, fields) in &all {
        let takes_common = GENERATION.contains(body);
        let is_new = |name: &&String| !takes_common || !common.contains(name);
        let (honored, others): (Vec<_>, Vec<_>) = fields
            .keys()
            .filter(is_new)
            .partition(|name| is_honored(fields, name));
        let list = listed(honored.into_iter());
        let begin = if takes_common {
            "The [common fields](#common-fields), and:\n"
        } else {
            ""
        };
        written.push_str(&format!("\n### {title}\n\n{begin}{list}.\n"));
        if !others.is_empty() {
            written.push_str("\n| other fields | |\n|---|---|\n");
        }
        for name in others {
            written.push_str(&format!("| `{name}` | {} |\n", fields[name]));
        }
    }
    assert!(
        DOCUMENTATION.ends_with(&written),
        "docs/request-fields.md must end with:\n{written}"
    );
}
