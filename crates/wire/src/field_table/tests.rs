//! Each row of each table, against the format's parser.

use super::*;
use crate::anthropic::message_request;
use crate::jobs::request;
use crate::llama_cpp::{completion_request as llama_completion, infill_request};
use crate::ollama::{chat_request as ollama_chat, generate_request as ollama_generate};
use crate::openai::{chat_request, completion_request};
use crate::request_parser::RequestParser;
use crate::request_parser::tests::parsed_request;
use crate::responses;
use crate::status::status_code;
use generate::error::ApiError;
use generate::request::GenerateRequest;
use serde_json::{Map, json};

/// The tables as a reader sees them.
const DOCUMENTATION: &str = include_str!("../../../../docs/request-fields.md");

/// A table under its routes, the least request of its format, and the parser.
struct Case {
    title: &'static str,
    table: &'static FieldTable,
    base: Value,
    parse: Option<RequestParser>,
}

/// Each table, in the documentation's order.
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
        "POST /v1/chat/completions" => (json!({"messages": turn}), chat_request::parse),
        "POST /v1/completions" => (json!({"prompt": "hi"}), completion_request::parse),
        "POST /v1/responses" => (json!({"input": "hi"}), responses::parse),
        "POST /v1/messages" => (
            json!({"messages": turn, "max_tokens": 5, "tools": [tool]}),
            message_request::parse,
        ),
        "POST /api/chat" => (json!({"messages": turn}), ollama_chat::parse),
        "POST /api/generate" => (json!({"prompt": "hi"}), ollama_generate::parse),
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
#[expect(clippy::too_many_lines, reason = "a table of fields")]
fn sample(table: &FieldTable, name: &str) -> Value {
    let is_table = |other: &FieldTable| std::ptr::eq(table, other);
    match name {
        "model"
        | "user"
        | "prompt_cache_key"
        | "safety_identifier"
        | "instructions"
        | "system"
        | "template"
        | "prompt"
        | "suffix"
        | "input_prefix"
        | "input_suffix"
        | "speed"
        | "inference_geo"
        | "previous_response_id"
        | "user_profile_id"
        | "workspace_id"
        | "fallback_credit_token" => json!("text"),
        "input" | "stop" => json!("hi"),
        "messages" => json!([{"role": "user", "content": "hi"}]),
        "stop_sequences" | "include" | "betas" => json!(["x"]),
        "grammar" => json!("start: \"a\""),
        "logit_bias" => json!({"7": 1}),
        "service_tier" => json!("auto"),
        "reasoning_effort" | "verbosity" => json!("low"),
        "tool_choice" if is_table(&MESSAGES) => json!({"type": "auto"}),
        "tool_choice" => json!("auto"),
        "truncation" => json!("disabled"),
        "tools" | "fallbacks" | "input_extra" | "lora" => json!([]),
        "logprobs" if is_table(&COMPLETIONS) => json!(1),
        "logprobs"
        | "stream"
        | "store"
        | "echo"
        | "parallel_tool_calls"
        | "think"
        | "raw"
        | "shift"
        | "truncate" => json!(true),
        "background" | "return_token_ids" | "return_tokens" | "timings_per_token"
        | "ignore_eos" => {
            json!(true)
        }
        "top_logprobs" => json!(0),
        "max_tokens"
        | "max_completion_tokens"
        | "max_output_tokens"
        | "max_tool_calls"
        | "n"
        | "seed"
        | "best_of"
        | "top_k"
        | "n_predict"
        | "n_probs"
        | "repeat_last_n"
        | "truncate_prompt_tokens" => json!(1),
        "temperature" | "top_p" | "min_p" | "typical_p" | "presence_penalty"
        | "frequency_penalty" | "repeat_penalty" | "dry_multiplier" | "xtc_probability"
        | "xtc_threshold" => json!(0.5),
        "dry_base" | "dry_allowed_length" | "dry_penalty_last_n" => json!(1),
        "dry_sequence_breakers" => json!(["x"]),
        "keep_alive" => json!("5m"),
        "format" => json!("json"),
        "response_format" => json!({"type": "text"}),
        "prompt_cache_retention" => json!("24h"),
        "context" => json!([1, 2]),
        "thinking" => json!({"type": "disabled"}),
        "output_format" => json!({"type": "json_schema", "schema": {"type": "object"}}),
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
            let Some(asked) = parsed(&case, row.name, sample(case.table, row.name)) else {
                continue;
            };
            let place = format!("{} {}", case.title, row.name);
            let ask = asked.unwrap_or_else(|error| panic!("{place}: {}", error.message));
            // The model is resolved before the parser runs.
            if row.name != "model" {
                assert_eq!(ask.stream_options.ignored_fields.names(), None, "{place}");
            }
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
            let asked = parsed(&case, row.name, sample(case.table, row.name));
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
        body.insert("messages".to_owned(), sample(&CHAT, "messages"));
        names
            .iter()
            .for_each(|name| drop(body.insert((*name).to_owned(), json!("x"))));
        let body = Value::Object(body).to_string();
        let ask = parsed_request(chat_request::parse, body.as_bytes()).expect("a request");
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

/// The tables in the documentation's words.
fn written() -> String {
    let mut text = String::new();
    for case in cases() {
        text.push_str(&format!("\n### {}\n\n", case.title));
        text.push_str("| field | |\n|---|---|\n");
        for row in case.table.rows {
            let words = match row.treatment {
                Treatment::Honored("") => "honored".to_owned(),
                Treatment::Honored(words) => format!("honored; {words}"),
                Treatment::NoEffect(reason) => format!("no effect: {reason}"),
                Treatment::Rejected { accepted, instead } => {
                    let accepted = accepted.iter().map(|value| format!("`{value}`"));
                    let accepted = accepted.collect::<Vec<_>>().join(", ");
                    let but = match accepted.is_empty() {
                        true => String::new(),
                        false => format!(", except {accepted}"),
                    };
                    let colon = if instead.is_empty() { "" } else { ": " };
                    format!("**rejected**{but}{colon}{instead}")
                }
            };
            text.push_str(&format!("| `{}` | {words} |\n", row.name));
        }
    }
    text
}

#[test]
fn documentation_shows_the_tables() {
    let written = written();
    assert!(
        DOCUMENTATION.ends_with(&written),
        "docs/request-fields.md must end with:\n{written}"
    );
}
