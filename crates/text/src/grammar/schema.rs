//! A JSON Schema from a caller: measured before it is looked at, and searched for the place where it
//! cannot be compiled.

use super::accepted_loosely::loosened_schema;
use super::bounds::Refusal;
use super::closed_objects::close_objects;
use super::error::GrammarError;
use super::limits::GRAMMAR_BYTES_MAX;
use super::schema_parts::{parts, path};
use super::schema_size;
use super::white_space::JSON_WHITE_SPACE;
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

/// Values within values in a schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Values in a schema, at every depth.
pub const SCHEMA_PLACES_MAX: usize = 20_000;
/// What may be spent on finding the part of a schema that is wrong, by compiling parts alone: 64 small parts, or less
/// than 2 that take as long as a grammar may.
const PLACE_EFFORT_MAX: usize = 64;
/// Symbols of a compiled part that count as one part more.
const SYMBOLS_PER_EFFORT: usize = 400;

/// Where parts that others refer to are kept.
const KEPT: [&str; 2] = ["$defs", "definitions"];

/// A schema within its bounds.
pub(super) struct Schema {
    /// As it was written.
    root: Map<String, Value>,
    /// With its objects closed, where they are.
    closed: Option<Map<String, Value>>,
}

impl Schema {
    pub(super) fn read(schema: &Value) -> Result<Self, GrammarError> {
        let root = match schema {
            Value::Object(root) => root.clone(),
            Value::Bool(true) => Map::new(),
            Value::Bool(false) => return Err(GrammarError::whole("allows no answer")),
            _ => return Err(GrammarError::whole("must be an object")),
        };
        let mut places = 0;
        measure(schema, 0, &mut places)?;
        let bytes = schema.to_string().len();
        if bytes > GRAMMAR_BYTES_MAX {
            return Err(GrammarError::whole(format!(
                "has {bytes} bytes; at most {GRAMMAR_BYTES_MAX} are accepted"
            )));
        }
        schema_size::check(&root)?;
        Ok(Self { root, closed: None })
    }

    /// The schema with its objects closed.
    pub(super) fn closed(mut self) -> Result<Self, GrammarError> {
        let closed = close_objects(&self.root)?;
        schema_size::check(&closed)?;
        self.closed = Some(closed);
        Ok(self)
    }

    /// As it is compiled.
    pub(super) fn compiled(&self) -> &Map<String, Value> {
        self.closed.as_ref().unwrap_or(&self.root)
    }

    pub(super) fn grammar(&self) -> TopLevelGrammar {
        grammar(self.compiled().clone())
    }

    /// The innermost part that does not compile by itself, and why. `refusal` is what is wrong with the
    /// whole; `compile` tells how many symbols a part came to.
    pub(super) fn culprit(
        &self,
        refusal: Refusal,
        compile: impl Fn(TopLevelGrammar) -> Result<usize, Refusal>,
    ) -> (String, String) {
        let mut effort = refusal.effort();
        let mut found = (String::new(), refusal.why);
        let (mut part, mut steps) = (&self.root, Vec::new());
        loop {
            let wrong = parts(part).find_map(|(step, part)| {
                if effort > PLACE_EFFORT_MAX || !stands_alone(part) {
                    return None;
                }
                let refusal = match compile(grammar(self.part(part))) {
                    Ok(symbols) => {
                        effort += 1 + symbols / SYMBOLS_PER_EFFORT;
                        return None;
                    }
                    Err(refusal) => refusal,
                };
                effort += refusal.effort();
                Some((step, part.as_object()?, refusal.why))
            });
            let Some((step, inner, why)) = wrong else {
                return found;
            };
            steps.push(step);
            found.0 = path(&steps);
            found.1 = why;
            part = inner;
        }
    }

    /// A part as it is compiled alone.
    fn part(&self, part: &Value) -> Map<String, Value> {
        let part = self.with_kept(part);
        match &self.closed {
            Some(_) => close_objects(&part).unwrap_or(part),
            None => part,
        }
    }

    /// A part with what it may refer to.
    fn with_kept(&self, part: &Value) -> Map<String, Value> {
        let mut part = part.as_object().cloned().unwrap_or_default();
        for kept in KEPT {
            if let Some(value) = self.root.get(kept) {
                part.insert(kept.to_owned(), value.clone());
            }
        }
        part
    }
}

/// What the library is told beside a schema. A `oneOf` in a place that no keyword names (`components`, which a `$ref`
/// finds) is `anyOf` like the others.
pub(crate) fn options() -> Value {
    json!({"whitespace_pattern": JSON_WHITE_SPACE, "coerce_one_of": true})
}

/// The options are ours: those that stand in a caller's schema are replaced.
fn grammar(root: Map<String, Value>) -> TopLevelGrammar {
    let mut root = loosened_schema(root);
    root.insert("x-guidance".to_owned(), options());
    TopLevelGrammar::from_json_schema(Value::Object(root))
}

fn measure(value: &Value, depth: usize, places: &mut usize) -> Result<(), GrammarError> {
    *places += 1;
    if depth > SCHEMA_DEPTH_MAX {
        return Err(GrammarError::whole(format!(
            "is nested more than {SCHEMA_DEPTH_MAX} deep"
        )));
    }
    if *places > SCHEMA_PLACES_MAX {
        return Err(GrammarError::whole(format!(
            "has more than {SCHEMA_PLACES_MAX} values"
        )));
    }
    match value {
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| measure(item, depth + 1, places)),
        Value::Object(entries) => entries
            .values()
            .try_for_each(|entry| measure(entry, depth + 1, places)),
        _ => Ok(()),
    }
}

/// Whether it is a schema that refers to nothing but what is kept for reference.
fn stands_alone(part: &Value) -> bool {
    part.is_object() && refers_to_kept(part)
}

fn refers_to_kept(part: &Value) -> bool {
    match part {
        Value::Object(entries) => entries.iter().all(|(keyword, value)| match value.as_str() {
            Some(to) if keyword == "$ref" => KEPT
                .iter()
                .any(|kept| to.starts_with(&format!("#/{kept}/"))),
            _ => refers_to_kept(value),
        }),
        Value::Array(items) => items.iter().all(refers_to_kept),
        _ => true,
    }
}
