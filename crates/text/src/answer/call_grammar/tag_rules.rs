//! Grammar rules of calls as tags: the name, then key and value of each parameter as plain text.
//!
//! The parser interprets a value by its schema's type ([`ParameterKind`]), so each type is constrained such
//! that the interpretation is valid. A parameter that cannot be constrained this way (a string with a
//! `pattern`, a union with strings) forces the whole call into one JSON object where the family's parser
//! accepts JSON, and is rejected otherwise.

use super::super::tagged_call::TagSyntax;
use super::super::tool_schemas::{ParameterKind, kind_of};
use super::tool_parameters::{ToolParameter, says_only};
use super::{GrammarWriter, UnsupportedTool, escaped, of_schema, text};
use serde_json::Value;

/// Constraint of a value.
enum ValueConstraint {
    /// JSON that is valid under this schema.
    Json(Value),
    /// Any text with a length between these bounds, in characters.
    Text(u64, Option<u64>),
    /// One of these texts.
    OneOf(Vec<String>),
}

/// Largest length bound of a text, in characters: the lexer needs a state for each character.
const COUNTED_CHARS_MAX: u64 = 2000;

impl GrammarWriter<'_> {
    pub(super) fn tagged(&mut self, tags: &TagSyntax) -> Result<String, UnsupportedTool> {
        let mut calls = Vec::new();
        for tool in 0..self.tools.len() {
            let name = text(&format!("{}{}", self.name(tool), tags.name_close));
            let mut ways = Vec::new();
            let by_tags = self.by_tags(tool, tags);
            let by_json = tags.lines.then(|| {
                let (args, end) = (self.arguments(tool), self.mark(tags.end));
                format!("{args} WS? {end}")
            });
            match (by_tags, &by_json) {
                (Ok(tags), _) => ways.push(tags),
                (Err(why), None) => return Err(why),
                (Err(_), Some(_)) => {}
            }
            ways.extend(by_json);
            let ways = self.rule(&ways.join(" | "));
            calls.push(format!("{name} WS? {ways}"));
        }
        Ok(self.rule(&calls.join(" | ")))
    }

    fn by_tags(&mut self, tool: usize, tags: &TagSyntax) -> Result<String, UnsupportedTool> {
        let end = self.mark(tags.end);
        let Some(fields) = self.fields(tool)? else {
            let any = ValueConstraint::Text(0, None);
            let one = self.parameter("/[A-Za-z_][A-Za-z0-9_.\\-]{0,63}/", &any, tags);
            return Ok(format!("{one}* {end}"));
        };
        let mut all = String::new();
        for field in &fields {
            let bound = self.bound(tool, field)?;
            let tags_of_it = [tags.key_close, tags.value_close, tags.end];
            let holds = |tag: &str| !tag.is_empty() && field.key.contains(tag);
            let key = field.key.trim();
            if key.is_empty() || key != field.key || tags_of_it.into_iter().any(holds) {
                return Err(self.unwritten(tool, &field.key, "is no name between tags"));
            }
            all.push_str(&self.parameter(&text(key), &bound, tags));
            all.push_str(if field.required { " " } else { "? " });
        }
        Ok(format!("{all}{end}"))
    }

    /// A key and a value with the surrounding tags.
    fn parameter(&mut self, key: &str, bound: &ValueConstraint, tags: &TagSyntax) -> String {
        let (open, close) = (self.mark(tags.key_open), self.mark(tags.key_close));
        let value_open = match tags.value_open {
            "" => String::new(),
            open => format!("WS? {}", self.mark(open)),
        };
        let value = self.value_up_to(bound, tags.value_close, tags.lines);
        self.rule(&format!("{open} {key} {close} {value_open} {value} WS?"))
    }

    /// A value and the closing tag.
    fn value_up_to(&mut self, bound: &ValueConstraint, close: &str, lines: bool) -> String {
        let is_token = self.mark(close).starts_with('<');
        let line = if lines { "\n" } else { "" };
        match bound {
            ValueConstraint::Json(schema) => {
                let value = self.rule(&of_schema(schema));
                format!("WS? {value} WS? {}", self.mark(close))
            }
            ValueConstraint::OneOf(words) if is_token => {
                let words = words
                    .iter()
                    .map(|word| text(&format!("{line}{word}{line}")));
                let words: Vec<String> = words.collect();
                format!("({}) {}", words.join(" | "), self.mark(close))
            }
            ValueConstraint::OneOf(words) => {
                let words = words
                    .iter()
                    .map(|word| text(&format!("{line}{word}{line}{close}")));
                let words: Vec<String> = words.collect();
                format!("({})", words.join(" | "))
            }
            ValueConstraint::Text(least, most) => {
                let tag = escaped(close);
                let line = match (least, most, lines) {
                    (0, None, _) | (.., false) => "",
                    _ => "\\n",
                };
                let count = match most {
                    Some(most) => format!("{{{least},{most}}}"),
                    None => format!("{{{least},}}"),
                };
                let inside = format!("{line}(?s:.){count}{line}");
                if is_token {
                    let text =
                        self.lexeme(&format!("/{inside}/ & ~/(?s:.)*{tag}(?s:.)*/ & /(?s:.)+/"));
                    let may_lack = if *least == 0 && line.is_empty() {
                        "?"
                    } else {
                        ""
                    };
                    return format!("{text}{may_lack} {}", self.mark(close));
                }
                self.lexeme(&format!("/{inside}{tag}/ & ~/(?s:.)*{tag}(?s:.)+/"))
            }
        }
    }

    /// The constraint under which a parameter's value is parsed as a valid value.
    fn bound(
        &self,
        tool: usize,
        field: &ToolParameter,
    ) -> Result<ValueConstraint, UnsupportedTool> {
        let root = self.tools[tool].arguments.as_ref().unwrap_or(&Value::Null);
        let (kind, is_known, may_be_string) = kind_of(&field.schema, root);
        let as_json = match kind {
            ParameterKind::Scalar | ParameterKind::Nested => true,
            ParameterKind::Unknown => is_known && !may_be_string,
            ParameterKind::String | ParameterKind::NullableString => false,
        };
        if as_json {
            return self.standing_alone(tool, field).map(ValueConstraint::Json);
        }
        let cannot = || {
            self.unwritten(
                tool,
                &field.key,
                "cannot be kept where strings are written as they are",
            )
        };
        let schema = followed(&field.schema, root).ok_or_else(cannot)?;
        if says_only(schema, &[]) {
            return Ok(ValueConstraint::Text(0, None));
        }
        match kind {
            ParameterKind::String => string(schema),
            ParameterKind::NullableString => nullable(schema),
            _ => None,
        }
        .ok_or_else(cannot)
    }
}

