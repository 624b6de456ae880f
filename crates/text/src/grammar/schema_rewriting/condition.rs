//! Conditions as alternatives: `if`, dependencies of properties, and names of properties.

use super::SchemaRewriter;
use super::string_complement::complement;
use serde_json::{Map, Value, json};

/// Annotations of a schema for names.
const ANNOTATIONS: [&str; 4] = ["$comment", "title", "description", "default"];

impl SchemaRewriter<'_> {
    /// `if` with `then` and `else`: a value is valid under the first two, or not under the first and under the last.
    pub(super) fn condition(&mut self, entries: &Map<String, Value>) -> Option<Vec<Value>> {
        let condition = entries.get("if")?;
        let (then, otherwise) = (entries.get("then"), entries.get("else"));
        if then.is_none() && otherwise.is_none() {
            return Some(Vec::new());
        }
        let negated = self.negated(condition, 0)?;
        let mut alternative = |first: &Value, second: Option<&Value>| {
            let parts = [Some(first), second].into_iter().flatten();
            let parts = parts.map(|part| self.copied(part));
            Some(json!({"allOf": parts.collect::<Option<Vec<Value>>>()?}))
        };
        let alternatives = [
            alternative(condition, then)?,
            alternative(&negated, otherwise)?,
        ];
        Some(vec![json!({"anyOf": alternatives})])
    }

    /// Dependencies: a property is not there, or what depends on the property holds.
    pub(super) fn dependencies(&mut self, value: &Value) -> Option<Vec<Value>> {
        let mut all = Vec::new();
        for (name, dependent) in value.as_object()? {
            let is_there = json!({"required": [name]});
            let then = match dependent {
                Value::Array(names) => {
                    let required: Vec<&Value> = [&is_there["required"][0]]
                        .into_iter()
                        .chain(names)
                        .collect();
                    json!({"required": required})
                }
                schema => json!({"allOf": [is_there, self.copied(schema)?]}),
            };
            self.left = self.left.checked_sub(super::parts_of(&then))?;
            all.push(json!({"anyOf": [without(name), then]}));
        }
        Some(all)
    }

    /// Names of properties: a list of them, or a pattern.
    pub(super) fn names(&mut self, value: &Value) -> Option<Vec<Value>> {
        let schema = match value {
            Value::Bool(true) => return Some(Vec::new()),
            Value::Bool(false) => return Some(vec![json!({"maxProperties": 0})]),
            Value::Object(schema) => match schema.get("$ref") {
                Some(reference) if schema.len() == 1 => self.target(reference)?.as_object()?,
                _ => schema,
            },
            _ => return None,
        };
        let is_text = schema.get("type").is_none_or(|kind| kind == "string");
        let says = schema.iter().filter(|(keyword, _)| {
            let keyword = keyword.as_str();
            keyword != "type" && !ANNOTATIONS.contains(&keyword)
        });
        let says: Vec<(&str, &Value)> = says.map(|(k, v)| (k.as_str(), v)).collect();
        if !is_text {
            return None;
        }
        let only = |keyword: &str, values: Value| {
            let mut names = Map::new();
            names.insert(keyword.to_owned(), values);
            names.insert("additionalProperties".to_owned(), Value::Bool(false));
            Some(vec![Value::Object(names)])
        };
        let number = |keyword: &str| match schema.get(keyword) {
            None => Some(None),
            Some(length) => length.as_u64().map(Some),
        };
        match says[..] {
            [] => Some(Vec::new()),
            [("pattern", Value::String(pattern))] => {
                only("patternProperties", json!({pattern: true}))
            }
            [("not", excluded)] => only("patternProperties", json!({other_names(excluded)?: true})),
            [("const", Value::String(name))] => only("properties", json!({name: true})),
            [("enum", Value::Array(names))] => {
                let names = names.iter().filter_map(Value::as_str);
                let names = names.map(|name| (name.to_owned(), Value::Bool(true)));
                only("properties", Value::Object(names.collect()))
            }
            [("minLength" | "maxLength", _)]
            | [("minLength", _), ("maxLength", _)]
            | [("maxLength", _), ("minLength", _)] => {
                let (least, most) = (number("minLength")?, number("maxLength")?);
                let most = most.map_or_else(String::new, |most| most.to_string());
                let pattern = format!(r"^[\s\S]{{{},{most}}}$", least.unwrap_or(0));
                only("patternProperties", json!({pattern: true}))
            }
            _ => None,
        }
    }
}

/// The expression for all names but those of a `const` or an `enum`.
fn other_names(excluded: &Value) -> Option<String> {
    let excluded = excluded.as_object()?;
    let mut entries = excluded.iter();
    let names = match (entries.next()?, entries.next()) {
        ((keyword, Value::String(name)), None) if keyword == "const" => vec![name.as_str()],
        ((keyword, Value::Array(names)), None) if keyword == "enum" => {
            names.iter().filter_map(Value::as_str).collect()
        }
        _ => return None,
    };
    complement(&names)
}

/// A value that has no property of this name.
pub(super) fn without(name: &str) -> Value {
    json!({"properties": {name: false}})
}
