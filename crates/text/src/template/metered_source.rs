//! Chat templates in which operators count their work.
//!
//! minijinja's fuel counts instructions, but one operator may copy or compare megabytes. Filters and methods count what they do
//! ([`bounded_filters`](super::bounded_filters)); operators cannot. The source is therefore rewritten before it is compiled: each operand of an operator
//! whose time depends on the operand goes through a filter that counts the operand's size, as does the text that a tag writes.
//!
//! ```text
//! {{ a.b ~ c[1:] }}      {{ a.b|_w ~ (c|_w)[1:]|_w }}
//! ```
//!
//! A filter binds more tightly than any operator, so nothing else needs to be parsed than where an operand begins and ends.

use super::bounded_filters::{COUNT_FILTER, SIZE_FILTER};
use minijinja::syntax::SyntaxConfig;

/// The longest literal that is not counted: the source bounds how many there are.
const LITERAL_BYTES_MAX: usize = 64;

/// Filters that do not read the whole value. `length` counts a text itself.
const CHEAP_FILTERS: [&str; 4] = ["length", "count", "default", "d"];

/// The source in which operators count their work.
pub(super) fn metered(source: &str) -> String {
    let mut metering = SourceMetering {
        rest: source,
        out: String::with_capacity(source.len() * 2),
    };
    while let Some(at) = metering.next_tag() {
        metering.copy(at);
        match &metering.rest[..2] {
            "{#" => metering.copy_through("#}"),
            opening => metering.tag(opening == "{{"),
        }
    }
    metering.copy(metering.rest.len());
    metering.out
}

struct SourceMetering<'s> {
    rest: &'s str,
    out: String,
}

/// An operand in the output.
#[derive(Clone, Copy)]
struct Operand {
    start: usize,
    end: usize,
    is_literal: bool,
}

/// What a bracket opens.
#[derive(Clone, Copy, PartialEq)]
enum BracketKind {
    Tag,
    /// Arguments or a subscript: a part of the operand before.
    Suffix,
    Group,
}

/// The expression within a bracket or a tag.
struct Bracket {
    kind: BracketKind,
    start: usize,
    operand: Option<Operand>,
    /// The filter for an operand after the last operator.
    after: Option<&'static str>,
}

