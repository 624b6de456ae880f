//! Subschemas of a schema with their paths, and the size of a schema after llguidance combines its parts, computed in
//! advance.
//!
//! Adjacent keywords, `allOf`, and a `$ref` beside other keywords are intersected, and intersection copies:
//! 40 definitions, each with two properties that refer to the next definition beside another keyword, expand
//! to 2^40 copies. llguidance counts intersections; this module counts copies.

use super::error::GrammarError;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Parts of a schema including copies; about 250 bytes each.
pub const SCHEMA_COPIES_MAX: u64 = 200_000;
/// Optional properties of one object: any of the properties may come next, and each takes parser items.
pub const OPTIONAL_PROPERTIES_MAX: usize = 2_400;
/// Patterns that one text must match simultaneously (`pattern`, `format` and lengths, through `allOf` and
/// `$ref`).
pub const PATTERNS_AT_ONCE_MAX: u64 = 16;
/// Pairs of `patternProperties`, each of which is searched for a name that matches both, times the number of
/// combining parts.
pub const PATTERN_PAIRS_MAX: u64 = 2_000;

/// Rejects a schema that would exceed a bound, with the path.
pub(super) fn check(root: &Map<String, Value>) -> Result<(), GrammarError> {
    let whole = Value::Object(root.clone());
    let mut sizes = SizeEstimator {
        root: &whole,
        known: HashMap::new(),
        pairs: 0,
        combining: 1,
    };
    let size = sizes.of(&whole, &mut Vec::new())?;
    if size.copies > SCHEMA_COPIES_MAX {
        return Err(GrammarError::whole(format!(
            "comes to {} parts when $ref, allOf and anyOf are combined; at most {SCHEMA_COPIES_MAX} \
             (SCHEMA_COPIES_MAX) are accepted",
            size.copies
        )));
    }
    let pairs = sizes.pairs.saturating_mul(sizes.combining);
    if pairs > PATTERN_PAIRS_MAX {
        return Err(GrammarError::whole(format!(
            "has patternProperties that make {pairs} pairs; at most {PATTERN_PAIRS_MAX} (PATTERN_PAIRS_MAX) are accepted"
        )));
    }
    Ok(())
}

/// Size of a schema.
#[derive(Clone, Copy, Default)]
struct SchemaSize {
    copies: u64,
    /// Patterns that the value must match simultaneously.
    patterns: u64,
}

struct SizeEstimator<'s> {
    root: &'s Value,
    /// Sizes of reference targets; `None` while being computed.
    known: HashMap<String, Option<SchemaSize>>,
    pairs: u64,
    /// Number of parts that combine others.
    combining: u64,
}

