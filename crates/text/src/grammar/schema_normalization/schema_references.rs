//! References with escapes: JSON Pointer's `~0` and `~1`, and percent-encoding.
//!
//! Readers of `$ref` take the text between slashes as it is. A reference with escapes therefore leads to a copy of the target, in
//! `$defs` under a name without escapes. Targets may refer to each other: each is copied once. A target within another one is copied
//! with both, so all copies together are bounded.

use super::schema_identifiers::decoded;
use crate::grammar::error::GrammarError;
use crate::grammar::json_schema::SCHEMA_PLACES_MAX;
use crate::grammar::schema_parts::visit_parts;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Prefix of the names in `$defs` of targets that are reached with escapes; longer where the schema has such names.
const TARGET: &str = "millrace-target-";

/// The target of a reference within the schema.
pub(in crate::grammar) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = decoded(reference.strip_prefix('#')?)?;
    root.pointer(&pointer)
}

/// The schema without escapes in references. References without a target stay as written, and are rejected later.
///
/// # Errors
/// The copies have more than [`SCHEMA_PLACES_MAX`] values.
pub(super) fn plain(mut root: Map<String, Value>) -> Result<Map<String, Value>, GrammarError> {
    let mut references = EscapedReferences {
        prefix: free_prefix(&root),
        root: Value::Object(root.clone()),
        known: HashMap::new(),
        pointers: Vec::new(),
    };
    references.redirect(&mut root);
    let (mut copies, mut places) = (Map::new(), 0);
    // A copy may have further references.
    while let Some(pointer) = references.pointers.get(copies.len()) {
        let target = references.root.pointer(pointer);
        places += target.map_or(0, count);
        if places > SCHEMA_PLACES_MAX {
            return Err(GrammarError::whole(format!(
                "has references with escapes (~0, ~1, %20) to parts of more than {SCHEMA_PLACES_MAX} (SCHEMA_PLACES_MAX) values \
                 together, a part within another counted twice"
            )));
        }
        let mut copy = target.cloned().unwrap_or_default();
        if let Some(copy) = copy.as_object_mut() {
            references.redirect(copy);
        }
        copies.insert(format!("{}{}", references.prefix, copies.len()), copy);
    }
    if !copies.is_empty() {
        let kept = root.entry("$defs").or_insert_with(|| json!({}));
        if let Some(kept) = kept.as_object_mut() {
            kept.extend(copies);
        }
    }
    Ok(root)
}

/// A prefix that no name in `$defs` has.
fn free_prefix(root: &Map<String, Value>) -> String {
    let mut prefix = TARGET.to_owned();
    if let Some(kept) = root.get("$defs").and_then(Value::as_object) {
        while kept.keys().any(|name| name.starts_with(&prefix)) {
            prefix.push('-');
        }
    }
    prefix
}

/// Number of values in a value, at all depths.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(entries) => entries.values().map(count).sum(),
        _ => 0,
    }
}

struct EscapedReferences {
    root: Value,
    prefix: String,
    /// Numbers of the copies of places that references with escapes lead to.
    known: HashMap<String, usize>,
    /// These places, in the order of their copies.
    pointers: Vec<String>,
}

impl EscapedReferences {
    fn redirect(&mut self, schema: &mut Map<String, Value>) {
        if let Some(Value::String(reference)) = schema.get_mut("$ref")
            && let Some(plain) = self.plain(reference)
        {
            *reference = plain;
        }
        visit_parts(schema, &mut |part| self.redirect(part));
    }

    /// The reference to the copy of this reference's target.
    fn plain(&mut self, reference: &str) -> Option<String> {
        let pointer = reference
            .strip_prefix('#')
            .filter(|to| to.contains(['~', '%']))?;
        let pointer = decoded(pointer)?;
        self.root.pointer(&pointer)?;
        let at = *self.known.entry(pointer).or_insert_with_key(|pointer| {
            self.pointers.push(pointer.clone());
            self.pointers.len() - 1
        });
        Some(format!("#/$defs/{}{at}", self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_with_escapes_lead_to_copies() {
        let schema = json!({
            "$defs": {"a/b": {"items": {"$ref": "#/$defs/x%20~0y"}}, "x ~y": {"$ref": "#/$defs/a~1b"}, "é": {}},
            "properties": {"p": {"$ref": "#/$defs/a~1b"}, "q": {"$ref": "#/$defs/%C3%A9"}, "r": {"$ref": "#/$defs/no~1"}},
        });
        let ours = plain(schema.as_object().cloned().expect("an object"));
        let ours = Value::Object(ours.expect("few copies"));
        assert_eq!(
            ours["properties"]["p"]["$ref"], "#/$defs/millrace-target-1",
            "{ours}"
        );
        for (name, reference) in [("p", "#/properties/p"), ("q", "#/properties/q")] {
            let to = target(&ours, reference).and_then(|part| part["$ref"].as_str());
            assert!(target(&ours, to.expect("a reference")).is_some(), "{name}");
        }
        assert_eq!(ours["properties"]["r"], schema["properties"]["r"]);
        let mut text = ours["properties"].to_string() + &ours["$defs"].to_string();
        text.retain(|c| c != ' ');
        assert!(!text.contains("#/$defs/a~1b"), "{ours}");
        assert_eq!(target(&schema, "#/$defs/%C3%A9"), Some(&json!({})));
        assert_eq!(decoded("a%2gb%").as_deref(), Some("a%2gb%"));
    }
    #[test]
    fn names_of_a_client_are_kept() {
        let schema = json!({
            "$defs": {"millrace-target-0": {"const": 1}, "millrace-target--7": {}, "a/b": {"const": 2}},
            "anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/millrace-target-0"}],
        });
        let ours = plain(schema.as_object().cloned().expect("an object"));
        let ours = Value::Object(ours.expect("few copies"));
        for (at, value) in [(0, 2), (1, 1)] {
            let reference = ours["anyOf"][at]["$ref"].as_str().expect("a reference");
            let found = target(&ours, reference);
            assert_eq!(found, Some(&json!({"const": value})), "{ours}");
        }
    }

    #[test]
    fn copies_are_bounded() {
        // A reference to each level copies the lowest level as often as there are levels.
        let of = |values: usize| {
            let depth = 40;
            let lowest = json!({"enum": vec![7; values]});
            let levels = (0..depth).fold(lowest, |inner, _| json!({"x": inner}));
            let references = (1..=depth)
                .map(|level| json!({"$ref": format!("#/levels/%78{}", "/x".repeat(level - 1))}));
            let schema = json!({"levels": levels, "anyOf": references.collect::<Vec<_>>()});
            plain(schema.as_object().cloned().expect("an object"))
        };
        let error = of(SCHEMA_PLACES_MAX / 2).expect_err("many copies");
        assert!(error.why.contains("SCHEMA_PLACES_MAX"), "{error}");
        let ours = of(SCHEMA_PLACES_MAX / 50).expect("few copies");
        assert_eq!(ours["$defs"].as_object().map(Map::len), Some(40));
    }
}
