//! Grammar rules of calls as `call:name{key:value, ..}`, with string delimiters of the family.

use super::tag_rules::words;
use super::tool_parameters::{of_object, says_only};
use super::{GrammarWriter, UnsupportedTool, escaped, of_schema, text};
use serde_json::{Value, json};

/// Deepest nesting of values for which rules are written.
const DEPTH_MAX: usize = 8;

/// The delimiter of strings, and the rule for any string.
type StringSyntax<'a> = (&'a str, &'a str);

impl GrammarWriter<'_> {
    pub(super) fn braced(&mut self, delimiter: &str) -> Result<String, UnsupportedTool> {
        let (string, any) = (self.delimited(delimiter), self.any_value(delimiter));
        let mut calls = Vec::new();
        for tool in 0..self.tools.len() {
            let name = text(&format!("call:{}", self.name(tool)));
            let args = match self.tools[tool].arguments.clone() {
                Some(schema) => {
                    let args = self.object(&schema, (delimiter, &string), 0);
                    args.map_err(|why| UnsupportedTool { tool, why })?
                }
                None => any.1.clone(),
            };
            calls.push(format!("WS? {name} {args}"));
        }
        Ok(self.rule(&calls.join(" | ")))
    }

    /// An unescaped string between delimiters.
    fn delimited(&mut self, delimiter: &str) -> String {
        let (mark, tag) = (self.mark(delimiter), escaped(delimiter));
        let is_token = mark.starts_with('<');
        if is_token {
            let inside = self.lexeme(&format!("/(?s:.)+/ & ~/(?s:.)*{tag}(?s:.)*/"));
            return self.rule(&format!("{mark} {inside}? {mark}"));
        }
        let inside = self.lexeme(&format!("/(?s:.)*{tag}/ & ~/(?s:.)*{tag}(?s:.)+/"));
        self.rule(&format!("{mark} {inside}"))
    }

    /// Rules for any value and for any object.
    fn any_value(&mut self, delimiter: &str) -> (String, String) {
        let string = self.delimited(delimiter);
        let plain = of_schema(&json!({"type": ["number", "boolean", "null"]}));
        let plain = self.rule(&plain);
        let (value, object) = ("any_value".to_owned(), "any_object".to_owned());
        let key = "/[A-Za-z_][A-Za-z0-9_]{0,63}:/";
        self.define(
            &value,
            &format!("{string} | {plain} | {object} | \"[\" ({value} (\",\" {value})*)? \"]\""),
        );
        self.define(
            &object,
            &format!("\"{{\" ({key} {value} (\",\" {key} {value})*)? \"}}\""),
        );
        (value, object)
    }

    fn object(
        &mut self,
        schema: &Value,
        strings: StringSyntax<'_>,
        depth: usize,
    ) -> Result<String, String> {
        let fields = of_object(schema)?;
        let mut each = Vec::new();
        for field in &fields {
            let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
            let place = |why: String| format!("parameters.properties.{}: {why}", field.key);
            if field.key.is_empty() || !field.key.chars().all(bare) {
                return Err(place("is no bare key".to_owned()));
            }
            let value = self
                .value(&field.schema, strings, depth + 1)
                .map_err(place)?;
            each.push((
                format!("{} {value}", text(&format!("{}:", field.key))),
                field.required,
            ));
        }
        let fields = self.separated(&each);
        Ok(self.rule(&format!("\"{{\" {fields} WS? \"}}\"")))
    }

    fn value(
        &mut self,
        schema: &Value,
        strings: StringSyntax<'_>,
        depth: usize,
    ) -> Result<String, String> {
        let (delimiter, string) = strings;
        if depth > DEPTH_MAX {
            return Err("is nested too deeply".to_owned());
        }
        match schema["type"].as_str() {
            Some("string") if says_only(schema, &["type"]) => Ok(string.to_owned()),
            Some("string") if says_only(schema, &["type", "enum", "const"]) => {
                let words = words(schema)
                    .flatten()
                    .ok_or("cannot be kept between delimiters")?;
                let mark = self.mark(delimiter);
                let words = words
                    .iter()
                    .map(|word| format!("{mark} {} {mark}", text(word)));
                Ok(self.rule(&words.collect::<Vec<_>>().join(" | ")))
            }
            Some("integer" | "number" | "boolean" | "null") if schema.get("$ref").is_none() => {
                Ok(self.rule(&of_schema(schema)))
            }
            Some("object") => self.object(schema, strings, depth),
            Some("array") if says_only(schema, &["type", "items"]) => {
                let item = match schema.get("items") {
                    Some(items) => self.value(items, strings, depth + 1)?,
                    None => string.to_owned(),
                };
                Ok(self.rule(&format!(
                    "\"[\" WS? ({item} (WS? \",\" WS? {item})*)? WS? \"]\""
                )))
            }
            _ => Err("cannot be kept where strings have delimiters of their own".to_owned()),
        }
    }
}
