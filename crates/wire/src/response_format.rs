//! Structured output as requests describe it.
//!
//! A [`ResponseFormat`] is parsed from OpenAI's `response_format`, vLLM's `structured_outputs` and `guided_*`, or
//! llama.cpp's `json_schema` and `grammar`; protocols with a field of their own (Ollama's `format`, the Responses
//! API's `text.format`) parse that field with [`json_schema_format`] or [`any_object`].

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::request::{ResponseFormat, any_object};
use serde_json::{Value, json};
use text::{CHOICES_IN_GRAMMAR_MAX, GrammarSource};

/// The schema of a field.
type SchemaOf = fn() -> Value;

/// Fields that describe structured output.
const NAMES: [(&str, SchemaOf); 9] = [
    ("response_format", openai_schema),
    ("structured_outputs", outputs_schema),
    ("guided_json", json_schema),
    ("guided_regex", || json!({"type": "string"})),
    ("guided_choice", choices_schema),
    ("guided_grammar", grammar_schema),
    ("guided_json_object", || json!({"type": "boolean"})),
    ("json_schema", json_schema),
    ("grammar", grammar_schema),
];

/// Parses the response format of a request, if there is one; a second one is an error.
pub(crate) fn parse_response_format(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    let mut found: Option<(&str, ResponseFormat)> = None;
    for (name, schema) in NAMES {
        let Some(raw) = fields.described(name, schema) else {
            continue;
        };
        let Some(parsed) = parse_field(fields, name, raw) else {
            continue;
        };
        match &found {
            None => found = Some((name, parsed)),
            Some((first, _)) => fields.reject(
                name,
                format!(
                    "must not be given together with {first}: a request has one output constraint"
                ),
            ),
        }
    }
    found.map(|(_, parsed)| parsed)
}

/// Whether schemas with `properties` and without `additionalProperties` forbid further members: vLLM's
/// `disable_additional_properties`, in `structured_outputs` or at the top level.
pub(crate) fn closed_objects_field(fields: &mut Fields<'_>) -> Option<bool> {
    const NAME: &str = "disable_additional_properties";
    const OUTPUTS: &str = "structured_outputs";
    let outputs = fields.raw(OUTPUTS);
    let is_object = outputs.is_some_and(|raw| fields::json_type(raw) == JsonType::Object);
    let inner = if is_object {
        fields.within(OUTPUTS, |outputs| outputs.boolean(NAME))
    } else {
        None
    };
    let top = fields.boolean(NAME);
    inner.or(top)
}

/// Parses a JSON schema, given as an object or as a string of JSON.
pub(crate) fn json_schema_format(
    fields: &mut Fields<'_>,
    field: &str,
    raw: RawJson<'_>,
) -> Option<ResponseFormat> {
    let written = fields::as_text(raw);
    let schema: Option<Value> = match &written {
        Some(text) => serde_json::from_str(text).ok(),
        None => fields::parse_value(raw),
    };
    match schema.filter(|schema| schema.is_object() || schema.is_boolean()) {
        Some(schema) => Some(ResponseFormat {
            source: GrammarSource::JsonSchema(schema),
            field: field.to_owned(),
        }),
        None => fields.no_value(field, fields::SCHEMA_MESSAGE),
    }
}

/// Checks a response format with `strict: true`: rejects a schema that cannot be enforced exactly as written.
pub(crate) fn check_strict(
    fields: &mut Fields<'_>,
    parsed: Option<ResponseFormat>,
    strict: Option<RawJson<'_>>,
) -> Option<ResponseFormat> {
    let parsed = parsed?;
    let is_strict = strict.is_some_and(|raw| raw.get() == "true");
    if let (true, GrammarSource::JsonSchema(schema)) = (is_strict, &parsed.source)
        && let Some(problem) = text::strict_schema_violation(schema)
    {
        fields.reject(format!("{}.{}", parsed.field, problem.place), problem.why);
        return None;
    }
    Some(parsed)
}

fn openai_schema() -> Value {
    let with_type = |name: &str| json!({"type": "object", "required": ["type"], "properties": {"type": {"const": name}}});
    let mut schema = with_type("json_schema");
    schema["required"] = json!(["type", "json_schema"]);
    schema["properties"]["json_schema"] = json!({"type": "object", "required": ["schema"], "properties": {"schema": {"type": "object"}}});
    json!({"anyOf": [with_type("text"), with_type("json_object"), schema]})
}

fn outputs_schema() -> Value {
    json!({"type": "object", "description": "one of json, regex, choice, grammar, json_object"})
}

fn json_schema() -> Value {
    json!({"type": ["object", "boolean", "string"], "description": "a JSON Schema, or its text"})
}

fn choices_schema() -> Value {
    json!({
        "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": CHOICES_IN_GRAMMAR_MAX,
    })
}

