//! Closing of objects by default: an object schema with `properties` and without `additionalProperties` or
//! `unevaluatedProperties` allows no other properties.
//!
//! A small model that may add members adds members until the answer is cut off, and authors of such schemas
//! (pydantic, zod, tool parameters) do not expect additional members.
//!
//! **Combinations.** The branches of `allOf`, `anyOf` and `oneOf`, and the target of a `$ref` beside other
//! keywords, describe one object together. A branch closed separately would reject the properties of the
//! other branches, so a combination is closed as a unit: the parts stay open, and an additional `allOf`
//! branch lists the names of all parts and rejects all others. Each alternative gets a list of its own: its
//! names and the names of the parts beside the alternatives. The target of a `$ref` in a combination is
//! copied, open, to [`OPEN_COPY`]; everywhere else the reference stays and leads to the closed object.
//!
//! **Unchanged** are objects without `properties`, and combinations in which some part has
//! `additionalProperties` or `unevaluatedProperties`, or a condition that may name properties (`then`, `else`, dependent
//! schemas), is a recursive or unresolvable reference, or has more `minProperties` than properties.

use super::error::GrammarError;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::rc::Rc;

/// Property names that are copied while closing combinations; bounds the product of 20,000 branches and
/// 20,000 names.
pub const CLOSED_NAMES_MAX: usize = 100_000;
/// Prefix of the names in `$defs` of open copies.
const OPEN_COPY: &str = "millrace-open-";

/// Keywords whose value maps names to schemas of other values.
const OF_NAMED: [&str; 4] = ["$defs", "definitions", "properties", "patternProperties"];
/// Keywords whose value is a schema of other values or a list of such schemas.
const OF_OTHERS: [&str; 4] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
];
/// Keywords whose value is data, or a schema that closing would invert.
#[rustfmt::skip] // a list of words
const AS_WRITTEN: [&str; 10] = [
    "const", "enum", "default", "examples", "not", "if", "then", "else", "dependencies", "dependentSchemas",
];
/// Keywords that an open copy of the root must not have.
const OF_ROOT: [&str; 6] = ["$schema", "$id", "id", "$anchor", "$defs", "definitions"];
/// Keywords whose value lists schemas of the same value.
const COMBINING: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The schema with closed objects.
pub(super) fn close_objects(root: &Map<String, Value>) -> Result<Map<String, Value>, GrammarError> {
    let mut closing = ObjectCloser {
        root: Value::Object(root.clone()),
        follows: !has_inner_id(root),
        known: HashMap::new(),
        copies: Vec::new(),
        copied: 0,
    };
    let mut closed = closing.schema(&Value::Object(root.clone()));
    let mut defined = Map::new();
    // Copies may require further copies.
    while let Some(reference) = closing.copies.get(defined.len()).cloned() {
        let target = closing.target(&reference).cloned().unwrap_or_default();
        let name = format!("{OPEN_COPY}{}", defined.len());
        let mut copy = closing.opened(&target);
        if let Some(copy) = copy.as_object_mut() {
            OF_ROOT
                .iter()
                .for_each(|keyword| drop(copy.shift_remove(*keyword)));
        }
        defined.insert(name, copy);
    }
    if closing.copied > CLOSED_NAMES_MAX {
        return Err(GrammarError::whole(format!(
            "combines more than {CLOSED_NAMES_MAX} names of properties (allOf, anyOf, $ref) in objects that are to be \
             closed; give them additionalProperties"
        )));
    }
    let kept = closed.as_object_mut().map(std::mem::take);
    let mut closed = kept.unwrap_or_default();
    if !defined.is_empty() {
        let kept = closed.entry("$defs").or_insert_with(|| json!({}));
        if let Some(kept) = kept.as_object_mut() {
            kept.extend(defined);
        }
    }
    Ok(closed)
}

/// A combination: members that are always known, and members of the alternatives.
#[derive(Default)]
struct CombinedMembers {
    always: KnownMembers,
    /// Members of each `anyOf` and `oneOf`, in order of occurrence.
    groups: Vec<KnownMembers>,
}

struct ObjectCloser {
    /// The original schema.
    root: Value,
    /// Whether references are paths within the root.
    follows: bool,
    /// Members of each reference's target; `None` while being computed.
    known: HashMap<String, Option<Rc<KnownMembers>>>,
    /// References whose targets need open copies.
    copies: Vec<String>,
    /// Number of copied names.
    copied: usize,
}

