//! Each row of each table, against the format's parser.
//!
//! Promise (APIs): each request field of the official clients is honored, has no effect for a stated reason, or is a
//! 400 that names it; any other field is named in the response's headers.
//! Also held by `wire/src/request_schema/tests.rs`, `server/tests/it/messages.rs ::
//! ignored_fields_are_named_in_the_headers`, `server/tests/it/embeddings.rs ::
//! fields_are_honored_ignored_by_name_or_rejected`.

use super::*;
use crate::anthropic::message_request;
use crate::jobs::request;
use crate::llama_cpp::{completion_request as llama_completion, infill_request};
use crate::ollama::{request as ollama_chat, request as ollama_generate};
use crate::openai::completion_request;
use crate::request_parser::RequestParser;
use crate::request_parser::tests::parsed_request;
use crate::responses;
use crate::shared::error_response::status_code;
use generate::error::ApiError;
use generate::request::GenerateRequest;
use serde_json::{Map, json};

/// A table under its routes, the least request of its format, and the parser.
struct Case {
    title: &'static str,
    table: &'static FieldTable,
    base: Value,
    parse: Option<RequestParser>,
}

/// Each table.
fn cases() -> Vec<Case> {
    let case = |title, table| {
        let (base, parse) = parser(title);
        Case {
            title,
            table,
            base,
            parse,
        }
    };
    vec![
        case("`POST /v1/chat/completions`", &CHAT),
        case("`POST /v1/completions`", &COMPLETIONS),
        case(
            "`POST /v1/responses`, `POST /v1/responses/input_tokens`",
            &RESPONSES,
        ),
        case(
            "`POST /v1/messages`, `POST /v1/messages/count_tokens`",
            &MESSAGES,
        ),
        case("`POST /v1/embeddings`", &EMBEDDINGS),
        case("`POST /v1/rerank`", &RERANK),
        case("`POST /api/chat`", &OLLAMA_CHAT),
        case("`POST /api/generate`", &OLLAMA_GENERATE),
        case("`POST /api/embed`", &OLLAMA_EMBED),
        case("`POST /api/embeddings`", &OLLAMA_EMBEDDINGS),
        case("`POST /v1/inference`, `POST /v1/jobs`", &JOBS),
        case("`POST /completion`", &LLAMA_COMPLETION),
        case("`POST /infill`", &INFILL),
    ]
}

/// The least request of a format, and what reads it; embeddings are read over sockets only.
fn parser(title: &str) -> (Value, Option<RequestParser>) {
    let turn = json!([{"role": "user", "content": "hi"}]);
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    let (base, parse): (Value, RequestParser) = match title.split('`').nth(1).unwrap_or_default() {
        "POST /v1/chat/completions" => (json!({"messages": turn}), completion_request::parse_chat),
        "POST /v1/completions" => (json!({"prompt": "hi"}), completion_request::parse),
        "POST /v1/responses" => (json!({"input": "hi"}), responses::parse),
        "POST /v1/messages" => (
            json!({"messages": turn, "max_tokens": 5, "tools": [tool]}),
            message_request::parse,
        ),
        "POST /api/chat" => (json!({"messages": turn}), ollama_chat::parse_chat),
        "POST /api/generate" => (json!({"prompt": "hi"}), ollama_generate::parse_generate),
        "POST /v1/inference" => (json!({"prompt": "hi"}), request::parse),
        "POST /completion" => (json!({"prompt": "a"}), llama_completion::parse),
        "POST /infill" => (
            json!({"input_prefix": "a", "input_suffix": "b"}),
            infill_request::parse,
        ),
        _ => return (json!({}), None),
    };
    (base, Some(parse))
}

/// A value that a client may send.
fn sample(name: &str) -> Value {
    match name {
        "user"
        | "prompt_cache_key"
        | "prompt_cache_retention"
        | "safety_identifier"
        | "speed"
        | "inference_geo"
        | "user_profile_id"
        | "workspace_id"
        | "verbosity"
        | "fallback_credit_token" => json!("text"),
        "include" | "betas" => json!(["x"]),
        "tools" | "fallbacks" | "images" => json!([]),
        "logprobs" => json!(false),
        "shift" => json!(true),
        "top_logprobs" => json!(0),
        "max_tool_calls" | "n" => json!(1),
        "metadata" => json!({"a": "b"}),
        "context_management" => {
            json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
        }
        _ => json!({}),
    }
}

fn parsed(case: &Case, name: &str, value: Value) -> Option<Result<GenerateRequest, ApiError>> {
    let mut body = case.base.clone();
    body[name] = value;
    let body = body.to_string();
    Some(parsed_request(case.parse?, body.as_bytes()))
}

