//! Negation of a schema: the values that are not valid under it.
//!
//! A value is invalid where at least one keyword is violated, so the negation lists an alternative for each way to violate
//! one. Keywords whose violation has no schema (`pattern`, `items`, `multipleOf`, ...) have no negation.

use super::{SchemaRewriter, without};
use crate::grammar::schema_numbers::ExactNumber;
use serde_json::{Map, Number, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Nesting of negated schemas, also through references.
const DEPTH_MAX: usize = 32;
/// JSON types; an `integer` is a `number`.
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];
/// Keywords of JSON Schema whose violation has no schema.
const WITHOUT_NEGATION: [&str; 21] = [
    "pattern",
    "format",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "multipleOf",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "if",
];

/// Alternatives, each of which violates a keyword.
type Violations = Option<Vec<Value>>;

impl SchemaRewriter<'_> {
    /// The negation of a schema, if it has one.
    pub(super) fn negated(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        let entries = match schema {
            Value::Bool(all) => return Some(Value::Bool(!all)),
            Value::Object(entries) if depth < DEPTH_MAX => entries,
            _ => return None,
        };
        let mut alternatives = Vec::new();
        for (keyword, value) in entries {
            self.left = self.left.checked_sub(1)?;
            alternatives.extend(self.violations(entries, keyword, value, depth + 1)?);
        }
        alternatives.retain(|alternative| *alternative != Value::Bool(false));
        match alternatives.len() {
            0 => Some(Value::Bool(false)),
            1 => alternatives.pop(),
            _ => Some(json!({"anyOf": alternatives})),
        }
    }

    fn violations(
        &mut self,
        entries: &Map<String, Value>,
        keyword: &str,
        value: &Value,
        depth: usize,
    ) -> Violations {
        match keyword {
            "not" => Some(vec![self.copied(value)?]),
            "$ref" => {
                let target = self.target(value)?;
                Some(vec![self.negated(target, depth)?])
            }
            "allOf" => self.each_negated(value, depth),
            "anyOf" => Some(vec![json!({"allOf": self.each_negated(value, depth)?})]),
            "oneOf" => self.none_or_several(value, depth),
            "properties" => self.other_properties(value, depth),
            "required" => absent(value),
            "type" => other_types(value),
            "const" => self.other_values(std::slice::from_ref(value)),
            "enum" => self.other_values(value.as_array()?),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                beyond(entries, keyword, value)
            }
            "minLength" => fewer("string", "maxLength", value),
            "minItems" => fewer("array", "maxItems", value),
            "minProperties" => fewer("object", "maxProperties", value),
            "maxLength" => more("string", "minLength", value),
            "maxItems" => more("array", "minItems", value),
            "maxProperties" => more("object", "minProperties", value),
            "additionalProperties" | "items" | "additionalItems" if says_nothing(value) => {
                Some(Vec::new())
            }
            "uniqueItems" if value == &Value::Bool(false) => Some(Vec::new()),
            known if WITHOUT_NEGATION.contains(&known) => None,
            // Annotations, definitions, and what JSON Schema does not know.
            _ => Some(Vec::new()),
        }
    }

    fn each_negated(&mut self, list: &Value, depth: usize) -> Violations {
        let list = list.as_array()?.iter();
        list.map(|part| self.negated(part, depth)).collect()
    }

    /// Violates `oneOf`: no branch is valid, or two of them are.
    fn none_or_several(&mut self, list: &Value, depth: usize) -> Violations {
        let mut alternatives = vec![json!({"allOf": self.each_negated(list, depth)?})];
        let branches = list.as_array()?;
        for (at, first) in branches.iter().enumerate() {
            for second in &branches[at + 1..] {
                let both = [self.copied(first)?, self.copied(second)?];
                alternatives.push(json!({"allOf": both}));
            }
        }
        Some(alternatives)
    }

    /// Violates `properties`: one of them is there with another value.
    fn other_properties(&mut self, properties: &Value, depth: usize) -> Violations {
        let mut alternatives = Vec::new();
        for (name, schema) in properties.as_object()? {
            let negated = self.negated(schema, depth)?;
            if negated != Value::Bool(false) {
                let is_there =
                    json!({"type": "object", "required": [name], "properties": {name: negated}});
                alternatives.push(is_there);
            }
        }
        Some(alternatives)
    }

    /// Violates `enum`: other types, and other values of the listed types.
    fn other_values(&mut self, values: &[Value]) -> Violations {
        let (mut texts, mut numbers, mut flags) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_null = false;
        for value in values {
            match value {
                Value::Null => has_null = true,
                Value::Bool(flag) => flags.push(*flag),
                Value::Number(number) => numbers.push(number.clone()),
                Value::String(text) => texts.push(text.as_str()),
                Value::Array(_) | Value::Object(_) => return None,
            }
        }
        let listed = |kind: &&&str| match **kind {
            "null" => has_null,
            "boolean" => !flags.is_empty(),
            "number" => !numbers.is_empty(),
            "string" => !texts.is_empty(),
            _ => false,
        };
        let others: Vec<&&str> = TYPES.iter().filter(|kind| !listed(kind)).collect();
        let mut alternatives = vec![json!({"type": others})];
        if let Some(flag) = flags.first().filter(|flag| !flags.contains(&!**flag)) {
            alternatives.push(json!({"const": !flag}));
        }
        alternatives.extend(between(numbers)?);
        if !texts.is_empty() {
            let pattern = complement(&texts)?;
            self.left = self.left.checked_sub(pattern.len() / 64)?;
            alternatives.push(json!({"type": "string", "pattern": pattern}));
        }
        Some(alternatives)
    }
}