impl ObjectCloser {
    /// Closes the schema of an independent value.
    fn schema(&mut self, schema: &Value) -> Value {
        self.beside(schema, &KnownMembers::default())
    }

    /// Closes a schema of an object whose other parts have these members.
    fn beside(&mut self, schema: &Value, others: &KnownMembers) -> Value {
        let Some(part) = schema.as_object() else {
            return schema.clone();
        };
        if others.parts == 0 && others.names.is_empty() && !combines(part) {
            return Value::Object(self.alone(part));
        }
        let combination = self.combination(part);
        let always = &combination.always;
        if always.is_said || self.copied > CLOSED_NAMES_MAX {
            return self.opened(schema);
        }
        if !combination.groups.is_empty() {
            return self.alternatives(part, &combination, others);
        }
        let own = own(part);
        let is_alone = always.parts == 1 && others.names.is_empty() && others.parts == 0;
        let adds_names = always.names.len() > self.most_names(part);
        if is_alone && own.parts == 0 && !adds_names {
            // Closes the single branch with properties separately.
            return Value::Object(
                self.rebuilt(part, &mut |closing, branch, _| closing.schema(branch)),
            );
        }
        let mut all = always.clone();
        self.add(&mut all, others);
        match (all.parts, own.parts == always.parts) {
            (0, _) => self.opened(schema),
            (_, true) if own.parts == 1 => {
                let mut open = self.opened_part(part);
                close(&mut open, &all);
                Value::Object(open)
            }
            _ => {
                let mut open = self.opened_part(part);
                let list = open.entry("allOf").or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(all.closer());
                }
                Value::Object(open)
            }
        }
    }

    /// Closes a schema without combinations.
    fn alone(&mut self, part: &Map<String, Value>) -> Map<String, Value> {
        let own = own(part);
        let mut rebuilt = self.rebuilt(part, &mut |closing, branch, _| closing.schema(branch));
        if own.parts > 0 && !own.is_said {
            close(&mut rebuilt, &own);
        }
        rebuilt
    }

    /// Closes each alternative of a combination.
    fn alternatives(
        &mut self,
        part: &Map<String, Value>,
        combination: &CombinedMembers,
        others: &KnownMembers,
    ) -> Value {
        let beside = (0..combination.groups.len()).map(|at| {
            let mut beside = combination.always.clone();
            self.add(&mut beside, others);
            for (other, group) in combination.groups.iter().enumerate() {
                if other != at {
                    self.add(&mut beside, group);
                }
            }
            beside
        });
        let beside: Vec<KnownMembers> = beside.collect();
        let mut group = 0;
        Value::Object(self.spread(part, &beside, &mut group))
    }

    /// Leaves unconditional parts open and closes each alternative together with the members beside the
    /// alternative's group.
    fn spread(
        &mut self,
        part: &Map<String, Value>,
        beside: &[KnownMembers],
        group: &mut usize,
    ) -> Map<String, Value> {
        let mut last = None;
        let mut spread = self.rebuilt(part, &mut |closing, branch, keyword| match branch {
            Value::Object(inner) if keyword == "allOf" => {
                Value::Object(closing.spread(inner, beside, group))
            }
            branch if keyword == "allOf" => branch.clone(),
            branch => {
                if last != Some(keyword) {
                    (last, *group) = (Some(keyword), *group + 1);
                }
                closing.beside(branch, &beside[*group - 1])
            }
        });
        self.open_reference(&mut spread);
        spread
    }

    /// Closes the values inside part of a combination, and leaves the part open.
    fn opened(&mut self, schema: &Value) -> Value {
        match schema {
            Value::Object(part) => Value::Object(self.opened_part(part)),
            other => other.clone(),
        }
    }

    fn opened_part(&mut self, part: &Map<String, Value>) -> Map<String, Value> {
        let mut open = self.rebuilt(part, &mut |closing, branch, _| closing.opened(branch));
        self.open_reference(&mut open);
        open
    }

    /// Redirects a reference in a combination to an open copy if the target would be closed.
    fn open_reference(&mut self, part: &mut Map<String, Value>) {
        let Some(reference) = part.get("$ref").and_then(Value::as_str) else {
            return;
        };
        let known = self.known(reference);
        if known.parts == 0 || self.target(reference).is_none() {
            return;
        }
        let at = self.copies.iter().position(|copy| copy == reference);
        let at = at.unwrap_or_else(|| {
            self.copies.push(reference.to_owned());
            self.copies.len() - 1
        });
        part.insert("$ref".into(), format!("#/$defs/{OPEN_COPY}{at}").into());
    }

    /// Rebuilds a schema: closes the parts that describe other values, and maps branches with `branch`.
    fn rebuilt<'s>(
        &mut self,
        part: &'s Map<String, Value>,
        branch: &mut dyn FnMut(&mut Self, &'s Value, &'s str) -> Value,
    ) -> Map<String, Value> {
        let mut rebuilt = Map::new();
        for (keyword, value) in part {
            let is = |keywords: &[&str]| keywords.contains(&keyword.as_str());
            let value = match value {
                Value::Object(named) if is(&OF_NAMED) => {
                    let named = named.iter().map(|(name, s)| (name.clone(), self.schema(s)));
                    Value::Object(named.collect())
                }
                Value::Array(others) if is(&OF_OTHERS) => {
                    others.iter().map(|schema| self.schema(schema)).collect()
                }
                schema if is(&OF_OTHERS) => self.schema(schema),
                Value::Array(branches) if is(&COMBINING) => {
                    let branches = branches.iter();
                    branches.map(|one| branch(self, one, keyword)).collect()
                }
                // References may lead to schemas under any name.
                Value::Object(_) if !is(&AS_WRITTEN) => self.schema(value),
                other => other.clone(),
            };
            rebuilt.insert(keyword.clone(), value);
        }
        rebuilt
    }

    /// Members known to a schema and its branches.
    fn combination(&mut self, part: &Map<String, Value>) -> CombinedMembers {
        let mut all = CombinedMembers::default();
        self.combine(part, &mut all);
        all
    }

    fn combine(&mut self, part: &Map<String, Value>, into: &mut CombinedMembers) {
        self.add(&mut into.always, &own(part));
        if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
            let known = self.known(reference);
            self.add(&mut into.always, &known);
        }
        for (keyword, value) in part {
            let branches = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let branches = branches.iter().filter_map(Value::as_object);
            match keyword.as_str() {
                "allOf" => branches.for_each(|branch| self.combine(branch, into)),
                "anyOf" | "oneOf" if !value.as_array().is_none_or(Vec::is_empty) => {
                    let mut group = KnownMembers::default();
                    for branch in branches {
                        let known = self.all(branch);
                        self.add(&mut group, &known);
                    }
                    into.groups.push(group);
                }
                _ => {}
            }
        }
    }

    /// Members known to a schema and all of its branches, including alternatives.
    fn all(&mut self, part: &Map<String, Value>) -> KnownMembers {
        let combination = self.combination(part);
        let mut all = combination.always;
        for group in &combination.groups {
            self.add(&mut all, group);
        }
        all
    }

    /// Members known to the target of a reference.
    fn known(&mut self, reference: &str) -> Rc<KnownMembers> {
        let said = KnownMembers {
            is_said: true,
            ..KnownMembers::default()
        };
        match self.known.get(reference) {
            Some(Some(known)) => return Rc::clone(known),
            // A recursive reference.
            Some(None) => return Rc::new(said),
            None => {}
        }
        self.known.insert(reference.to_owned(), None);
        let known = match self.target(reference).cloned() {
            Some(Value::Object(target)) => self.all(&target),
            Some(_) => KnownMembers::default(),
            None => said,
        };
        let known = Rc::new(known);
        self.known
            .insert(reference.to_owned(), Some(Rc::clone(&known)));
        known
    }

    fn target(&self, reference: &str) -> Option<&Value> {
        let pointer = reference.strip_prefix('#').filter(|_| self.follows)?;
        self.root.pointer(pointer)
    }

    /// The largest number of names in one branch or reference with properties.
    fn most_names(&mut self, part: &Map<String, Value>) -> usize {
        let reference = part.get("$ref").and_then(Value::as_str);
        let names = |known: &KnownMembers| match known.parts {
            0 => 0,
            _ => known.names.len(),
        };
        let of_reference = reference.map_or(0, |to| names(&self.known(to)));
        let branches = part.get("allOf").and_then(Value::as_array);
        let branches = branches.into_iter().flatten().filter_map(Value::as_object);
        let of_branches = branches.map(|branch| names(&self.all(branch))).max();
        of_reference.max(of_branches.unwrap_or(0))
    }

    fn add(&mut self, into: &mut KnownMembers, more: &KnownMembers) {
        self.copied += more.names.len() + more.patterns.len();
        into.parts += more.parts;
        into.is_said |= more.is_said;
        if self.copied <= CLOSED_NAMES_MAX {
            into.names.extend(more.names.clone());
            into.patterns.extend(more.patterns.clone());
        }
    }
}

