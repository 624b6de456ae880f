//! Escaping and white space of JSON.

/// Appends a character as the content of a JSON string.
pub(super) fn push_escaped(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => {
            out.push_str("\\u00");
            for nibble in [u32::from(c) >> 4, u32::from(c) & 15] {
                out.extend(char::from_digit(nibble, 16));
            }
        }
        c => out.push(c),
    }
}

/// Whether the character is JSON white space.
pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}
