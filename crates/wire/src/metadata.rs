//! `metadata`: strings by name that a client attaches to a stored response or chat completion.

use crate::fields::{self, Fields, RawJson};
use generate::error::ApiError;
use serde_json::json;
use std::collections::BTreeMap;

/// Metadata of one stored object, by name.
pub type Metadata = BTreeMap<String, String>;

/// Limit of entries.
pub const METADATA_MAX: usize = 16;
/// Limit of a name, in characters.
pub const METADATA_NAME_CHARS_MAX: usize = 64;
/// Limit of a value, in characters.
pub const METADATA_CHARS_MAX: usize = 512;

/// Parses `metadata`; an error is recorded in `fields`.
pub fn parse_metadata(fields: &mut Fields<'_>) -> Metadata {
    let object = fields.object("metadata");
    fields.record("metadata", || {
        json!({
            "maxProperties": METADATA_MAX,
            "propertyNames": {"maxLength": METADATA_NAME_CHARS_MAX},
            "additionalProperties": {"type": "string", "maxLength": METADATA_CHARS_MAX},
        })
    });
    let Some(object) = object else {
        return Metadata::new();
    };
    let entry = |(name, raw): (&str, RawJson<'_>)| {
        let value = fields::as_text(raw)?;
        let fits = has_at_most(name, METADATA_NAME_CHARS_MAX);
        (fits && has_at_most(&value, METADATA_CHARS_MAX))
            .then(|| (name.to_owned(), value.into_owned()))
    };
    let entries = object.entries().take(METADATA_MAX + 1);
    let metadata: Option<Metadata> = entries.map(entry).collect();
    let metadata = metadata.filter(|_| object.entries().count() <= METADATA_MAX);
    if metadata.is_none() {
        let error_message = format!(
            "must be an object of at most {METADATA_MAX} strings of {METADATA_CHARS_MAX} characters, with \
             names of {METADATA_NAME_CHARS_MAX}"
        );
        fields.reject("metadata", error_message);
    }
    metadata.unwrap_or_default()
}

/// Parses a body that replaces the metadata of a stored chat completion; `null` clears the metadata.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_update(mut fields: Fields<'_>) -> Result<Metadata, ApiError> {
    if !fields.is_given("metadata") {
        fields.reject("metadata", "is required; null clears the metadata");
    }
    let metadata = parse_metadata(&mut fields);
    fields.record("metadata", || json!({"type": ["object", "null"]}));
    fields.finish()?;
    Ok(metadata)
}

fn has_at_most(text: &str, chars: usize) -> bool {
    text.len() <= chars || text.chars().count() <= chars
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn parsed(body: &Value) -> Result<Metadata, ApiError> {
        let body = body.to_string();
        parse_update(Fields::parse(body.as_bytes())?)
    }

    fn of_entries(entries: usize, name_chars: usize, chars: usize) -> Value {
        let name = |i: usize| format!("{i:é>name_chars$}");
        let metadata: Value = (0..entries)
            .map(|i| (name(i), json!("ü".repeat(chars))))
            .collect();
        json!({ "metadata": metadata })
    }

    #[test]
    fn metadata_is_bounded() {
        for (body, is_valid) in [
            (json!({"metadata": {"a": "b"}}), true),
            (json!({"metadata": null}), true),
            (json!({"metadata": {}}), true),
            (json!({}), false),
            (json!({"metadata": "a"}), false),
            (json!({"metadata": {"a": 1}}), false),
            (json!({"metadata": {"a": null}}), false),
            (of_entries(16, 64, 512), true),
            (of_entries(17, 64, 512), false),
            (of_entries(16, 65, 512), false),
            (of_entries(1, 1, 513), false),
        ] {
            let problems = parsed(&body).err().map(|error| error.problems);
            let fields = problems.map(|problems| problems[0].field.clone());
            let want = (!is_valid).then(|| "metadata".to_owned());
            assert_eq!(fields, want, "{body}");
        }
        let metadata = parsed(&json!({"metadata": {"b": "2", "a": "1"}})).expect("valid");
        assert_eq!(metadata.len(), 2);
        assert_eq!(metadata["a"], "1");
    }
}
