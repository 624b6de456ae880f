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

mod condition;
mod negation;
mod string_complement;
#[cfg(test)]
mod tests;

use super::schema_parts::{OF_NAMED, OF_SCHEMAS};
use serde_json::{Map, Value, json};

pub use string_complement::EXCLUDED_CHARS_MAX;

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
        self.left = self.left.checked_sub(parts_of(value))?;
        Some(value.clone())
    }
}

/// Number of values in a value.
fn parts_of(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Array(items) => items.iter().map(parts_of).sum(),
        Value::Object(entries) => entries.values().map(parts_of).sum(),
        _ => 0,
    };
    1 + inner
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
