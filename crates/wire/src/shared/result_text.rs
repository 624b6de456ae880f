//! Texts of results of tools that ran elsewhere, in whatever form their API gives them.

use crate::fields::{self, RawJson};
use serde_json::Value;

/// The text of a result: a text, the texts of its parts, or JSON without what no model reads.
pub(crate) fn result_text(raw: RawJson<'_>) -> String {
    if let Some(text) = fields::as_text(raw) {
        return text.into_owned();
    }
    let Some(mut result) = fields::parse_value::<Value>(raw) else {
        return raw.get().to_owned();
    };
    if let Some(texts) = texts_of_parts(&result) {
        return texts.join("\n");
    }
    drop_opaque(&mut result);
    result.to_string()
}

/// The texts of a list of parts that have nothing else; an empty list has none.
fn texts_of_parts(result: &Value) -> Option<Vec<&str>> {
    let parts = result.as_array()?.iter();
    let text = |part: &'_ Value| part.get("text").is_some_and(Value::is_string);
    let is_text = parts.clone().all(text);
    let texts = parts.filter_map(|part| part["text"].as_str());
    is_text.then(|| texts.collect())
}

/// Removes the members that are encrypted for the API that gave the result, and files and images in base64.
fn drop_opaque(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_opaque),
        Value::Object(members) => {
            members.retain(|name, _| {
                let is_file = matches!(&**name, "image_url" | "file_data" | "b64_json");
                !is_file && !name.starts_with("encrypted_")
            });
            members.values_mut().for_each(drop_opaque);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_any_form_has_a_text() {
        for (result, want) in [
            (r#""a\nb""#, "a\nb"),
            (
                r#"[{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}]"#,
                "a\nb",
            ),
            ("[]", ""),
            (
                r#"[{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]"#,
                r#"[{"stdout":"x","stderr":"","outcome":{"type":"exit","exit_code":0}}]"#,
            ),
            (
                r#"[{"type": "web_search_result", "url": "u", "encrypted_content": "e", "page_age": null}]"#,
                r#"[{"type":"web_search_result","url":"u","page_age":null}]"#,
            ),
            (
                r#"{"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}"#,
                r#"{"type":"computer_screenshot"}"#,
            ),
        ] {
            let raw = serde_json::from_str(result).expect("JSON");
            assert_eq!(result_text(raw), want, "{result}");
        }
    }
}
