//! Relaxation of schemas: `oneOf` becomes `anyOf`, and unknown formats are ignored.
//!
//! A grammar cannot count matching branches. Where no value matches two branches, `oneOf` and `anyOf` are
//! equivalent; elsewhere `anyOf` also allows values that match several branches. With `strict`, such schemas
//! are rejected instead, with the path ([`strict_schema_violation`]).
//!
//! **Exclusive branches** have disjoint types, disjoint constants or enumerations, or a common property that
//! one branch requires and whose schemas are exclusive (a discriminator); also through `$ref`, `allOf` and
//! nested alternatives. All other branches count as overlapping.

use super::error::GrammarError;
use super::schema_normalization;
use super::schema_size::{OF_NAMED, OF_SCHEMAS, parts, path};
use serde_json::{Map, Value, json};

/// Formats that are enforced; other formats are annotations.
pub const SCHEMA_FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];
/// Comparisons of schemas for the exclusivity of `oneOf` branches; beyond this bound branches count as
/// overlapping.
pub const EXCLUSION_CHECKS_MAX: usize = 50_000;
/// Depth to which references, combinations and properties are followed.
const DEPTH_MAX: usize = 12;
/// JSON types; `integer` is a `number`.
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// The relaxed schema, as compiled.
fn loosened(schema: Value) -> Value {
    match schema {
        Value::Object(entries) => Value::Object(loosened_schema(entries)),
        other => other,
    }
}

/// The first part of a schema that relaxation would weaken.
pub fn strict_schema_violation(schema: &Value) -> Option<GrammarError> {
    let mut checks = ExclusivityChecks {
        root: schema,
        left: EXCLUSION_CHECKS_MAX,
    };
    checks.problem(schema, &mut Vec::new())
}

/// The relaxed form of an object schema.
pub(super) fn loosened_schema(entries: Map<String, Value>) -> Map<String, Value> {
    let has_any_of = entries.contains_key("anyOf");
    let mut loose = Map::new();
    let mut beside = Vec::new();
    for (keyword, value) in entries {
        match keyword.as_str() {
            "oneOf" if has_any_of => beside.push(json!({"anyOf": loosened_parts("anyOf", value)})),
            "oneOf" => drop(loose.insert("anyOf".to_owned(), loosened_parts("anyOf", value))),
            "format"
                if value
                    .as_str()
                    .is_some_and(|format| !SCHEMA_FORMATS.contains(&format)) => {}
            // Keywords without effect.
            "uniqueItems" if value == json!(false) => {}
            // Nothing that looks like a schema in an annotation is compiled.
            "discriminator" | "default" | "examples" => {}
            _ => {
                let value = loosened_parts(&keyword, value);
                loose.insert(keyword, value);
            }
        }
    }
    if !beside.is_empty() {
        let all_of = loose.entry("allOf").or_insert_with(|| json!([]));
        if let Some(all_of) = all_of.as_array_mut() {
            all_of.extend(beside);
        }
    }
    loose
}

fn loosened_parts(keyword: &str, value: Value) -> Value {
    match value {
        Value::Object(named) if OF_NAMED.contains(&keyword) => {
            let named = named.into_iter().map(|(name, part)| (name, loosened(part)));
            Value::Object(named.collect())
        }
        Value::Array(list) if OF_SCHEMAS.contains(&keyword) => {
            list.into_iter().map(loosened).collect()
        }
        value if OF_SCHEMAS.contains(&keyword) => loosened(value),
        value => value,
    }
}

struct ExclusivityChecks<'s> {
    root: &'s Value,
    left: usize,
}

impl<'s> ExclusivityChecks<'s> {
    fn problem(&mut self, schema: &'s Value, place: &mut Vec<String>) -> Option<GrammarError> {
        let entries = schema.as_object()?;
        if let Some(format) = entries
            .get("format")
            .and_then(Value::as_str)
            .filter(|format| !SCHEMA_FORMATS.contains(format))
        {
            return Some(GrammarError {
                place: path(&[place.as_slice(), &["format".to_owned()]].concat()),
                why: format!(
                    "the format {format} is not kept where strict is true; kept are {}",
                    SCHEMA_FORMATS.join(", ")
                ),
            });
        }
        if let Some((first, second)) = self.overlap(entries) {
            return Some(GrammarError {
                place: path(&[place.as_slice(), &["oneOf".to_owned()]].concat()),
                why: format!(
                    "the branches {first} and {second} are not seen to exclude each other, which they must where strict is \
                     true: by their types, their constants, or a required property with a constant in each; or use anyOf"
                ),
            });
        }
        parts(entries).find_map(|(step, part)| {
            place.push(step);
            let problem = self.problem(part, place);
            place.pop();
            problem
        })
    }

