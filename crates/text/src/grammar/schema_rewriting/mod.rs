//! Rewriting of keywords that a grammar cannot state: with keywords that it can, where they mean exactly the same.
//!
//! - `not` becomes the negation of its schema ([`negation`]);
//! - `if`, `then`, `else` become two alternatives, and so do `dependencies`, `dependentRequired` and `dependentSchemas`;
//! - `propertyNames` becomes a list of the names, or of their pattern, without additional properties.
//!
//! A keyword that has no such form stays as written, and is rejected with its path. Nothing is weakened: a value is valid under the
//! rewritten schema if and only if it is valid under the original.
//!
//! Alternatives copy parts, and so do references that are negated; [`REWRITTEN_PARTS_MAX`] bounds the copies.

mod negation;
#[cfg(test)]
mod tests;

pub use negation::EXCLUDED_CHARS_MAX;

use super::schema_size::{OF_NAMED, OF_SCHEMAS, values_in};
use negation::complement;
use serde_json::{Map, Value, json};

/// Values that rewriting may copy; beyond them a keyword stays as written.
pub const REWRITTEN_PARTS_MAX: usize = 20_000;

/// Drafts of JSON Schema, by the keywords that they added.
const DRAFTS: [&str; 3] = ["draft-04", "draft-06", "draft-07"];

/// The rewritten schema.
pub(super) fn rewritten(root: &Map<String, Value>) -> Map<String, Value> {
    let mut rewriter = SchemaRewriter {
        draft: draft(root),
        root,
        left: REWRITTEN_PARTS_MAX,
    };
    rewriter.schema(root)
}

struct SchemaRewriter<'r> {
    root: &'r Map<String, Value>,
    /// Index in [`DRAFTS`], or the length of that list for later drafts.
    draft: usize,
    /// Copies that are left.
    left: usize,
}

impl<'r> SchemaRewriter<'r> {
    fn value(&mut self, schema: &Value) -> Value {
        match schema {
            Value::Object(entries) => Value::Object(self.schema(entries)),
            other => other.clone(),
        }
    }

    fn schema(&mut self, entries: &Map<String, Value>) -> Map<String, Value> {
        let mut kept = Map::new();
        let mut beside = Vec::new();
        for (keyword, value) in entries {
            let made = match keyword.as_str() {
                "not" => self.negated(value, 0).map(|negated| vec![negated]),
                "dependencies" | "dependentRequired" | "dependentSchemas"
                    if self.knows(keyword) =>
                {
                    self.dependencies(value)
                }
                "propertyNames" if self.knows(keyword) => self.names(value),
                "if" if self.knows(keyword) => self.condition(entries),
                "then" | "else" if !entries.contains_key("if") => Some(Vec::new()),
                "uniqueItems" if is_at_most_one(entries) => Some(Vec::new()),
                _ => None,
            };
            match made {
                Some(made) => beside.extend(made),
                None => _ = kept.insert(keyword.clone(), self.parts(keyword, value)),
            }
        }
        if entries.contains_key("if") && !kept.contains_key("if") {
            for keyword in ["then", "else"] {
                kept.shift_remove(keyword);
            }
        }
        if !beside.is_empty() {
            let beside = beside.iter().map(|part| self.value(part));
            let beside: Vec<Value> = beside.collect();
            let all_of = kept.entry("allOf").or_insert_with(|| json!([]));
            if let Some(all_of) = all_of.as_array_mut() {
                all_of.extend(beside);
            }
        }
        kept
    }

    /// Rewrites the schemas that a keyword holds.
    fn parts(&mut self, keyword: &str, value: &Value) -> Value {
        match value {
            Value::Object(named) if OF_NAMED.contains(&keyword) => {
                let named = named.iter();
                let named = named.map(|(name, part)| (name.clone(), self.value(part)));
                Value::Object(named.collect())
            }
            Value::Array(list) if OF_SCHEMAS.contains(&keyword) => {
                list.iter().map(|part| self.value(part)).collect()
            }
            value if OF_SCHEMAS.contains(&keyword) => self.value(value),
            value => value.clone(),
        }
    }

    /// Whether the schema's draft has this keyword. A draft without a keyword ignores it.
    fn knows(&self, keyword: &str) -> bool {
        let since = match keyword {
            "propertyNames" => 1,
            "if" => 2,
            "dependentRequired" | "dependentSchemas" => 3,
            _ => 0,
        };
        self.draft >= since
    }

    /// The target of a reference within the schema.
    fn target(&self, reference: &Value) -> Option<&'r Value> {
        let mut steps = reference.as_str()?.strip_prefix("#/")?.split('/');
        let first = self.root.get(steps.next()?)?;
        steps.try_fold(first, |place, step| match place {
            Value::Object(entries) => entries.get(step),
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// A copy, if one of this size is permitted.
    fn copied(&mut self, value: &Value) -> Option<Value> {
        self.left = self.left.checked_sub(values_in(value))?;
        Some(value.clone())
    }
}

fn draft(root: &Map<String, Value>) -> usize {
    let named = root.get("$schema").and_then(Value::as_str);
    let named = named.unwrap_or_default();
    let mut drafts = DRAFTS.iter();
    let found = drafts.position(|draft| named.contains(&format!("/{draft}/")));
    found.unwrap_or(DRAFTS.len())
}

/// Whether an array has at most one item, and so no two that are equal.
fn is_at_most_one(entries: &Map<String, Value>) -> bool {
    let most = entries.get("maxItems").and_then(Value::as_u64);
    most.is_some_and(|most| most <= 1)
}

/// Annotations of a schema for names.
const ANNOTATIONS: [&str; 4] = ["$comment", "title", "description", "default"];

impl SchemaRewriter<'_> {
    /// `if` with `then` and `else`: a value is valid under the first two, or not under the first and under the last.
    fn condition(&mut self, entries: &Map<String, Value>) -> Option<Vec<Value>> {
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
    fn dependencies(&mut self, value: &Value) -> Option<Vec<Value>> {
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
            self.left = self.left.checked_sub(values_in(&then))?;
            all.push(json!({"anyOf": [without(name), then]}));
        }
        Some(all)
    }

    /// Names of properties: a list of them, or a pattern.
    fn names(&mut self, value: &Value) -> Option<Vec<Value>> {
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
fn without(name: &str) -> Value {
    json!({"properties": {name: false}})
}
