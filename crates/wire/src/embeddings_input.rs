//! The input texts of an embeddings request.

use crate::base64;
use crate::fields::bounds::IDS_MAX;
use crate::fields::recorder::token_id_schema;
use crate::fields::{self, Fields};
use crate::shared::messages::parse_prompts;
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
    fields.record(name, || inputs_schema(INPUTS_MAX));
    parse_prompts(
        fields,
        name,
        (INPUTS_MAX, "texts"),
        vocab,
        |fields, path, input| {
            match &input {
                Prompt::Text(text) if text.is_empty() => {
                    fields.reject(path, "must not be empty");
                    return None;
                }
                Prompt::Ids(_) => fields.leave_out(path, IDS_WARNING.to_owned()),
                _ => {}
            }
            Some(input)
        },
    )
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

/// The first `dimensions` entries of a vector, normalized to length 1 if `norm` is set.
pub fn cut_and_normalize(vector: &[f32], dimensions: Option<usize>, norm: bool) -> Vec<f32> {
    let mut vector = vector[..dimensions.unwrap_or(vector.len()).min(vector.len())].to_vec();
    let squares = vector.iter().map(|&x| f64::from(x) * f64::from(x));
    let length = squares.sum::<f64>().sqrt();
    if norm && length > 0.0 {
        #[expect(clippy::cast_possible_truncation, reason = "at most 1")]
        vector
            .iter_mut()
            .for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    vector
}

/// A vector as little-endian f32 in base64.
pub fn base64_text(vector: &[f32]) -> String {
    let bytes = vector.iter().flat_map(|entry| entry.to_le_bytes());
    base64::encode(&bytes.collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_is_cut_before_normalization() {
        let rows: [(&[f32], _, _, &[f32]); 5] = [
            (&[3.0, 4.0], None, true, &[0.6, 0.8]),
            (&[3.0, 4.0, 12.0], Some(2), true, &[0.6, 0.8]),
            (&[3.0, 4.0], None, false, &[3.0, 4.0]),
            (&[0.0, 0.0], None, true, &[0.0, 0.0]),
            (&[3.0, 4.0], Some(9), false, &[3.0, 4.0]),
        ];
        for (vector, dimensions, norm, want) in rows {
            assert_eq!(cut_and_normalize(vector, dimensions, norm), want);
        }
    }

    #[test]
    fn vector_in_base64_is_little_endian() {
        // Python: base64.b64encode(struct.pack("<2f", 1, -0.5)).
        assert_eq!(base64_text(&[1.0, -0.5]), "AACAPwAAAL8=");
    }
}
