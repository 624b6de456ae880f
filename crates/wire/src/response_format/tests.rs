//! Valid and invalid response formats.

use super::*;
use serde_json::json;
use text::GrammarError;

fn read(body: &str) -> Result<Option<ResponseFormat>, Vec<String>> {
    let mut fields = Fields::parse(body.as_bytes()).expect("an object");
    let parsed = parse_response_format(&mut fields);
    match fields.finish() {
        Ok(()) => Ok(parsed),
        Err(error) => Err(error.problems.into_iter().map(|p| p.field).collect()),
    }
}

/// The grammar source in the bodies below, one per kind.
fn source(kind: &str) -> GrammarSource {
    match kind {
        "object" => GrammarSource::JsonObject,
        "schema" => GrammarSource::JsonSchema(json!({"type": "null"})),
        "regex" => GrammarSource::Regex("a+".into()),
        "choice" => GrammarSource::Choice(vec!["a".into(), "b".into()]),
        _ => GrammarSource::Lark("start: \"a\"".into()),
    }
}

/// Body, the field that holds the source, and which source.
#[rustfmt::skip]
const RIGHT: [(&str, &str, &str); 16] = [
    (r#"{"response_format":{"type":"json_object"}}"#, "response_format", "object"),
    (r#"{"response_format":{"type":"json_object","schema":{"type":"null"}}}"#, "response_format.schema", "schema"),
    (r#"{"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"null"}}}}"#, "response_format.json_schema.schema", "schema"),
    (r#"{"response_format":{"type":"json_schema","schema":{"type":"null"}}}"#, "response_format.schema", "schema"),
    (r#"{"response_format":{"type":"text"},"guided_regex":"a+"}"#, "guided_regex", "regex"),
    (r#"{"guided_json":{"type":"null"}}"#, "guided_json", "schema"),
    (r#"{"guided_json":"{\"type\":\"null\"}"}"#, "guided_json", "schema"),
    (r#"{"guided_choice":["a","b"],"guided_json":null}"#, "guided_choice", "choice"),
    (r#"{"guided_grammar":"start: \"a\""}"#, "guided_grammar", "lark"),
    (r#"{"guided_json_object":true}"#, "guided_json_object", "object"),
    (r#"{"structured_outputs":{"json":{"type":"null"},"regex":null}}"#, "structured_outputs.json", "schema"),
    (r#"{"structured_outputs":{"choice":["a","b"],"disable_any_whitespace":true}}"#, "structured_outputs.choice", "choice"),
    (r#"{"structured_outputs":{"grammar":"start: \"a\""}}"#, "structured_outputs.grammar", "lark"),
    (r#"{"structured_outputs":{"json_object":true}}"#, "structured_outputs.json_object", "object"),
    (r#"{"json_schema":{"type":"null"}}"#, "json_schema", "schema"),
    (r#"{"grammar":"start: \"a\""}"#, "grammar", "lark"),
];

/// Body, and the fields that are wrong.
#[rustfmt::skip]
const WRONG: [(&str, &[&str]); 12] = [
    (r#"{"response_format":"json"}"#, &["response_format"]),
    (r#"{"response_format":{"type":"xml"}}"#, &["response_format.type"]),
    (r#"{"response_format":{}}"#, &["response_format.type"]),
    (r#"{"response_format":{"type":"json_schema"}}"#, &["response_format.json_schema.schema"]),
    (r#"{"response_format":{"type":"json_schema","json_schema":{"schema":7}}}"#, &["response_format.json_schema.schema"]),
    (r#"{"guided_json":"{"}"#, &["guided_json"]),
    (r#"{"guided_choice":[]}"#, &["guided_choice"]),
    (r#"{"guided_choice":["a",1]}"#, &["guided_choice"]),
    (r#"{"guided_regex":1,"grammar":[]}"#, &["guided_regex", "grammar"]),
    (r#"{"guided_regex":"a","guided_json":{}}"#, &["guided_regex"]),
    (r#"{"structured_outputs":{"json":{},"regex":"a"}}"#, &["structured_outputs.regex"]),
    (r#"{"structured_outputs":{"structural_tag":"x"}}"#, &["structured_outputs.structural_tag"]),
];

#[test]
fn response_format_is_parsed() {
    for (body, field, kind) in RIGHT {
        let parsed = ResponseFormat {
            source: source(kind),
            field: field.to_owned(),
        };
        assert_eq!(read(body), Ok(Some(parsed)), "{body}");
    }
    for body in [
        "{}",
        r#"{"response_format":{"type":"text"}}"#,
        r#"{"grammar":"","response_format":null}"#,
    ] {
        assert_eq!(read(body), Ok(None), "{body}");
    }
}

#[test]
fn invalid_response_format_is_named() {
    for (body, fields) in WRONG {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        assert_eq!(read(body), Err(fields), "{body}");
    }
}

#[test]
fn strict_schema_error_names_the_place() {
    let error_for = |source, field: &str, place: &str| {
        let parsed = ResponseFormat {
            source,
            field: field.to_owned(),
        };
        parsed.grammar_error(&GrammarError {
            place: place.to_owned(),
            why: "no".into(),
        })
    };
    let schema = "response_format.json_schema.schema";
    let error = error_for(source("schema"), schema, "properties.a");
    assert_eq!(error.problems[0].field, format!("{schema}.properties.a"));
    assert_eq!(error.code, "invalid_json_schema");
    let error = error_for(source("choice"), "guided_choice", "[1]");
    assert_eq!(error.problems[0].field, "guided_choice[1]");
}