/// Whether a schema has branches, or a reference beside keywords of its own.
fn combines(part: &Map<String, Value>) -> bool {
    let has = |keyword: &&str| part.contains_key(*keyword);
    let refers = part.contains_key("$ref");
    let says = ["properties", "required", "patternProperties"];
    COMBINING.iter().any(has) || (refers && says.iter().any(has))
}

/// Whether a part has an `$id`: then references in the part are not paths within the root.
fn has_inner_id(root: &Map<String, Value>) -> bool {
    fn has_id(value: &Value) -> bool {
        match value {
            Value::Object(entries) => {
                entries.get("$id").is_some_and(Value::is_string) || entries.values().any(has_id)
            }
            Value::Array(items) => items.iter().any(has_id),
            _ => false,
        }
    }
    root.values().any(has_id)
}

/// Members of an object that one or several schemas name.
#[derive(Clone, Debug, Default)]
struct KnownMembers {
    /// Names in order of occurrence.
    names: Map<String, Value>,
    patterns: Map<String, Value>,
    /// Number of parts that have `properties`.
    parts: usize,
    /// Whether other members are already allowed or forbidden explicitly, or are unknown.
    is_said: bool,
}

impl KnownMembers {
    /// A schema that rejects all other members.
    fn closer(&self) -> Value {
        let mut closer = Map::new();
        close(&mut closer, self);
        Value::Object(closer)
    }
}

