//! Grammars (Lark) of calls in each family's syntax: the name of a given tool, arguments that are valid under
//! the tool's schema, and the surrounding syntax.
//!
//! The [`AnswerParser`](super::AnswerParser) parses every derivation as that call with those arguments. Where
//! the answer need not be a call (bare JSON), the grammar's alternative is the shortest text that proves that
//! the answer is no call.

mod braced_rules;
mod json_rules;
mod python_rules;
mod tag_rules;
mod tool_parameters;

use super::call_parser::{CallSyntax, CallSyntaxKind};
use super::family_syntax::CallBody;
use super::named_call::{NameOrder, NameSyntax};
use crate::Tokenizer;
use crate::grammar::{prepared_schema, schema_options};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// White space between JSON tokens in rules written here.
const BLANKS: &str = r"[ \t\n\r]{0,8}";

/// A tool whose calls are constrained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConstrainedTool {
    /// Letters, digits, underscores, hyphens and dots.
    pub name: String,
    /// JSON Schema of the arguments; `None` allows any object.
    pub arguments: Option<Value>,
    /// Whether the arguments must match the schema. Where they need not, a schema that does not compile allows any object.
    #[serde(default)]
    pub strict: bool,
    /// Index of the tool in the request.
    pub place: usize,
}

/// Why a tool's calls cannot be expressed in a family's syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedTool {
    /// Index of the tool in the list of tools.
    pub(crate) tool: usize,
    pub(crate) why: String,
}

/// The grammar of the text after an opening delimiter.
pub(crate) fn grammar(
    form: CallSyntax,
    tools: &[ConstrainedTool],
    tokenizer: &Tokenizer,
) -> Result<String, UnsupportedTool> {
    let mut writer = GrammarWriter {
        tools,
        tokenizer,
        rules: String::new(),
        count: 0,
    };
    writer.define("WS", "/[ \\t\\n\\r]{1,8}/");
    let start = match form.0 {
        CallSyntaxKind::Header(part) => writer.header(part),
        CallSyntaxKind::CallBody(body, first, close) => writer.body(body, first, close)?,
    };
    Ok(format!("start: {start}\n{}", writer.rules))
}

/// A grammar under construction.
struct GrammarWriter<'a> {
    tools: &'a [ConstrainedTool],
    tokenizer: &'a Tokenizer,
    rules: String,
    /// Number of generated rule names.
    count: usize,
}

impl GrammarWriter<'_> {
    fn body(
        &mut self,
        body: CallBody,
        first: &str,
        close: &str,
    ) -> Result<String, UnsupportedTool> {
        let close = match close {
            "" => String::new(),
            close => format!(" WS? {}", text(close)),
        };
        match body {
            CallBody::Json | CallBody::JsonOrPython => Ok(self.json_calls()),
            CallBody::BareJson => Ok(self.bare_json(first, &close)),
            CallBody::BarePython => self.bare_python(&close),
            CallBody::BareList => {
                let (python, json) = (self.bare_python_list("{", &close)?, self.bare_list(&close));
                Ok(format!("{python} | {json}"))
            }
            CallBody::JsonOrNamed(naming) => {
                let (json, named) = (self.json_calls(), self.named(naming));
                Ok(format!("{json} | {named}"))
            }
            CallBody::NamedCall(naming) => Ok(self.named(naming)),
            CallBody::TaggedCall(tags) => self.tagged(tags),
            CallBody::BracedCall(delimiter) => self.braced(delimiter),
        }
    }

    /// Rules for a name, a separator and an object.
    fn named(&mut self, naming: &NameSyntax) -> String {
        let marks = |writer: &Self, marks: &[&str]| -> Vec<String> {
            marks.iter().map(|mark| writer.mark(mark)).collect()
        };
        let (separators, ends) = (marks(self, naming.separators), marks(self, naming.ends));
        let all = (0..self.tools.len()).map(|tool| {
            let (name, args) = (self.name(tool).to_owned(), self.arguments(tool));
            match naming.order {
                NameOrder::NameId => {
                    let [args_mark, id_mark] = [&separators[0], &separators[1]];
                    let id = format!("({id_mark} /[A-Za-z0-9_\\-]{{1,64}}/)?");
                    format!("WS? {} {id} {args_mark}? WS? {args}", text(&name))
                }
                NameOrder::KindName => {
                    let (separator, end) = (&separators[0], &ends[0]);
                    let fence = text(&format!("{name}\n```json\n"));
                    let (name, close) = (text(&name), text("\n```"));
                    format!(
                        "{name} {separator} {args} WS? {end} | \"function\" {separator} {fence} {args} {close} {end}"
                    )
                }
                NameOrder::Counted => {
                    let (separator, end) = (&separators[0], &ends[0]);
                    let id = text(&format!("functions.{name}:"));
                    format!("WS? {id} /[0-9]{{1,6}}/ {separator} {args} WS? {end}")
                }
            }
        });
        let all: Vec<String> = all.collect();
        self.rule(&all.join(" | "))
    }

    fn name(&self, tool: usize) -> &str {
        &self.tools[tool].name
    }

    /// Defines a rule for a tool's arguments as JSON.
    fn arguments(&mut self, tool: usize) -> String {
        let schema = self.tools[tool].arguments.clone();
        let schema = schema.unwrap_or_else(|| json!({"type": "object"}));
        self.rule(&of_schema(&schema))
    }

    /// A delimiter in Lark: a control token, or a string.
    fn mark(&self, mark: &str) -> String {
        let token = self.tokenizer.id_of(mark);
        match token.filter(|&id| self.tokenizer.is_control(id)) {
            Some(id) => format!("<[{id}]>"),
            None => text(mark),
        }
    }

    fn define(&mut self, name: &str, is: &str) {
        let _ = writeln!(self.rules, "{name}: {is}");
    }

    /// Defines a rule; returns the generated name.
    fn rule(&mut self, is: &str) -> String {
        self.count += 1;
        let name = format!("r{}", self.count);
        self.define(&name, is);
        name
    }

    /// Defines a terminal; returns the generated name.
    fn lexeme(&mut self, is: &str) -> String {
        self.count += 1;
        let name = format!("L{}", self.count);
        self.define(&name, is);
        name
    }
}

/// A string literal in Lark, which has JSON's syntax.
fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// The Lark expression for JSON that is valid under a schema.
fn of_schema(schema: &Value) -> String {
    let any = Map::new();
    let mut schema = prepared_schema(schema.as_object().unwrap_or(&any));
    schema.insert("x-guidance".to_owned(), schema_options());
    format!("%json {}", Value::Object(schema))
}

/// A text as part of a regular expression in Lark.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            c if c.is_ascii_punctuation()
                && !matches!(
                    c,
                    '<' | '>' | '"' | '\'' | '_' | '`' | ',' | ':' | ';' | '=' | '@' | '%' | '!'
                ) =>
            {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