    /// Indices of two `oneOf` branches that are not provably exclusive.
    fn overlap(&mut self, schema: &'s Map<String, Value>) -> Option<(usize, usize)> {
        let branches = schema.get("oneOf")?.as_array()?;
        let pairs = (0..branches.len()).flat_map(|a| (a + 1..branches.len()).map(move |b| (a, b)));
        let mut pairs = pairs;
        pairs.find(|&(a, b)| !self.exclude(&branches[a], &branches[b], 0))
    }

    /// Whether two schemas are provably exclusive.
    fn exclude(&mut self, a: &'s Value, b: &'s Value, depth: usize) -> bool {
        if self.left == 0 || depth > DEPTH_MAX {
            return false;
        }
        self.left -= 1;
        let (Value::Object(first), Value::Object(second)) = (a, b) else {
            return a == &Value::Bool(false) || b == &Value::Bool(false);
        };
        self.is_split(first, b, depth)
            || self.is_split(second, a, depth)
            || disjoint_types(first, second)
            || disjoint_values(first, second)
            || self.disjoint_property(first, second, depth)
    }

    /// Whether part of the first schema excludes the other: the target of `$ref`, one branch of `allOf`, or
    /// every alternative.
    fn is_split(&mut self, first: &'s Map<String, Value>, other: &'s Value, depth: usize) -> bool {
        let target = first.get("$ref").and_then(|to| self.target(to));
        if target.is_some_and(|target| self.exclude(target, other, depth + 1)) {
            return true;
        }
        let list = |keyword: &str| first.get(keyword).and_then(Value::as_array);
        let all_of = list("allOf").into_iter().flatten();
        if all_of
            .into_iter()
            .any(|part| self.exclude(part, other, depth + 1))
        {
            return true;
        }
        let alternatives = [list("anyOf"), list("oneOf")].into_iter().flatten();
        let mut alternatives = alternatives.filter(|list| !list.is_empty());
        alternatives.any(|list| list.iter().all(|part| self.exclude(part, other, depth + 1)))
    }

    fn disjoint_property(
        &mut self,
        first: &'s Map<String, Value>,
        second: &'s Map<String, Value>,
        depth: usize,
    ) -> bool {
        let properties =
            |schema: &'s Map<String, Value>| schema.get("properties").and_then(Value::as_object);
        let (Some(of_first), Some(of_second)) = (properties(first), properties(second)) else {
            return false;
        };
        // Only objects have properties.
        if types(first) != ["object"] && types(second) != ["object"] {
            return false;
        }
        let required =
            |schema: &'s Map<String, Value>| schema.get("required").and_then(Value::as_array);
        let required = [required(first), required(second)]
            .into_iter()
            .flatten()
            .flatten();
        required.filter_map(Value::as_str).any(|name| {
            match (of_first.get(name), of_second.get(name)) {
                (Some(a), Some(b)) => self.exclude(a, b, depth + 1),
                _ => false,
            }
        })
    }

    fn target(&self, reference: &Value) -> Option<&'s Value> {
        schema_normalization::target(self.root, reference.as_str()?)
    }
}

/// Types that a schema names, or the types of the schema's constants; all types where the schema has neither.
fn types(schema: &Map<String, Value>) -> Vec<&str> {
    let named: Option<Vec<&str>> = match schema.get("type") {
        Some(Value::String(one)) => Some(vec![one]),
        Some(Value::Array(several)) => Some(several.iter().filter_map(Value::as_str).collect()),
        _ => values(schema).map(|values| values.into_iter().map(type_of).collect()),
    };
    let Some(named) = named else {
        return TYPES.to_vec();
    };
    let number = |one| if one == "integer" { "number" } else { one };
    named.into_iter().map(number).collect()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn disjoint_types(first: &Map<String, Value>, second: &Map<String, Value>) -> bool {
    let of_second = types(second);
    !types(first).iter().any(|one| of_second.contains(one))
}

/// Values that a schema enumerates.
fn values(schema: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(one), _) => Some(vec![one]),
        (None, Some(Value::Array(several))) => Some(several.iter().collect()),
        _ => None,
    }
}

