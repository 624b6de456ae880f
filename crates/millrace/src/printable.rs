//! Untrusted text, such as names of files, as printed on a terminal.

use std::borrow::Cow;

/// The text with its control characters as escapes (`\u{1b}`), so that it moves no cursor and sets no title.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Several lines, each as [`printable`].
pub(crate) fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// Control characters, and those that change the direction of text.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{printable, printable_lines};

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("qwen3:0.6b \u{e9}"), "qwen3:0.6b \u{e9}");
        assert_eq!(
            printable("a\u{1b}]0;t\u{7}b\n"),
            "a\\u{1b}]0;t\\u{7}b\\u{a}"
        );
        assert_eq!(printable("a\u{202e}b\u{9b}"), "a\\u{202e}b\\u{9b}");
        assert_eq!(printable_lines("a\n  b\r"), "a\n  b\\u{d}");
    }
}