impl SourceMetering<'_> {
    fn next_tag(&self) -> Option<usize> {
        let is_tag = |pair: &[u8]| matches!(pair, b"{{" | b"{%" | b"{#");
        self.rest.as_bytes().windows(2).position(is_tag)
    }

    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.rest.split_at(bytes);
        self.out.push_str(copied);
        self.rest = rest;
    }

    fn copy_through(&mut self, end: &str) {
        let bytes = self
            .rest
            .find(end)
            .map_or(self.rest.len(), |at| at + end.len());
        self.copy(bytes);
    }

    fn copy_blanks(&mut self) {
        self.copy(self.rest.len() - self.rest.trim_start().len());
    }

    /// Copies a tag with its delimiters.
    fn tag(&mut self, writes: bool) {
        self.copy(2);
        if self.rest.starts_with(['-', '+']) {
            self.copy(1);
        }
        self.copy_blanks();
        let keyword = if writes { "" } else { name_of(self.rest) };
        let is_raw = keyword == "raw";
        let has_target = keyword == "for";
        self.copy(keyword.len());
        if is_raw {
            while let Some(at) = self.rest.find("{%") {
                self.copy(at + 2);
                let word = self.rest.trim_start_matches(['-', '+']).trim_start();
                if word.starts_with("endraw") {
                    break;
                }
            }
            return self.copy_through("%}");
        }
        self.expression(writes, has_target);
    }

    /// Copies the rest of a tag with its end. `writes`: the value of the tag is written.
    fn expression(&mut self, writes: bool, mut has_target: bool) {
        let end = if writes { "}}" } else { "%}" };
        let mut open = vec![Bracket::new(BracketKind::Tag, 0)];
        let mut is_suffix = false;
        while !self.rest.is_empty() {
            self.copy_blanks();
            let inner = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
            if open.len() == 1 && inner.starts_with(end) {
                self.settle(&mut open, writes);
                return self.copy(self.rest.len() - inner.len() + end.len());
            }
            let name = name_of(self.rest);
            let first = self.rest.chars().next().unwrap_or_default();
            if matches!(first, '\'' | '"') {
                self.literal(&mut open, string_bytes(self.rest));
                is_suffix = false;
            } else if first.is_ascii_digit() && !is_suffix {
                self.literal(&mut open, number_bytes(self.rest));
            } else if name.is_empty() {
                self.sign(&mut open);
                is_suffix = matches!(first, '.' | '|');
            } else if is_suffix {
                self.copy(name.len());
                self.extend_operand(&mut open);
                is_suffix = name == "not";
            } else {
                self.word(&mut open, name, writes, &mut has_target);
                is_suffix = name == "is";
            }
        }
    }

    /// A name that is no part of the operand before.
    fn word(&mut self, open: &mut [Bracket], name: &str, writes: bool, has_target: &mut bool) {
        let start = self.out.len();
        match name {
            // Before it are the names that a loop sets.
            "in" if *has_target && open.len() == 1 => {
                *has_target = false;
                clear(open, Some(SIZE_FILTER));
            }
            "in" => return self.operator(open, SIZE_FILTER, name.len()),
            "and" | "or" | "if" | "else" | "recursive" => self.settle(open, writes),
            "not" | "is" => {}
            _ => {
                self.copy(name.len());
                return self.set_operand(open, start, false);
            }
        }
        self.copy(name.len());
    }

    /// A character that begins no name and no literal.
    fn sign(&mut self, open: &mut Vec<Bracket>) {
        let has_operand = open.last().is_some_and(|bracket| bracket.operand.is_some());
        let two = self.rest.get(..2).unwrap_or_default();
        match self.rest.chars().next().unwrap_or_default() {
            '(' | '[' | '{' => {
                let kind = if has_operand {
                    BracketKind::Suffix
                } else {
                    BracketKind::Group
                };
                if has_operand && is_slice(self.rest) {
                    self.count(open, SIZE_FILTER, ("(", ")"));
                }
                open.push(Bracket::new(kind, self.out.len()));
                self.copy(1);
            }
            ')' | ']' | '}' => {
                self.settle(open, false);
                self.copy(1);
                let closed = if open.len() > 1 { open.pop() } else { None };
                match closed {
                    Some(group) if group.kind == BracketKind::Group => {
                        self.set_operand(open, group.start, false);
                    }
                    _ => self.extend_operand(open),
                }
            }
            '|' => {
                if !CHEAP_FILTERS.contains(&name_of(self.rest[1..].trim_start())) {
                    self.count(open, SIZE_FILTER, ("", ""));
                }
                self.copy(1);
            }
            '.' => self.copy(1),
            '~' | '+' if has_operand => self.operator(open, SIZE_FILTER, 1),
            '*' if has_operand && two != "**" => self.operator(open, COUNT_FILTER, 1),
            '=' | '!' | '<' | '>' if two.ends_with('=') => self.operator(open, SIZE_FILTER, 2),
            '<' | '>' => self.operator(open, SIZE_FILTER, 1),
            other => {
                self.settle(open, false);
                self.copy(other.len_utf8());
            }
        }
    }

    fn literal(&mut self, open: &mut [Bracket], bytes: usize) {
        let start = self.out.len();
        self.copy(bytes);
        self.set_operand(open, start, bytes <= LITERAL_BYTES_MAX);
    }

    fn set_operand(&self, open: &mut [Bracket], start: usize, is_literal: bool) {
        if let Some(bracket) = open.last_mut() {
            bracket.operand = Some(Operand {
                start,
                end: self.out.len(),
                is_literal,
            });
        }
    }

    /// The operand before now ends where the output does.
    fn extend_operand(&self, open: &mut [Bracket]) {
        if let Some(operand) = open.last_mut().and_then(|bracket| bracket.operand.as_mut()) {
            (operand.end, operand.is_literal) = (self.out.len(), false);
        }
    }

    /// An operator whose operands are counted by this filter.
    fn operator(&mut self, open: &mut [Bracket], filter: &'static str, bytes: usize) {
        self.count(open, filter, ("", ""));
        clear(open, Some(filter));
        self.copy(bytes);
    }

    /// The end of an operand: it is counted if an operator stands before it, or if its value is written.
    fn settle(&mut self, open: &mut [Bracket], writes: bool) {
        let is_outer = open.len() == 1;
        let Some(bracket) = open.last() else { return };
        // minijinja recognizes these calls only where nothing follows.
        let is_call = |operand: &Operand| {
            let text = &self.out[operand.start..];
            ["loop(", "super(", "self."]
                .iter()
                .any(|call| text.starts_with(call))
        };
        let is_written = writes && is_outer && !bracket.operand.as_ref().is_some_and(is_call);
        let filter = bracket.after.or(is_written.then_some(SIZE_FILTER));
        if let Some(filter) = filter {
            self.count(open, filter, ("", ""));
        }
        clear(open, None);
    }

    /// Puts the filter behind the operand before, within these brackets.
    fn count(&mut self, open: &mut [Bracket], filter: &str, (left, right): (&str, &str)) {
        let operand = open.last_mut().and_then(|bracket| bracket.operand.as_mut());
        let Some(operand) = operand.filter(|operand| !operand.is_literal || filter == COUNT_FILTER)
        else {
            return;
        };
        let before = self.out.len();
        self.out.insert_str(operand.end, right);
        self.out.insert_str(operand.end, filter);
        self.out.insert(operand.end, '|');
        self.out.insert_str(operand.start, left);
        operand.end += self.out.len() - before;
    }
}

impl Bracket {
    fn new(kind: BracketKind, start: usize) -> Self {
        Self {
            kind,
            start,
            operand: None,
            after: None,
        }
    }
}

/// Begins the next operand of an expression.
fn clear(open: &mut [Bracket], after: Option<&'static str>) {
    if let Some(bracket) = open.last_mut() {
        (bracket.operand, bracket.after) = (None, after);
    }
}

