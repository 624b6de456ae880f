//! Values of `multipleOf` that apply to one number together: llguidance computes their least common multiple in 32 bits.
//!
//! Multiples meet only where several constraints of one part have some: those of its plain keywords, of each part of `allOf`, of
//! `anyOf`, of the target of `$ref`, and so on. Multiples in different properties never meet, but within constraints that do, all
//! are taken together.

use super::error::GrammarError;
use super::schema_normalization::target;
use super::schema_numbers::Multiple;
use super::schema_parts::{OF_DATA, OF_NAMED};
use super::schema_size::SCHEMA_COPIES_MAX;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Keywords that are a constraint of their own, in addition to the plain ones.
const IN_PLACE: [&str; 7] = ["$ref", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords of which each part is such a constraint.
const EACH_IN_PLACE: [&str; 3] = ["allOf", "dependencies", "dependentSchemas"];
/// Keywords whose schemas apply only where a reference leads to them.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Rejects a schema with multiples that meet and have no common multiple in 32 bits.
pub(super) fn check(root: &Map<String, Value>) -> Result<(), GrammarError> {
    let root = Value::Object(root.clone());
    let mut search = MultiplesSearch {
        root: &root,
        steps: 0,
    };
    let is_within = search.all_fit("", &root);
    if search.steps > SCHEMA_COPIES_MAX {
        return Err(GrammarError::whole(format!(
            "has values of multipleOf among so many combined parts (allOf, anyOf, $ref) that more than {SCHEMA_COPIES_MAX} \
             (SCHEMA_COPIES_MAX) would be searched for common multiples"
        )));
    }
    if is_within {
        Ok(())
    } else {
        Err(GrammarError::whole(
            "has values of multipleOf whose common multiple exceeds 32 bits, in a schema that combines parts (allOf, anyOf, $ref)",
        ))
    }
}

struct MultiplesSearch<'s> {
    root: &'s Value,
    /// Values visited below combined parts; a part may be visited once for each part that refers to it.
    steps: u64,
}

/// What one constraint has at all depths.
#[derive(Default)]
struct FoundMultiples<'s> {
    multiples: Vec<Multiple>,
    /// References that were followed.
    references: HashSet<&'s str>,
}

impl<'s> MultiplesSearch<'s> {
    /// Whether the multiples of each schema in the value of a keyword fit.
    fn all_fit(&mut self, keyword: &str, value: &'s Value) -> bool {
        match value {
            _ if OF_DATA.contains(&keyword) => true,
            Value::Array(parts) => parts.iter().all(|part| self.all_fit("", part)),
            Value::Object(named) if OF_NAMED.contains(&keyword) => {
                named.values().all(|part| self.all_fit("", part))
            }
            Value::Object(schema) => {
                self.fits(schema) && schema.iter().all(|(key, part)| self.all_fit(key, part))
            }
            _ => true,
        }
    }

    /// Whether the multiples that meet in this schema fit.
    fn fits(&mut self, schema: &'s Map<String, Value>) -> bool {
        let constraints = constraints(schema);
        if constraints.len() < 2 {
            return true;
        }
        let (mut meeting, mut multiples) = (0, Vec::new());
        for constraint in constraints {
            let mut found = FoundMultiples::default();
            for (keyword, value) in constraint {
                self.add(keyword, value, &mut found);
            }
            meeting += usize::from(!found.multiples.is_empty());
            multiples.extend(found.multiples);
        }
        self.steps <= SCHEMA_COPIES_MAX && (meeting < 2 || Multiple::product_fits(&multiples))
    }

    /// Adds the multiples in the value of a keyword.
    fn add(&mut self, keyword: &str, value: &'s Value, found: &mut FoundMultiples<'s>) {
        self.steps += 1;
        if self.steps > SCHEMA_COPIES_MAX {
            return;
        }
        match (keyword, value) {
            ("multipleOf", Value::Number(number)) => found.multiples.extend(Multiple::of(number)),
            ("$ref", Value::String(reference)) => {
                if found.references.insert(reference)
                    && let Some(target) = target(self.root, reference)
                {
                    self.add("", target, found);
                }
            }
            _ if OF_DATA.contains(&keyword) || DEFINITIONS.contains(&keyword) => {}
            (_, Value::Array(parts)) => parts.iter().for_each(|part| self.add("", part, found)),
            (_, Value::Object(named)) if OF_NAMED.contains(&keyword) => {
                named.values().for_each(|part| self.add("", part, found));
            }
            (_, Value::Object(schema)) => {
                schema
                    .iter()
                    .for_each(|(key, part)| self.add(key, part, found));
            }
            _ => {}
        }
    }
}

/// The constraints of a schema that may have multiples: keywords with their values.
fn constraints(schema: &Map<String, Value>) -> Vec<Vec<(&str, &Value)>> {
    let (mut all, mut plain) = (Vec::new(), Vec::new());
    for (keyword, value) in schema {
        let keyword = keyword.as_str();
        match value {
            _ if OF_DATA.contains(&keyword) || DEFINITIONS.contains(&keyword) => {}
            Value::Array(parts) if EACH_IN_PLACE.contains(&keyword) => {
                all.extend(parts.iter().map(|part| vec![("", part)]));
            }
            Value::Object(named) if EACH_IN_PLACE.contains(&keyword) => {
                all.extend(named.values().map(|part| vec![("", part)]));
            }
            _ if IN_PLACE.contains(&keyword) => all.push(vec![(keyword, value)]),
            Value::Number(_) if keyword == "multipleOf" => plain.push((keyword, value)),
            Value::Object(_) => plain.push((keyword, value)),
            Value::Array(parts) if !parts.iter().all(Value::is_string) => {
                plain.push((keyword, value));
            }
            _ => {}
        }
    }
    all.extend(Some(plain).filter(|plain| !plain.is_empty()));
    all
}