impl SizeEstimator<'_> {
    fn of(&mut self, schema: &Value, place: &mut Vec<String>) -> Result<SchemaSize, GrammarError> {
        let Value::Object(schema) = schema else {
            return Ok(SchemaSize {
                copies: 1,
                patterns: 0,
            });
        };
        self.count_properties(schema, place)?;
        let mut size = own(schema);
        // Alternatives multiply with the keywords beside them.
        let (mut alternatives, mut all) = (Vec::new(), 0u64);
        for (step, part) in parts(schema) {
            let keyword = step.split(['.', '[']).next().unwrap_or_default().to_owned();
            place.push(step);
            let of = self.of(part, place)?;
            place.pop();
            size.copies = size.copies.saturating_add(of.copies);
            match keyword.as_str() {
                "allOf" => {
                    self.combining = self.combining.saturating_add(1);
                    size.patterns = size.patterns.saturating_add(of.patterns);
                }
                "anyOf" | "oneOf" => {
                    all = all.max(of.patterns);
                    match alternatives.last_mut() {
                        Some((last, count, copies)) if *last == keyword => {
                            (*count, *copies) =
                                (*count + 1, u64::saturating_add(*copies, of.copies));
                        }
                        _ => alternatives.push((keyword, 1u64, of.copies)),
                    }
                }
                _ => {}
            }
        }
        size.patterns = size.patterns.saturating_add(all);
        self.add_reference(schema, place, &mut size)?;
        let whole = size.copies;
        for (_, count, copies) in alternatives {
            let beside = whole.saturating_sub(copies);
            size.copies = size
                .copies
                .saturating_add(beside.saturating_mul(count.saturating_sub(1)));
        }
        size.copies = size.copies.min(u64::MAX / 4);
        if size.patterns > PATTERNS_AT_ONCE_MAX {
            return Err(GrammarError {
                place: path(place),
                why: format!(
                    "has {} patterns, formats and lengths that must hold at once; at most {PATTERNS_AT_ONCE_MAX} \
                     (PATTERNS_AT_ONCE_MAX) are accepted",
                    size.patterns
                ),
            });
        }
        Ok(size)
    }

    /// A reference alone is not copied; beside other keywords, and in `allOf`, the target is copied.
    fn add_reference(
        &mut self,
        schema: &Map<String, Value>,
        place: &[String],
        size: &mut SchemaSize,
    ) -> Result<(), GrammarError> {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
            return Ok(());
        };
        let is_combined = place.last().is_some_and(|step| step.starts_with("allOf"));
        if schema.len() == 1 && !is_combined {
            return Ok(());
        }
        self.combining = self.combining.saturating_add(1);
        let target = self.target(reference)?;
        size.copies = size.copies.saturating_add(target.copies);
        size.patterns = size.patterns.saturating_add(target.patterns);
        Ok(())
    }

    fn target(&mut self, reference: &str) -> Result<SchemaSize, GrammarError> {
        match self.known.get(reference) {
            Some(Some(size)) => return Ok(*size),
            // A recursive reference, which llguidance rejects or terminates.
            Some(None) => return Ok(SchemaSize::default()),
            None => {}
        }
        self.known.insert(reference.to_owned(), None);
        let pointer = reference.strip_prefix('#').unwrap_or("no place");
        let target = self.root.pointer(pointer);
        let mut place = pointer.split('/').skip(1).map(str::to_owned).collect();
        let size = match target {
            Some(target) => self.of(target, &mut place)?,
            None => SchemaSize::default(),
        };
        self.known.insert(reference.to_owned(), Some(size));
        Ok(size)
    }

    fn count_properties(
        &mut self,
        schema: &Map<String, Value>,
        place: &[String],
    ) -> Result<(), GrammarError> {
        let count = |keyword: &str| {
            schema
                .get(keyword)
                .and_then(Value::as_object)
                .map_or(0, Map::len)
        };
        let patterns = count("patternProperties") as u64;
        self.pairs = self
            .pairs
            .saturating_add(patterns * patterns.saturating_sub(1) / 2);
        let required = schema.get("required").and_then(Value::as_array);
        let required: std::collections::HashSet<&str> = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        let optional = properties
            .into_iter()
            .flatten()
            .filter(|(name, _)| !required.contains(name.as_str()))
            .count();
        if optional > OPTIONAL_PROPERTIES_MAX {
            return Err(GrammarError {
                place: path(place),
                why: format!(
                    "has {optional} optional properties; at most {OPTIONAL_PROPERTIES_MAX} \
                     (OPTIONAL_PROPERTIES_MAX) are accepted"
                ),
            });
        }
        Ok(())
    }
}

/// Size of a schema without subschemas; values of an `enum` count as parts.
fn own(schema: &Map<String, Value>) -> SchemaSize {
    let has = |keyword: &str| u64::from(schema.contains_key(keyword));
    let values = schema
        .get("enum")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    SchemaSize {
        copies: 1 + values as u64,
        patterns: has("pattern") + has("format") + has("minLength").max(has("maxLength")),
    }
}

/// Keywords whose value maps names to schemas.
pub(super) const OF_NAMED: [&str; 6] = [
    "$defs",
    "definitions",
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
];
/// Keywords whose value is a schema or a list of schemas.
pub(super) const OF_SCHEMAS: [&str; 13] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "propertyNames",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
];

/// Keywords whose value is data.
pub(super) const OF_DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Calls `visit` with the objects directly below a schema that may be schemas: a reference may lead below any keyword, except data.
pub(super) fn visit_parts(
    schema: &mut Map<String, Value>,
    visit: &mut dyn FnMut(&mut Map<String, Value>),
) {
    for (keyword, value) in schema {
        let below: Vec<&mut Value> = match value {
            _ if OF_DATA.contains(&keyword.as_str()) => Vec::new(),
            Value::Object(named) if OF_NAMED.contains(&keyword.as_str()) => {
                named.values_mut().collect()
            }
            Value::Array(list) => list.iter_mut().collect(),
            value => vec![value],
        };
        for part in below.into_iter().filter_map(Value::as_object_mut) {
            visit(part);
        }
    }
}

/// The direct subschemas of a schema, each with a path step.
pub(super) fn parts(schema: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    schema.iter().flat_map(|(keyword, value)| {
        let named = OF_NAMED.contains(&keyword.as_str());
        let listed = OF_SCHEMAS.contains(&keyword.as_str());
        let parts: Vec<(String, &Value)> = match value {
            Value::Object(entries) if named => entries
                .iter()
                .map(|(name, part)| (format!("{keyword}.{name}"), part))
                .collect(),
            Value::Array(items) if listed => items
                .iter()
                .enumerate()
                .map(|(at, part)| (format!("{keyword}[{at}]"), part))
                .collect(),
            value if listed => vec![(keyword.clone(), value)],
            _ => Vec::new(),
        };
        parts
    })
}

/// The path with these steps.
pub(super) fn path(steps: &[String]) -> String {
    steps.join(".")
}

/// Number of values in a value, at all depths.
pub(super) fn values_in(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values_in).sum(),
        Value::Object(entries) => entries.values().map(values_in).sum(),
        _ => 0,
    }
}
