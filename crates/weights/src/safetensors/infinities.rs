//! JSON as Python writes it: numbers may be `Infinity`, which no other reader of JSON accepts.

/// A number that is larger than any other.
const WORD: &[u8] = b"Infinity";

/// The text of a JSON file with `Infinity` and `-Infinity` outside of texts as texts. Files of Mamba-2 have such a number
/// in a field that is compared as text; in any other field, the error names the field.
pub fn without_infinities(text: Vec<u8>) -> Vec<u8> {
    if !text.windows(WORD.len()).any(|part| part == WORD) {
        return text;
    }
    let mut out = Vec::with_capacity(text.len() + 2 * WORD.len());
    let (mut is_inside, mut at) = (false, 0);
    while let Some(&byte) = text.get(at) {
        let sign = usize::from(byte == b'-');
        if !is_inside && text[at + sign..].starts_with(WORD) {
            let end = at + sign + WORD.len();
            out.push(b'"');
            out.extend_from_slice(&text[at..end]);
            out.push(b'"');
            at = end;
            continue;
        }
        // An escaped quotation mark does not end a text.
        let step = if is_inside && byte == b'\\' { 2 } else { 1 };
        if byte == b'"' {
            is_inside = !is_inside;
        }
        let end = (at + step).min(text.len());
        out.extend_from_slice(&text[at..end]);
        at = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::without_infinities;

    #[test]
    fn infinities_become_texts_outside_of_texts() {
        for (text, wanted) in [
            (r#"{"a": [0.0, Infinity]}"#, r#"{"a": [0.0, "Infinity"]}"#),
            (r#"{"a": -Infinity}"#, r#"{"a": "-Infinity"}"#),
            (
                r#"{"Infinity": "-Infinity"}"#,
                r#"{"Infinity": "-Infinity"}"#,
            ),
            (
                r#"{"a\"": Infinity, "b": "\\"}"#,
                r#"{"a\"": "Infinity", "b": "\\"}"#,
            ),
            (
                r#"{"a": "\"Infinity", "b": 1}"#,
                r#"{"a": "\"Infinity", "b": 1}"#,
            ),
            ("-", "-"),
            ("Infinity\"\\", "\"Infinity\"\"\\"),
            ("NaN", "NaN"),
        ] {
            let found = without_infinities(text.as_bytes().to_vec());
            assert_eq!(String::from_utf8_lossy(&found), wanted, "{text}");
        }
    }
}
