//! Text on a terminal: untrusted text, such as names of files, and tables with aligned columns.

use std::borrow::Cow;
use std::fmt::Write;

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

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows under a head, each column as wide as the widest cell; no blanks at the ends of lines.
pub(super) fn table<const N: usize>(
    head: [&str; N],
    align: [Align; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let rows = rows.map(|row| row.map(|cell| printable(&cell).into_owned()));
    let rows: Vec<_> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), align) in row.iter().zip(widths).zip(align) {
            // Writing to a string cannot fail.
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}  "),
                Align::Right => write!(line, "{cell:>width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A size with a binary unit.
pub(super) fn bytes(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if size < KIB {
            let decimals = usize::from(unit != "B");
            return format!("{size:.decimals$} {unit}");
        }
        size /= KIB;
    }
    format!("{size:.1} GiB")
}

/// A time span in the largest unit that fits.
pub(super) fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (365 * 86_400, "year"),
        (30 * 86_400, "month"),
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let unit = UNITS.iter().find(|(each, _)| seconds >= *each);
    let (each, name) = unit.unwrap_or(&UNITS[UNITS.len() - 1]);
    match seconds / each {
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::{printable, printable_lines, *};

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

    #[test]
    fn sizes_and_spans_in_words() {
        let sizes = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3_700_000, "3.5 MiB"),
            (5 << 30, "5.0 GiB"),
            (5 << 40, "5120.0 GiB"),
        ];
        for (size, want) in sizes {
            assert_eq!(bytes(size), want);
        }
        let spans = [
            (0, "0 seconds"),
            (1, "1 second"),
            (59, "59 seconds"),
            (60, "1 minute"),
            (7_199, "1 hour"),
            (86_400 * 2, "2 days"),
            (86_400 * 400, "1 year"),
        ];
        for (seconds, want) in spans {
            assert_eq!(span(seconds), want);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["ä".to_owned(), "10".to_owned()],
            ["bcd".to_owned(), "9".to_owned()],
        ];
        let shown = table(["A", "N"], [Align::Left, Align::Right], rows.into_iter());
        assert_eq!(shown, "A     N\nä    10\nbcd   9\n");
    }
}
