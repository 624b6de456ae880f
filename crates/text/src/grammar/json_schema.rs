//! A client's JSON Schema: bounded before compilation, and searched for the part that does not compile.

use super::closed_objects::close_objects;
use super::error::{GrammarError, GrammarRejection};
use super::lexer_work::GRAMMAR_BYTES_MAX;
use super::number_lexemes::{NumberRules, NumberedGrammar};
use super::schema_relaxation::loosened_schema;
use super::schema_rewriting::rewritten;
use super::schema_size::{parts, path};
use super::{schema_normalization, schema_numbers, schema_size};
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

/// White space between JSON tokens: one space, or a line break and at most 20 characters of indentation, at
/// most once per gap; the bound of llama.cpp's `space` rule. A small model fills every gap, so more white space would cost the answer tokens.
const JSON_WHITE_SPACE: &str = r" |\n[ \t]{0,20}";
/// Nesting of values in a schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Number of values in a schema, at all depths.
pub const SCHEMA_PLACES_MAX: usize = 20_000;
/// Effort for finding the invalid part of a schema by compiling parts separately: 64 small parts, or fewer
/// than 2 parts of the largest size.
const PLACE_EFFORT_MAX: usize = 64;
/// Symbols of a compiled part that count as one more unit of effort.
const SYMBOLS_PER_EFFORT: usize = 400;

/// Keywords that hold shared definitions.
const KEPT: [&str; 2] = ["$defs", "definitions"];

/// A schema within the bounds.
pub(super) struct BoundedSchema {
    /// The schema, normalized.
    root: Map<String, Value>,
    /// The schema with closed objects, if requested.
    closed: Option<Map<String, Value>>,
}

impl BoundedSchema {
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
        let root = schema_normalization::normalized(&root)?;
        schema_numbers::check(&root)?;
        schema_size::check(&root)?;
        check_rewritten(&root)?;
        Ok(Self { root, closed: None })
    }

    /// Closes the objects of the schema.
    pub(super) fn closed(mut self) -> Result<Self, GrammarError> {
        let closed = close_objects(&self.root)?;
        schema_size::check(&closed)?;
        check_rewritten(&closed)?;
        self.closed = Some(closed);
        Ok(self)
    }

    /// The schema to compile.
    pub(super) fn compiled(&self) -> &Map<String, Value> {
        self.closed.as_ref().unwrap_or(&self.root)
    }

    pub(super) fn grammar(&self) -> Result<NumberedGrammar, GrammarRejection> {
        grammar(self.compiled())
    }

    /// The path of the innermost part that does not compile separately, and why. `refusal` is the error of
    /// the whole schema; `compile` returns the number of symbols of a part.
    pub(super) fn culprit(
        &self,
        refusal: GrammarRejection,
        compile: impl Fn(NumberedGrammar) -> Result<usize, GrammarRejection>,
    ) -> (String, String) {
        let mut effort = refusal.effort();
        let mut found = (String::new(), refusal.why);
        let (mut part, mut steps) = (&self.root, Vec::new());
        loop {
            let wrong = parts(part).find_map(|(step, part)| {
                if effort > PLACE_EFFORT_MAX || !stands_alone(part) {
                    return None;
                }
                let refusal = match grammar(&self.part(part)).and_then(&compile) {
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

    /// A part of the schema, compilable separately.
    fn part(&self, part: &Value) -> Map<String, Value> {
        let part = self.with_kept(part);
        match &self.closed {
            Some(_) => close_objects(&part).unwrap_or(part),
            None => part,
        }
    }

    /// A part of the schema with the shared definitions.
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

/// Compiler options of a schema. `coerce_one_of`: a `oneOf` under an unknown keyword (`components`, reached
/// by a `$ref`) is `anyOf` too.
pub(crate) fn options() -> Value {
    json!({"whitespace_pattern": JSON_WHITE_SPACE, "coerce_one_of": true})
}

/// The schema as compiled: rewritten and relaxed.
pub(crate) fn prepared(root: &Map<String, Value>) -> Map<String, Value> {
    loosened_schema(rewritten(root))
}

/// Rewriting makes parts whose paths the client does not know.
fn check_rewritten(root: &Map<String, Value>) -> Result<(), GrammarError> {
    let checked = schema_size::check(&rewritten(root));
    checked.map_err(|error| GrammarError::whole(error.why))
}

/// A client's own options in the schema are replaced.
fn grammar(root: &Map<String, Value>) -> Result<NumberedGrammar, GrammarRejection> {
    let mut root = prepared(root);
    schema_numbers::make_all_exact(&mut root);
    root.insert("x-guidance".to_owned(), options());
    let mut schemas = [Value::Object(root)];
    let numbers =
        NumberRules::of(&mut schemas).map_err(|error| GrammarRejection::wrong(error.why))?;
    let [schema] = schemas;
    Ok(NumberedGrammar {
        grammar: TopLevelGrammar::from_json_schema(schema),
        numbers,
    })
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

/// Whether the value is a schema that refers only to shared definitions.
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
