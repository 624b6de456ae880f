//! Calls that begin with a name: `name`, a separator and JSON arguments, or `call:name{key:value, ..}` with string
//! delimiters of the family.

use super::answer_parts::PartWriter;
use super::value_converter::{StepResult, ValueConverter, ValueStyle, is_blank};

/// Longest tool name including surrounding syntax, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// Syntax of a call's name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NameSyntax {
    /// Texts that may separate the name from the arguments.
    pub(super) separators: &'static [&'static str],
    /// Texts that end a call without arguments.
    pub(super) ends: &'static [&'static str],
    pub(super) order: NameOrder,
}

/// Order of name, id and separators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameOrder {
    /// `NAME` or `NAME [CALL_ID] ID`, then the arguments.
    NameId,
    /// `NAME` and a separator; in older models `function`, a separator, `NAME` and a code fence.
    KindName,
    /// `functions.NAME:COUNT`, which is also the call's id.
    Counted,
}

/// Parser of one named call.
#[derive(Debug)]
pub(super) struct NamedCall {
    naming: &'static NameSyntax,
    /// Text before the arguments.
    head: String,
    literal: Option<ValueConverter>,
}

impl NamedCall {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(naming: &'static NameSyntax) -> Self {
        Self {
            naming,
            head: String::new(),
            literal: None,
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if let Some(literal) = &mut self.literal {
            return literal.step_arguments(c, out);
        }
        if c == '{' {
            if !self.start(out) {
                return StepResult::Fail;
            }
            let literal = self.literal.insert(ValueConverter::new(ValueStyle::Json));
            return literal.step(c, out.arguments());
        }
        if self.head.len() + c.len_utf8() > NAME_BYTES_MAX {
            return StepResult::Fail;
        }
        self.head.push(c);
        let ends = |end: &&&str| self.head.ends_with(**end);
        let Some(end) = self.naming.ends.iter().find(ends) else {
            return StepResult::More;
        };
        self.head.truncate(self.head.len() - end.len());
        if !self.start(out) {
            return StepResult::Fail;
        }
        out.arguments().push_str("{}");
        out.end_call();
        StepResult::Done
    }

    fn start(&self, out: &mut PartWriter<'_>) -> bool {
        out.count_examined(self.head.len());
        let separators = self.naming.separators;
        let cut = separators
            .iter()
            .filter_map(|&separator| self.head.split_once(separator))
            .min_by_key(|(first, _)| first.len());
        let (first, rest) = cut.unwrap_or((&self.head, ""));
        let rest = separators.iter().fold(rest, |rest, separator| {
            rest.trim().trim_end_matches(separator)
        });
        let (first, rest) = (first.trim(), rest.trim());
        let (name, id) = match self.naming.order {
            NameOrder::NameId => (first, rest),
            NameOrder::KindName => {
                let fenced = rest.strip_suffix("json").unwrap_or(rest);
                let fenced = fenced.trim_end_matches('`').trim();
                (if fenced.is_empty() { first } else { fenced }, "")
            }
            NameOrder::Counted => {
                let name = first.rsplit_once(':').map_or(first, |(name, _)| name);
                (name.strip_prefix("functions.").unwrap_or(name), first)
            }
        };
        let good = is_name(name);
        if good {
            out.start_call(name, id);
        }
        good
    }
}

/// Whether the text is a valid tool name.
pub(super) fn is_name(name: &str) -> bool {
    let of_names = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(of_names)
}

/// The tool name without surrounding white space; `None` if the name is invalid.
pub(super) fn trimmed_name(name: &str) -> Option<&str> {
    Some(name.trim_matches(is_blank)).filter(|name| is_name(name))
}

/// Parser of one braced call.
#[derive(Debug)]
pub(super) struct BracedCall {
    delimiter: &'static str,
    head: String,
    literal: Option<ValueConverter>,
}

impl BracedCall {
    /// A parser placed after the delimiter that opens the call.
    pub(super) fn new(delimiter: &'static str) -> Self {
        Self {
            delimiter,
            head: String::new(),
            literal: None,
        }
    }

    pub(super) fn step(&mut self, c: char, out: &mut PartWriter<'_>) -> StepResult {
        if let Some(literal) = &mut self.literal {
            return literal.step_arguments(c, out);
        }
        if c != '{' {
            if self.head.len() + c.len_utf8() > NAME_BYTES_MAX {
                return StepResult::Fail;
            }
            self.head.push(c);
            return StepResult::More;
        }
        out.count_examined(self.head.len());
        let name = self.head.trim_start().strip_prefix("call:");
        let Some(name) = name.and_then(trimmed_name) else {
            return StepResult::Fail;
        };
        out.start_call(name, "");
        let style = ValueStyle::Delimited(self.delimiter);
        let literal = self.literal.insert(ValueConverter::new(style));
        literal.step(c, out.arguments())
    }
}
