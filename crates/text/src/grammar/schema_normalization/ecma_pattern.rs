//! Regular expressions of ECMA-262, which JSON Schema takes, in the syntax of Rust's `regex`.
//!
//! Translated is what the two read differently: classes (`[^[\]]`, `[]`, `[^]`, `[\b]`, `&&`), braces that are no counts
//! (`{{.*}}`), escapes (`\cA`, `\0`, `\<`, pairs of surrogates), `\s`, and `.`, which does not match a carriage return either.
//! What Rust does not have (look-around, references to groups) stays as written and is rejected when the expression is
//! compiled. An expression that is not finished stays as written, too.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// White space of ECMA-262, in a class.
const SPACE: &str =
    r"\t\n\x0B\x0C\r \xA0\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";

/// The expression in Rust's syntax.
pub(super) fn in_rust(pattern: &str) -> String {
    let mut translation = PatternTranslation {
        rest: pattern.chars().peekable(),
        out: String::new(),
    };
    match translation.pattern() {
        Some(()) => translation.out,
        None => pattern.to_owned(),
    }
}

struct PatternTranslation<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

impl PatternTranslation<'_> {
    /// Translates all; `None` where a class or an escape is not finished.
    fn pattern(&mut self) -> Option<()> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '.' => self.out.push_str(r"[^\n\r]"),
                '{' => match self.count() {
                    Some(count) => self.out.push_str(&count),
                    None => self.literal('{'),
                },
                '}' | ']' => self.literal(c),
                c => self.out.push(c),
            }
        }
        Some(())
    }

    /// A count `{1}`, `{1,}` or `{1,2}` after its brace, which is consumed if there is one.
    fn count(&mut self) -> Option<String> {
        let mut ahead = self.rest.clone();
        let mut inner = String::new();
        while let Some(c) = ahead.next_if(|c| c.is_ascii_digit() || *c == ',') {
            inner.push(c);
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_count = match inner.split_once(',') {
            Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
            None => is_number(&inner),
        };
        if !is_count || ahead.next() != Some('}') {
            return None;
        }
        self.rest = ahead;
        Some(format!("{{{inner}}}"))
    }

    /// A class after its bracket.
    fn class(&mut self) -> Option<()> {
        let is_negated = self.rest.next_if_eq(&'^').is_some();
        if self.rest.next_if_eq(&']').is_some() {
            self.out
                .push_str(if is_negated { r"[\s\S]" } else { r"[^\s\S]" });
            return Some(());
        }
        self.out.push_str(if is_negated { "[^" } else { "[" });
        // Where a hyphen means itself: at the start, after a class and after a range.
        let (mut is_edge, mut is_range) = (true, false);
        loop {
            let c = self.rest.next()?;
            match c {
                ']' => break,
                '-' if !is_edge && !self.is_before_class() => {
                    self.out.push('-');
                    is_range = true;
                    continue;
                }
                '\\' => {
                    is_edge = self.is_class_letter();
                    self.escape(true)?;
                }
                c => {
                    is_edge = false;
                    self.literal(c);
                }
            }
            is_edge |= std::mem::take(&mut is_range);
        }
        self.out.push(']');
        Some(())
    }

    /// Whether the next characters end the class, or are a class themselves.
    fn is_before_class(&self) -> bool {
        let mut ahead = self.rest.clone();
        match ahead.next() {
            Some('\\') => matches!(ahead.next(), Some('d' | 'D' | 'w' | 'W' | 's' | 'S')),
            next => next == Some(']'),
        }
    }

    fn is_class_letter(&mut self) -> bool {
        matches!(
            self.rest.peek(),
            Some('d' | 'D' | 'w' | 'W' | 's' | 'S' | 'p' | 'P')
        )
    }

    /// An escape after its backslash.
    fn escape(&mut self, in_class: bool) -> Option<()> {
        match self.rest.next()? {
            'c' => self.control(),
            'b' if in_class => self.literal('\x08'),
            's' if in_class => self.out.push_str(SPACE),
            's' => _ = write!(self.out, "[{SPACE}]"),
            'S' if !in_class => _ = write!(self.out, "[^{SPACE}]"),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => self.literal('\0'),
            'v' => self.literal('\x0B'),
            'f' => self.literal('\x0C'),
            'u' if self.rest.peek() != Some(&'{') => self.unicode(),
            c @ ('u' | 'p' | 'P') => {
                self.out.push('\\');
                self.out.push(c);
                self.braced()?;
            }
            // Classes, boundaries, white space and codes; references to groups; anchors of other languages.
            c @ ('d'
            | 'D'
            | 'w'
            | 'W'
            | 'b'
            | 'B'
            | 'S'
            | 't'
            | 'n'
            | 'r'
            | 'x'
            | 'k'
            | 'A'
            | 'Z'
            | 'z'
            | '0'..='9') => {
                self.out.push('\\');
                self.out.push(c);
            }
            // Other characters mean themselves.
            c => self.literal(c),
        }
        Some(())
    }

    /// Copies what stands in braces, if they come next.
    fn braced(&mut self) -> Option<()> {
        if self.rest.peek() == Some(&'{') {
            loop {
                let c = self.rest.next()?;
                self.out.push(c);
                if c == '}' {
                    break;
                }
            }
        }
        Some(())
    }

    /// `\cA` is the character 1; without a letter, the backslash means itself.
    fn control(&mut self) {
        match self.rest.next_if(char::is_ascii_alphabetic) {
            Some(letter) => self.literal((letter as u8 % 32) as char),
            None => {
                self.literal('\\');
                self.out.push('c');
            }
        }
    }

    /// `\u` with four digits; two surrogates are one character.
    fn unicode(&mut self) {
        let Some(first) = self.four_digits() else {
            self.out.push_str(r"\u");
            return;
        };
        let mut ahead = self.rest.clone();
        let is_escape = ahead.next() == Some('\\') && ahead.next() == Some('u');
        if (0xD800..0xDC00).contains(&first) && is_escape {
            let before = std::mem::replace(&mut self.rest, ahead);
            match self.four_digits() {
                Some(second) if (0xDC00..0xE000).contains(&second) => {
                    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                    _ = write!(self.out, r"\u{{{code:X}}}");
                    return;
                }
                _ => self.rest = before,
            }
        }
        _ = write!(self.out, r"\u{{{first:X}}}");
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits: String = self.rest.clone().take(4).collect();
        let is_code = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let code = u32::from_str_radix(&digits, 16).ok().filter(|_| is_code)?;
        self.rest.nth(3);
        Some(code)
    }

    /// A character that means itself, within and outside classes.
    fn literal(&mut self, c: char) {
        match c {
            c if c.is_ascii_alphanumeric() || !c.is_ascii() || matches!(c, ' ' | '_' | '/') => {
                self.out.push(c);
            }
            c if c.is_ascii_punctuation() && !matches!(c, '<' | '>') => {
                self.out.push('\\');
                self.out.push(c);
            }
            c => _ = write!(self.out, r"\x{:02X}", c as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_automata::meta::Regex;

    type Row = (
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    );

    const ROWS: [Row; 28] = [
        (r"^[^[\]]+$", &["ab", "a,b"], &["[", "a]", ""]),
        (r"^[^]$", &["a", "\n"], &["", "ab"]),
        (r"^a[]?$", &["a"], &["", "ab"]),
        (r"^{{.*}}$", &["{{}}", "{{a}}"], &["{}", "a"]),
        (r"^a{2}b{1,}c{0,1}$", &["aab", "aabbc"], &["ab", "aabcc"]),
        (r"^a{,2}$", &["a{,2}"], &["a", "aa"]),
        (r"^a{1$", &["a{1"], &["a"]),
        (r"^\cA\cj$", &["\u{1}\n"], &["A", ""]),
        (r"^[\b]$", &["\u{8}"], &["b"]),
        (r"^[\w-]+$", &["a-b"], &["a.b"]),
        (r"^[a\-z]$", &["-", "z"], &["b"]),
        (r"^[+-\d]$", &["+", "-", "7"], &[",", "."]),
        (r"^[a-c&&b]$", &["a", "&", "b"], &["d"]),
        (r"^[\[-a]$", &["[", "^", "a"], &["-", "b"]),
        (r"^[a-c-e]$", &["b", "-", "e"], &["d"]),
        (r"^(https:\/\/)?x\.\d+$", &["https://x.1", "x.20"], &["xy1"]),
        (
            r"^\s[\s]$",
            &[" \u{feff}", "\t\u{2028}"],
            &["a ", " \u{85}"],
        ),
        (r"^\S$", &["a", "\u{85}"], &[" ", "\u{feff}"]),
        (r"^\uD83D\uDE00$", &["\u{1f600}"], &[""]),
        (r"^\p{Lu}[\p{Ll}-]$", &["Aa", "A-"], &["a-"]),
        (r"^\u0041\u{1F600}\x42$", &["A\u{1f600}B"], &["A"]),
        (r"^\<\>\-\_\0$", &["<>-_\0"], &["-_"]),
        (r"^\-\/\_\@\ \'\%\:$", &["-/_@ '%:"], &[r"\-"]),
        (
            r"^[\-\/\_\@]\a\e\y$",
            &["@aey", "/aey"],
            &["aey", "@\u{7}ey"],
        ),
        (r"^.$", &["a", "\u{e9}"], &["\n", "\r"]),
        (r"^[.]\]}$", &[".]}"], &["a]}"]),
        (r"^(?:a|b)(?<n>c)$", &["ac", "bc"], &["a"]),
        (r"^[[:alpha:]]$", &["a]", ":]", "[]"], &["b", "a"]),
    ];

    #[test]
    fn translated_patterns_match_as_in_ecma() {
        for (pattern, valid, invalid) in ROWS {
            let ours = in_rust(pattern);
            let Ok(regex) = Regex::new(&ours) else {
                assert!(valid.is_empty(), "{pattern} as {ours} is no expression");
                continue;
            };
            for (texts, expected) in [(valid, true), (invalid, false)] {
                for text in texts {
                    assert_eq!(
                        regex.is_match(text),
                        expected,
                        "{text:?} under {pattern}, as {ours}"
                    );
                }
            }
        }
    }

    /// Work that grew with the square of the length would take hours here.
    #[test]
    fn long_patterns_are_translated_in_one_pass() {
        let braces = 1_000_000;
        for (pattern, expected) in [("{", r"\{"), ("{1,", r"\{1,")] {
            assert!(in_rust(&pattern.repeat(braces)) == expected.repeat(braces));
        }
    }

    #[test]
    fn unfinished_patterns_stay_as_written() {
        for pattern in ["([", "[a", "a\\", "[\\"] {
            assert_eq!(in_rust(pattern), pattern);
        }
    }
}