/// Violates `required`: an object without one of the properties.
fn absent(names: &Value) -> Violations {
    let names = names.as_array()?.iter();
    let absent = names.map(|name| {
        let mut without = without(name.as_str()?);
        without["type"] = "object".into();
        Some(without)
    });
    absent.collect()
}

/// Violates `type`. Numbers that are no integers have no type.
fn other_types(named: &Value) -> Violations {
    let named: Vec<&str> = match named {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    if named.contains(&"integer") && !named.contains(&"number") {
        return None;
    }
    let others = TYPES.iter().filter(|kind| !named.contains(kind));
    let others: Vec<&&str> = others.collect();
    if others.is_empty() {
        Some(Vec::new())
    } else {
        Some(vec![json!({"type": others})])
    }
}

/// Violates a bound of numbers.
fn beyond(entries: &Map<String, Value>, keyword: &str, bound: &Value) -> Violations {
    // In draft 4 these are flags of the bounds.
    let is_flag = |keyword| {
        entries
            .get(keyword)
            .is_some_and(|value: &Value| !value.is_number())
    };
    if is_flag("exclusiveMinimum") || is_flag("exclusiveMaximum") || !bound.is_number() {
        return None;
    }
    let opposite = match keyword {
        "minimum" => "exclusiveMaximum",
        "maximum" => "exclusiveMinimum",
        "exclusiveMinimum" => "maximum",
        _ => "minimum",
    };
    Some(vec![json!({"type": "number", opposite: bound})])
}

/// Violates a least number of parts of a type.
fn fewer(kind: &str, most: &str, least: &Value) -> Violations {
    Some(match least.as_u64()?.checked_sub(1) {
        Some(fewer) => vec![json!({"type": kind, most: fewer})],
        None => Vec::new(),
    })
}

/// Violates a greatest number of parts of a type.
fn more(kind: &str, least: &str, most: &Value) -> Violations {
    let more = most.as_u64()?.checked_add(1)?;
    Some(vec![json!({"type": kind, least: more})])
}

/// Numbers other than these: below, between and above.
fn between(numbers: Vec<Number>) -> Violations {
    let mut sorted: Vec<(ExactNumber, Number)> = Vec::new();
    for number in numbers {
        sorted.push((ExactNumber::of(&number)?, number));
    }
    sorted.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal));
    let Some(((_, first), (_, last))) = sorted.first().zip(sorted.last()) else {
        return Some(Vec::new());
    };
    let mut all = vec![json!({"type": "number", "exclusiveMaximum": first})];
    for pair in sorted.windows(2) {
        // Equal ones are two spellings of a number.
        if pair[0].0 != pair[1].0 {
            all.push(json!({"type": "number", "exclusiveMinimum": pair[0].1, "exclusiveMaximum": pair[1].1}));
        }
    }
    all.push(json!({"type": "number", "exclusiveMinimum": last}));
    Some(all)
}

fn says_nothing(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

/// Characters of all excluded texts together, and of one text: the expression grows with their product.
pub const EXCLUDED_CHARS_MAX: usize = 1_000;

/// The expression for all texts but these; `None` where they are too long.
///
/// A text differs from all of them at the first character with which it leaves their common beginnings, so there is an
/// alternative for each beginning: it ends there though none of them does, or continues as none of them does.
pub(super) fn complement(texts: &[&str]) -> Option<String> {
    let chars: usize = texts.iter().map(|text| text.chars().count()).sum();
    let longest = texts.iter().map(|text| text.chars().count()).max();
    if chars.saturating_mul(longest.unwrap_or(0)) > EXCLUDED_CHARS_MAX * 16
        || chars > EXCLUDED_CHARS_MAX
    {
        return None;
    }
    let mut beginnings = BTreeSet::from([""]);
    for text in texts {
        beginnings.extend(text.char_indices().map(|(at, _)| &text[..at]));
        beginnings.insert(*text);
    }
    let mut alternatives = Vec::new();
    for beginning in &beginnings {
        let next = texts
            .iter()
            .filter_map(|text| text.strip_prefix(beginning)?.chars().next());
        let next: BTreeSet<char> = next.collect();
        let start = written(beginning.chars());
        if !texts.contains(beginning) {
            alternatives.push(start.clone());
        }
        let other = if next.is_empty() {
            r"[\s\S]".to_owned()
        } else {
            format!("[^{}]", written(next.into_iter()))
        };
        alternatives.push(format!(r"{start}{other}[\s\S]*"));
    }
    Some(format!("^(?:{})$", alternatives.join("|")))
}

/// Characters in an expression: letters and digits, and escapes of all others.
fn written(chars: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    for c in chars {
        if c.is_ascii_alphanumeric() {
            out.push(c);
        } else {
            _ = write!(out, r"\x{{{:X}}}", c as u32);
        }
    }
    out
}