/// Rejects members that neither `known` nor the schema names.
fn close(schema: &mut Map<String, Value>, known: &KnownMembers) {
    for (keyword, known) in [
        ("properties", &known.names),
        ("patternProperties", &known.patterns),
    ] {
        if known.is_empty() && keyword == "patternProperties" {
            continue;
        }
        let own = schema.entry(keyword).or_insert_with(|| json!({}));
        let Some(own) = own.as_object_mut() else {
            continue;
        };
        for name in known.keys() {
            own.entry(name.clone()).or_insert(Value::Bool(true));
        }
    }
    schema.insert("additionalProperties".into(), Value::Bool(false));
}

/// Keywords that decide about other members, or may name some under a condition.
const DECIDING: [&str; 5] = [
    "additionalProperties",
    "unevaluatedProperties",
    "then",
    "else",
    "dependentSchemas",
];

fn has_dependent_schema(part: &Map<String, Value>) -> bool {
    let all = part.get("dependencies").and_then(Value::as_object);
    let mut all = all.into_iter().flat_map(Map::values);
    all.any(Value::is_object)
}

/// Members that a schema names outside of branches.
fn own(part: &Map<String, Value>) -> KnownMembers {
    let members = |keyword| part.get(keyword).and_then(Value::as_object);
    let keys = |members: &Map<String, Value>| -> Map<String, Value> {
        let keys = members.keys().map(|key| (key.clone(), Value::Bool(true)));
        keys.collect()
    };
    let mut names = members("properties").map(keys).unwrap_or_default();
    let least = part.get("minProperties").and_then(Value::as_u64);
    let is_said = DECIDING
        .into_iter()
        .any(|keyword| part.contains_key(keyword));
    let is_said = is_said || has_dependent_schema(part);
    let is_said = is_said || least.is_some_and(|least| least > names.len() as u64);
    let required = part.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        names.entry(name).or_insert(Value::Bool(true));
    }
    KnownMembers {
        names,
        patterns: members("patternProperties").map(keys).unwrap_or_default(),
        parts: usize::from(part.contains_key("properties")),
        is_said,
    }
}