#[test]
fn honored_fields_are_read() {
    for case in cases() {
        for row in case.table.rows {
            let Treatment::Honored(_) = row.treatment else {
                continue;
            };
            let Some(asked) = parsed(&case, row.name, sample(row.name)) else {
                continue;
            };
            let place = format!("{} {}", case.title, row.name);
            let ask = asked.unwrap_or_else(|error| panic!("{place}: {}", error.message));
            assert_eq!(ask.stream_options.ignored_fields.names(), None, "{place}");
        }
    }
}

#[test]
fn fields_without_effect_change_nothing() {
    for case in cases() {
        let Some(parse) = case.parse else {
            continue;
        };
        let body = case.base.to_string();
        let plain = parsed_request(parse, body.as_bytes());
        let plain = plain.unwrap_or_else(|error| panic!("{}: {}", case.title, error.message));
        for row in case.table.rows {
            let Treatment::NoEffect(reason) = row.treatment else {
                continue;
            };
            let asked = parsed(&case, row.name, sample(row.name));
            let mut ask = asked.expect("a parser").expect(row.name);
            assert!(!reason.is_empty(), "{}", row.name);
            // A response repeats its request.
            ask.stream_options
                .repeated_fields
                .clone_from(&plain.stream_options.repeated_fields);
            assert_eq!(ask, plain, "{} {}", case.title, row.name);
        }
    }
}

#[test]
fn rejected_fields_are_named() {
    for case in cases() {
        for row in case.table.rows {
            let Treatment::Rejected { accepted, .. } = row.treatment else {
                continue;
            };
            let place = format!("{} {}", case.title, row.name);
            let body = json!({row.name: {"a": 1}}).to_string();
            let mut fields = Fields::parse(body.as_bytes()).expect("fields");
            case.table.reject_fields(&mut fields);
            let error = fields.finish().expect_err(&place);
            assert_eq!(error.problems[0].field, row.name, "{place}");
            if let Some(asked) = parsed(&case, row.name, json!({"a": 1})) {
                let error = asked.expect_err(&place);
                assert_eq!(status_code(error.kind).as_u16(), 400, "{place}");
                let named = error
                    .problems
                    .iter()
                    .any(|problem| problem.field == row.name);
                assert!(named, "{place}: {}", error.message);
            }
            for value in accepted.iter().chain(&["null"]) {
                let value: Value = serde_json::from_str(value).expect("JSON");
                if let Some(asked) = parsed(&case, row.name, value) {
                    let ask = asked.expect(&place);
                    assert_eq!(ask.stream_options.ignored_fields.names(), None, "{place}");
                }
            }
        }
    }
}

#[test]
fn fields_in_no_row_are_named_within_bounds() {
    let long = "x".repeat(IGNORED_FIELD_BYTES_MAX + 1);
    let rows = [
        (vec!["new_field"], "new_field"),
        (vec!["b", "a", "user"], "b, a"),
        (vec!["split\r\nheader"], "..."),
        (vec![&*long, ""], "..., ..."),
    ];
    for (names, want) in rows {
        let mut body: Map<String, Value> = Map::new();
        body.insert(
            "messages".to_owned(),
            json!([{"role": "user", "content": "hi"}]),
        );
        names
            .iter()
            .for_each(|name| drop(body.insert((*name).to_owned(), json!("x"))));
        let body = Value::Object(body).to_string();
        let ask =
            parsed_request(completion_request::parse_chat, body.as_bytes()).expect("a request");
        assert_eq!(
            ask.stream_options.ignored_fields.names(),
            Some(want),
            "{names:?}"
        );
    }
    let many: Map<String, Value> = (0..40).map(|i| (format!("f{i}"), json!(1))).collect();
    let body = Value::Object(many).to_string();
    let fields = Fields::parse(body.as_bytes()).expect("fields");
    let ignored = ignored_fields(&fields, &CHAT);
    let names = ignored.names().expect("names");
    assert_eq!(names.split(", ").count(), IGNORED_FIELDS_NAMED_MAX + 1);
    let mut headers = HeaderMap::new();
    write_ignored(&ignored, &mut headers);
    assert_eq!(headers[IGNORED_FIELDS], names);
}

#[test]
fn values_that_ask_for_nothing_else_are_accepted_however_they_are_written() {
    for (value, accepted) in [
        ("[ \"text\" ]", true),
        ("[\"audio\"]", false),
        ("null", true),
    ] {
        let body = format!("{{\"modalities\": {value}}}");
        let mut fields = Fields::parse(body.as_bytes()).expect("fields");
        CHAT.reject_fields(&mut fields);
        assert_eq!(fields.finish().is_ok(), accepted, "{value}");
    }
}