fn grammar_schema() -> Value {
    json!({"type": "string", "description": "a grammar in GBNF or Lark"})
}

fn parse_field(fields: &mut Fields<'_>, name: &str, raw: RawJson<'_>) -> Option<ResponseFormat> {
    match name {
        "response_format" => openai_response_format(fields),
        "structured_outputs" => structured_outputs(fields),
        "guided_json" | "json_schema" => json_schema_format(fields, name, raw),
        "guided_json_object" => (fields.boolean(name)?).then(|| any_object(name)),
        "guided_choice" => choice_format(fields, name, raw),
        "guided_regex" => text_format(fields, name, raw, GrammarSource::Regex),
        "grammar" if raw.get() == "\"\"" => None,
        _ => text_format(fields, name, raw, GrammarSource::Lark),
    }
}

/// OpenAI's `response_format`; llama.cpp puts the schema of either type into the member `schema`.
fn openai_response_format(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    const NAME: &str = "response_format";
    let format = fields.object(NAME)?;
    let outer_schema = format.get("schema");
    match format.text("type").as_deref() {
        Some("text") => None,
        Some("json_object") => match outer_schema {
            Some(raw) => json_schema_format(fields, &format!("{NAME}.schema"), raw),
            None => Some(any_object(NAME)),
        },
        Some("json_schema") => {
            let given = format.get("json_schema");
            let inner: Option<JsonObject<'_>> = given
                .filter(|raw| fields::json_type(*raw) == JsonType::Object)
                .and_then(fields::parse_value);
            let strict = inner.as_ref().and_then(|inner| inner.get("strict"));
            match (
                inner.as_ref().and_then(|inner| inner.get("schema")),
                outer_schema,
            ) {
                (Some(raw), _) => {
                    let parsed =
                        json_schema_format(fields, &format!("{NAME}.json_schema.schema"), raw);
                    check_strict(fields, parsed, strict)
                }
                (None, Some(raw)) => json_schema_format(fields, &format!("{NAME}.schema"), raw),
                (None, None) => fields.no_value(
                    format_args!("{NAME}.json_schema.schema"),
                    format_args!("is required: {}", fields::SCHEMA_MESSAGE),
                ),
            }
        }
        _ => fields.no_value(
            format_args!("{NAME}.type"),
            "must be one of text, json_object, json_schema",
        ),
    }
}

/// vLLM's `structured_outputs`: one of `json`, `regex`, `choice`, `grammar`, `json_object`.
fn structured_outputs(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    const NAME: &str = "structured_outputs";
    let given = fields.object(NAME)?;
    let mut response_formats = Vec::new();
    for (name, raw) in given.entries() {
        let field = format!("{NAME}.{name}");
        response_formats.extend(match (name, fields::json_type(raw)) {
            (_, JsonType::Null) => None,
            ("json", _) => json_schema_format(fields, &field, raw),
            ("regex", _) => text_format(fields, &field, raw, GrammarSource::Regex),
            ("choice", _) => choice_format(fields, &field, raw),
            ("grammar", _) => text_format(fields, &field, raw, GrammarSource::Lark),
            ("json_object", JsonType::Bool) => (raw.get() == "true").then(|| any_object(&field)),
            ("structural_tag", _) => fields.no_value(field, "is not supported by this server"),
            // Options of the grammar engine have no effect.
            _ => None,
        });
    }
    if response_formats.len() > 1 {
        let field = response_formats[1].field.clone();
        fields.reject(field, "must be the only output constraint of the request");
    }
    response_formats.into_iter().next()
}

fn choice_format(fields: &mut Fields<'_>, field: &str, raw: RawJson<'_>) -> Option<ResponseFormat> {
    let items = fields::as_list(raw, CHOICES_IN_GRAMMAR_MAX).unwrap_or_default();
    let texts: Option<Vec<String>> = items
        .iter()
        .map(|item| fields::as_text(*item).map(std::borrow::Cow::into_owned))
        .collect();
    match texts.filter(|texts| !texts.is_empty()) {
        Some(texts) => Some(ResponseFormat {
            source: GrammarSource::Choice(texts),
            field: field.to_owned(),
        }),
        None => fields.no_value(
            field,
            format_args!("must be a list of 1 to {CHOICES_IN_GRAMMAR_MAX} strings"),
        ),
    }
}

fn text_format(
    fields: &mut Fields<'_>,
    field: &str,
    raw: RawJson<'_>,
    source: fn(String) -> GrammarSource,
) -> Option<ResponseFormat> {
    match fields::as_text(raw) {
        Some(text) => Some(ResponseFormat {
            source: source(text.into_owned()),
            field: field.to_owned(),
        }),
        None => fields.no_value(field, "must be a string"),
    }
}

#[cfg(test)]
mod tests;