/// The name at the beginning of a text; empty if there is none.
fn name_of(text: &str) -> &str {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    &text[..text.find(|c| !of_name(c)).unwrap_or(text.len())]
}

/// Bytes of the string at the beginning of a text.
fn string_bytes(text: &str) -> usize {
    let mut is_escaped = false;
    let quote = text.as_bytes()[0];
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == quote && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Bytes of the number at the beginning of a text.
fn number_bytes(text: &str) -> usize {
    let of_number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    text.find(|c| !of_number(c)).unwrap_or(text.len())
}

/// Whether the brackets at the beginning of a text have a colon.
fn is_slice(text: &str) -> bool {
    let (mut depth, mut at) = (0, 0);
    while let Some(&byte) = text.as_bytes().get(at).filter(|_| text.starts_with('[')) {
        match byte {
            b'\'' | b'"' => at += string_bytes(&text[at..]) - 1,
            b'[' | b'(' | b'{' => depth += 1,
            b']' | b')' | b'}' => depth -= 1,
            b':' if depth == 1 => return true,
            _ => {}
        }
        if depth == 0 {
            return false;
        }
        at += 1;
    }
    false
}

/// jinja2's settings in `transformers`.
pub(super) fn settings() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters are valid")
}

/// The source with `{% generation %}` and `{% endgeneration %}` replaced by `{% with %}` and `{% endwith %}`,
/// which render equal text (training uses these tags to find the assistant's text). Whitespace control is
/// kept. A tag inside a string or a raw block is replaced too.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut rewritten = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(OPEN) {
        let (before, tag) = rest.split_at(at + OPEN.len());
        rewritten.push_str(before);
        rest = tag;
        let word_at = tag.len() - tag.trim_start_matches(['-', '+']).trim_start().len();
        let word = &tag[word_at..];
        let word = &word[..word
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(word.len())];
        let same = match word {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => continue,
        };
        rewritten.push_str(&tag[..word_at]);
        rewritten.push_str(same);
        rest = &tag[word_at + word.len()..];
    }
    rewritten.push_str(rest);
    rewritten
}

/// Bytes of the longest tag without delimiters. A delimiter in a string inside a tag ends the tag too early
/// here, and a delimiter in plain text begins a tag that ends with the next one; both are rare, and the bound
/// is wide.
pub(super) fn longest_tag(source: &str) -> usize {
    let (mut longest, mut open) = (0, None);
    for (at, pair) in source.as_bytes().windows(2).enumerate() {
        match (pair, open) {
            (b"{%" | b"{{", None) => open = Some(at + 2),
            (b"%}" | b"}}", Some(start)) => {
                longest = longest.max(at.saturating_sub(start));
                open = None;
            }
            _ => {}
        }
    }
    longest.max(open.map_or(0, |start| source.len() - start))
}

const OPEN: &str = "{%";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_counted() {
        for (source, want) in [
            ("a {{ x }} b", "a {{ x|_w }} b"),
            ("{{- 'x' + y.z[0] -}}", "{{- 'x' + y.z[0]|_w -}}"),
            (
                "{{ a ~ b.c(d + 1, k=e) ~ 'f' }}",
                "{{ a|_w ~ b.c(d|_w + 1, k=e)|_w ~ 'f' }}",
            ),
            (
                "{{ x[1:] }}{{ x['a:b'] }}",
                "{{ (x|_w)[1:]|_w }}{{ x['a:b']|_w }}",
            ),
            (
                "{%- for k, v in a.items() if k in b %}",
                "{%- for k, v in a.items()|_w if k|_w in b|_w %}",
            ),
            (
                "{% set ns.x = ns.x + [y] %}",
                "{% set ns.x = ns.x|_w + [y]|_w %}",
            ),
            (
                "{% if a is defined and 'b' not in c %}",
                "{% if a is defined and 'b' not in c|_w %}",
            ),
            (
                "{% if a is not none or m['role'] == 'user' %}",
                "{% if a is not none or m['role']|_w == 'user' %}",
            ),
            (
                "{{ a | join(', ') if b else c }}",
                "{{ a|_w | join(', ')|_w if b|_w else c|_w }}",
            ),
            (
                "{{ 'a' * 3 }}{{ x ** 2 - -1 }}",
                "{{ 'a'|_n * 3|_n }}{{ x ** 2 - -1 }}",
            ),
            ("{{ {'a': {'b': c}} }}", "{{ {'a': {'b': c}}|_w }}"),
            (
                "{{ loop(x) }}{{ (a + b)[0] }}",
                "{{ loop(x) }}{{ (a|_w + b|_w)[0]|_w }}",
            ),
            (
                "{# {{ x }} #}{% raw %}{{ x ~ y }}{% endraw %}{{ '}}' }}",
                "{# {{ x }} #}{% raw %}{{ x ~ y }}{% endraw %}{{ '}}' }}",
            ),
            ("{{ 'it\\'s' ~ x", "{{ 'it\\'s' ~ x"),
            ("{{ é ~ (", "{{ é|_w ~ ("),
        ] {
            assert_eq!(metered(source), want, "{source}");
        }
    }
}