/// A schema, or the target of the schema's `$ref`.
fn followed<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Value> {
    let Some(to) = schema.get("$ref").and_then(Value::as_str) else {
        return Some(schema);
    };
    let target = root.pointer(to.strip_prefix('#')?)?;
    let alone = says_only(schema, &["$ref"]) && target.get("$ref").is_none();
    alone.then_some(target)
}

/// A string without a pattern.
fn string(schema: &Value) -> Option<ValueConstraint> {
    if !says_only(schema, &["type", "enum", "const", "minLength", "maxLength"]) {
        return None;
    }
    let length = |name: &str| {
        schema
            .get(name)
            .map(|length| length.as_u64().filter(|&n| n <= COUNTED_CHARS_MAX))
    };
    let (least, most) = (length("minLength"), length("maxLength"));
    let words = words(schema)?;
    match (words, least, most) {
        (Some(words), None, None) => Some(ValueConstraint::OneOf(words)),
        (None, least, most) => Some(ValueConstraint::Text(
            least.unwrap_or(Some(0))?,
            match most {
                Some(most) => Some(most?),
                None => None,
            },
        )),
        _ => None,
    }
}

/// A string or null; both are written as plain text.
fn nullable(schema: &Value) -> Option<ValueConstraint> {
    let plain = |schema: &Value| says_only(schema, &["type"]);
    if plain(schema) {
        return Some(ValueConstraint::Text(0, None));
    }
    if let Some(parts) = schema.get("anyOf").and_then(Value::as_array) {
        let alone = says_only(schema, &["anyOf"]) && parts.iter().all(plain);
        return alone.then_some(ValueConstraint::Text(0, None));
    }
    let alone = says_only(schema, &["type", "enum"]);
    let words = words(schema)?.filter(|_| alone)?;
    Some(ValueConstraint::OneOf(words))
}

/// Texts of an `enum` or a `const`, with `null` for null. `Some(None)`: the schema has neither. `None`: some
/// value has no plain text.
#[expect(
    clippy::option_option,
    reason = "there may be none, and none that can be written"
)]
pub(super) fn words(schema: &Value) -> Option<Option<Vec<String>>> {
    let listed = schema.get("enum").map(|all| all.as_array().cloned());
    let all = match (listed, schema.get("const")) {
        (None, None) => return Some(None),
        (Some(listed), None) => listed?,
        (None, Some(only)) => vec![only.clone()],
        (Some(_), Some(_)) => return None,
    };
    let word = |value: &Value| match value {
        Value::String(word) if word != "null" => Some(word.clone()),
        Value::Null => Some("null".to_owned()),
        _ => None,
    };
    let words: Option<Vec<String>> = all.iter().map(word).collect();
    words
        .filter(|words| !words.is_empty() && words.iter().all(|word| !word.contains('<')))
        .map(Some)
}