fn disjoint_values(first: &Map<String, Value>, second: &Map<String, Value>) -> bool {
    let (Some(first), Some(second)) = (values(first), values(second)) else {
        return false;
    };
    let same = |a: &Value, b: &Value| a == b || (a.is_number() && a.as_f64() == b.as_f64());
    !first.iter().any(|a| second.iter().any(|b| same(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn exclusive_branches_are_recognized() {
        let of = |kind: Value| json!({"type": "object", "properties": {"kind": kind, "x": {"type": "string"}}, "required": ["kind"]});
        let cat = of(json!({"const": "cat"}));
        let dog = of(json!({"enum": ["dog", "wolf"], "type": "string"}));
        let rows = [
            (
                "types",
                json!([{"type": "string"}, {"type": ["integer", "null"]}]),
                None,
            ),
            (
                "integers are numbers",
                json!([{"type": "integer"}, {"type": "number"}]),
                Some((0, 1)),
            ),
            ("constants", json!([{"const": 1}, {"enum": [2, 3]}]), None),
            (
                "equal numbers",
                json!([{"const": 1}, {"const": 1.0}]),
                Some((0, 1)),
            ),
            ("a discriminator", json!([cat, dog]), None),
            ("the same one", json!([cat, dog, cat]), Some((0, 2))),
            (
                "references",
                json!([{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]),
                None,
            ),
            (
                "allOf",
                json!([{"allOf": [{"$ref": "#/$defs/cat"}, {"title": "x"}]}, dog]),
                None,
            ),
            (
                "alternatives",
                json!([{"anyOf": [cat, {"type": "null"}]}, dog]),
                None,
            ),
            (
                "one alternative",
                json!([{"anyOf": [cat, {}]}, dog]),
                Some((0, 1)),
            ),
            (
                "required",
                json!([{"required": ["a"]}, {"required": ["b"]}]),
                Some((0, 1)),
            ),
            (
                "a cycle",
                json!([{"$ref": "#"}, {"$ref": "#"}]),
                Some((0, 1)),
            ),
        ];
        for (label, branches, overlap) in rows {
            let schema = json!({"oneOf": branches, "$defs": {"cat": cat, "dog": dog}});
            let problem = strict_schema_violation(&schema);
            let told = overlap.map(|(a, b)| format!("the branches {a} and {b} are"));
            match (problem, told) {
                (None, None) => {}
                (Some(problem), Some(told)) => {
                    assert_eq!(problem.place, "oneOf", "{label}");
                    assert!(problem.why.starts_with(&told), "{label}: {problem}");
                }
                (problem, _) => panic!("{label}: {problem:?}"),
            }
        }
    }

    #[test]
    fn subschemas_are_relaxed() {
        let schema = json!({
            "oneOf": [{"type": "string", "format": "color"}, {"const": {"oneOf": 1, "format": "x"}}],
            "anyOf": [{"format": "date"}],
            "properties": {"format": {"format": "x"}, "oneOf": {"oneOf": [{}]}},
            "discriminator": {"propertyName": "kind"}, "uniqueItems": false,
        });
        let loose = json!({
            "anyOf": [{"format": "date"}],
            "properties": {"format": {}, "oneOf": {"anyOf": [{}]}},
            "allOf": [{"anyOf": [{"type": "string"}, {"const": {"oneOf": 1, "format": "x"}}]}],
        });
        assert_eq!(loosened(schema.clone()), loose);
        let nested = json!({"items": {"properties": {"a": schema}}});
        let problem = strict_schema_violation(&nested).map(|problem| problem.place);
        assert_eq!(
            problem.as_deref(),
            Some("items.properties.a.oneOf[0].format")
        );
        let format = json!({"items": [{"format": "color"}]});
        let problem = strict_schema_violation(&format).map(|problem| problem.place);
        assert_eq!(problem.as_deref(), Some("items[0].format"));
    }
}
