//! Rust text without the contents of its comments and literals, so that braces and words can be searched line by line.

/// The text with comments left out and `_` for each visible character of a string or character literal. Lines stay where they are.
pub(crate) fn masked(text: &str) -> String {
    let mut mask = Mask {
        rest: text,
        out: String::with_capacity(text.len()),
        before: None,
    };
    while !mask.rest.is_empty() {
        mask.step();
    }
    mask.out
}

struct Mask<'a> {
    rest: &'a str,
    out: String,
    /// The last character that was kept as code.
    before: Option<char>,
}

impl Mask<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(block_comment_length(self.rest));
        } else if let Some(length) = self.raw_string_length() {
            self.hide(length);
        } else if self.rest.starts_with('"') {
            self.hide(1 + quoted_length(&self.rest[1..], '"'));
        } else if is_character_literal(self.rest) {
            self.hide(1 + quoted_length(&self.rest[1..], '\''));
        } else if let Some(kept) = self.rest.chars().next() {
            self.out.push(kept);
            self.before = Some(kept);
            self.rest = &self.rest[kept.len_utf8()..];
        }
    }

    /// Leaves out a comment, but not its line ends.
    fn skip(&mut self, length: usize) {
        let (comment, rest) = self.rest.split_at(length);
        self.out.extend(comment.matches('\n'));
        self.rest = rest;
    }

    fn hide(&mut self, length: usize) {
        let (literal, rest) = self.rest.split_at(length);
        let hidden = literal
            .chars()
            .map(|c| if c.is_whitespace() { c } else { '_' });
        self.out.extend(hidden);
        self.before = Some('_');
        self.rest = rest;
    }

    /// Length of a raw string that begins here: `r"…"`, `r#"…"#`. A `b` or `c` before it is kept as code.
    fn raw_string_length(&self) -> Option<usize> {
        let hashes = self.rest.strip_prefix('r')?;
        let within_word = self.before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let after_prefix = matches!(self.before, Some('b' | 'c'));
        if within_word && !after_prefix {
            return None;
        }
        let count = hashes.bytes().take_while(|&b| b == b'#').count();
        let text = hashes[count..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(count));
        let length = text.find(&end).map_or(text.len(), |at| at + end.len());
        Some(1 + count + 1 + length)
    }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else if let Some(c) = text[at..].chars().next() {
            at += c.len_utf8();
        } else {
            return at;
        }
        if depth == 0 {
            return at;
        }
    }
}

/// Length of a literal's text up to and with the closing quote.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Whether a quotation mark begins a character and no lifetime.
fn is_character_literal(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\'') && (chars.next() == Some('\\') || chars.next() == Some('\''))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn text_without_comments_and_literals_keeps_its_lines() {
        let rows = [
            ("a // b {\nc", "a \nc"),
            ("a /* b\n/* { */ c */ d", "a \n d"),
            (r#"f("{ \" }");"#, "f(__ __ __);"),
            (
                "let a = \"one {\n  // two\n\";",
                "let a = ____ _\n  __ ___\n_;",
            ),
            ("r#\"a \" {\"# }", "____ _ ___ }"),
            ("br\"{\" }", "b____ }"),
            ("for r in '{'..='\\'' {", "for r in ___..=____ {"),
            ("fn f<'a>(x: &'a str) {", "fn f<'a>(x: &'a str) {"),
            ("b'\"' }", "b___ }"),
        ];
        for (text, want) in rows {
            assert_eq!(masked(text), want, "{text}");
        }
    }
}
