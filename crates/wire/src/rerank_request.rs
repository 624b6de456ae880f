//! Parser of requests to `/v1/rerank`, in the shape of Jina's and Cohere's APIs.

use crate::embeddings_input::INPUTS_MAX;
use crate::field_table::RERANK;
use crate::fields::{self, Fields, RawJson};
use crate::shared::generation_fields;
use crate::shared::images::TEXT_ALONE;
use generate::error::ApiError;
use generate::request::{IgnoredFields, Priority};
use serde_json::json;
use std::time::Duration;

/// A parsed request to score documents.
#[derive(Debug)]
pub struct ParsedRerank {
    /// What the documents are scored for.
    pub query: String,
    /// At least one.
    pub documents: Vec<String>,
    /// How many of the best documents are returned; `None`: all.
    pub top_n: Option<usize>,
    /// Whether the results have the documents' texts.
    pub return_documents: bool,
    /// Priority of the request.
    pub priority: Priority,
    /// Time in which the scores must be computed.
    pub deadline: Option<Duration>,
    /// Fields without a meaning here.
    pub ignored: IgnoredFields,
}

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>) -> Result<ParsedRerank, ApiError> {
    fields.record("query", || json!({"minLength": 1}));
    let query = fields.string("query").map(std::borrow::Cow::into_owned);
    match &query {
        None if fields.raw("query").is_none() => fields.reject("query", "is required"),
        Some(query) if query.is_empty() => fields.reject("query", "must not be empty"),
        _ => {}
    }
    let documents = read_documents(&mut fields);
    let top_n = fields.integer_as("top_n", 1..=i128::from(u32::MAX));
    let return_documents = fields.boolean("return_documents").unwrap_or(false);
    let stream_options = generation_fields::stream_options(&mut fields);
    fields.string("model");
    let ignored = fields.finish_request(&RERANK)?;
    Ok(ParsedRerank {
        query: query.unwrap_or_default(),
        documents,
        top_n,
        return_documents,
        priority: stream_options.priority,
        deadline: stream_options.deadline,
        ignored,
    })
}

/// Strings, or objects with a `text`. Errors are recorded in `fields`.
fn read_documents(fields: &mut Fields<'_>) -> Vec<String> {
    const NAME: &str = "documents";
    let schema = || {
        let text = json!({"type": "string", "minLength": 1});
        let object = json!({"type": "object", "properties": {"text": text}, "required": ["text"]});
        let document = json!({"anyOf": [text, object]});
        json!({"type": "array", "items": document, "minItems": 1, "maxItems": INPUTS_MAX})
    };
    let Some(raw) = fields.described(NAME, schema) else {
        fields.reject(NAME, "is required");
        return Vec::new();
    };
    let items = match fields::as_list(raw, usize::MAX) {
        Some(items) if items.len() > INPUTS_MAX => {
            fields.reject(NAME, format!("must hold at most {INPUTS_MAX} documents"));
            return Vec::new();
        }
        Some(items) if !items.is_empty() => items,
        _ => {
            fields.reject(NAME, "must be a list of strings, or of objects with a text");
            return Vec::new();
        }
    };
    let mut documents = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        if let Some(object) = fields::as_object(*item) {
            TEXT_ALONE.reject_others(fields, &format!("{NAME}[{i}]"), &object, false);
        }
        match document_text(*item) {
            Some(text) if !text.is_empty() => documents.push(text),
            Some(_) => fields.reject(format!("{NAME}[{i}]"), "must not be empty"),
            None => fields.reject(
                format!("{NAME}[{i}]"),
                "must be a string or an object with a text",
            ),
        }
    }
    documents
}

fn document_text(item: RawJson<'_>) -> Option<String> {
    let text = match fields::as_object(item) {
        Some(object) => fields::as_text(object.get("text")?)?.into_owned(),
        None => fields::as_text(item)?.into_owned(),
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str) -> Result<ParsedRerank, String> {
        let fields = Fields::parse(body.as_bytes()).expect("an object");
        parse(fields).map_err(|error| error.message)
    }

    #[test]
    fn documents_are_strings_or_objects() {
        let body = r#"{"query": "q", "documents": ["a", {"text": "b", "id": 7}], "top_n": 5, "return_documents": true}"#;
        let rerank = parsed(body).unwrap();
        assert_eq!(rerank.documents, ["a", "b"]);
        assert_eq!((rerank.top_n, rerank.return_documents), (Some(5), true));
        let plain = parsed(r#"{"query": "q", "documents": ["a"]}"#).unwrap();
        assert_eq!((plain.top_n, plain.return_documents), (None, false));
    }

    #[test]
    fn invalid_fields_are_named_together() {
        for (body, expected) in [
            (
                r#"{}"#,
                &["query: is required", "documents: is required"][..],
            ),
            (
                r#"{"query": "", "documents": []}"#,
                &["query: must not be empty", "documents: must be a list"],
            ),
            (r#"{"query": 5, "documents": ["a"]}"#, &["query: must be"]),
            (
                r#"{"query": "q", "documents": ["", 5, {"x": 1}]}"#,
                &[
                    "documents[0]: must not be empty",
                    "documents[1]: must be a string",
                    "documents[2]: must be a string",
                ],
            ),
            (
                r#"{"query": "q", "documents": [{"text": "a", "image": "data:,b"}, {"text": "a", "image": null}]}"#,
                &["documents[0].image: is not read here: only text is"],
            ),
            (
                r#"{"query": "q", "documents": ["a"], "top_n": 0}"#,
                &["top_n"],
            ),
        ] {
            let message = parsed(body).map(|_| ()).unwrap_err();
            for part in expected {
                assert!(message.contains(part), "{body}: {message}");
            }
        }
        let many = vec!["\"a\""; INPUTS_MAX + 1].join(",");
        let message = parsed(&format!(r#"{{"query": "q", "documents": [{many}]}}"#)).map(|_| ());
        assert!(message.unwrap_err().contains("at most 2048 documents"));
    }
}
