//! The input texts of an embeddings request.

use crate::fields::bounds::IDS_MAX;
use crate::fields::recorder::token_id_schema;
use crate::fields::{self, Fields, JsonType, RawJson};
use generate::request::Prompt;
use serde_json::{Value, json};

/// Limit of input texts per request: OpenAI's.
pub const INPUTS_MAX: usize = 2048;
/// The part of the header of ignored fields that warns of token ids: those of another vocabulary are other texts.
const IDS_WARNING: &str = "input.token_ids_of_another_vocabulary";

/// Whether the input is absent, an empty text, or no text at all.
pub(crate) fn is_empty_input(fields: &Fields<'_>, name: &str) -> bool {
    let raw = fields.raw(name);
    raw.is_none_or(|raw| fields::is_empty_list(raw) || fields::as_text(raw).as_deref() == Some(""))
}

/// Parses a string, a list of strings, token ids, or lists of token ids. Errors are recorded in `fields`. The vocabulary of
/// the client is not known, so the response's header warns where there are ids.
pub fn read_inputs(fields: &mut Fields<'_>, name: &str, vocab: usize) -> Vec<Prompt> {
    let Some(raw) = fields.described(name, || inputs_schema(INPUTS_MAX)) else {
        fields.reject(name, "is required");
        return Vec::new();
    };
    if let Some(text) = fields::as_text(raw) {
        return text_input(fields, name, &text).into_iter().collect();
    }
    if fields::begins_with_number(raw) {
        return ids_input(fields, name, raw, vocab).into_iter().collect();
    }
    match fields::as_list(raw, usize::MAX).as_deref() {
        Some([]) | None => fields.reject(
            name,
            "must be a string, a list of strings, token ids, or lists of token ids",
        ),
        Some(items) if items.len() > INPUTS_MAX => {
            fields.reject(name, format!("must hold at most {INPUTS_MAX} texts"));
        }
        Some(items) => {
            let read = |(i, item): (usize, &RawJson<'_>)| {
                let path = format!("{name}[{i}]");
                if let Some(text) = fields::as_text(*item) {
                    return text_input(fields, &path, &text);
                }
                if fields::json_type(*item) != JsonType::Array {
                    fields.reject(path, "must be a string or a list of token ids");
                    return None;
                }
                ids_input(fields, &path, *item, vocab)
            };
            return items.iter().enumerate().filter_map(read).collect();
        }
    }
    Vec::new()
}

/// The schema of a text or token ids to embed, or of a list of at most `max`.
fn inputs_schema(max: usize) -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let ids =
        json!({"type": "array", "items": token_id_schema(), "minItems": 1, "maxItems": IDS_MAX});
    let input = json!({"anyOf": [text, ids]});
    json!({"anyOf": [
        text, ids,
        {"type": "array", "items": input, "minItems": 1, "maxItems": max},
    ]})
}

/// As [`inputs_schema`], or nothing to embed.
pub(crate) fn optional_inputs_schema(max: usize) -> Value {
    let nothing = json!({"type": "array", "maxItems": 0});
    json!({"anyOf": [inputs_schema(max), {"enum": ["", null]}, nothing]})
}

fn text_input(fields: &mut Fields<'_>, path: &str, text: &str) -> Option<Prompt> {
    if text.is_empty() {
        fields.reject(path, "must not be empty");
        return None;
    }
    Some(Prompt::Text(text.to_owned()))
}

fn ids_input(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    vocab: usize,
) -> Option<Prompt> {
    let ids = fields.ids(path, raw, vocab)?;
    fields.leave_out(path, IDS_WARNING.to_owned());
    if ids.is_empty() {
        fields.reject(path, "must hold at least one token id");
        return None;
    }
    Some(Prompt::Ids(ids))
}
