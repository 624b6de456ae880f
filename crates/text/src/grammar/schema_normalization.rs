//! Normalization of a client's schema, before anything else reads the schema: spellings that llguidance and this crate's other
//! modules do not read become equal ones that they do.
//!
//! - `pattern` and the names of `patternProperties`, which are regular expressions of ECMA-262, are written in Rust's syntax
//!   ([`ecma_pattern`]);
//! - references by name (`#name`, `other.json`) become references by place ([`by_place`]);
//! - references with escapes (`~1`, `~0`, `%20`) lead to places without escapes ([`plain`]);
//! - counts that are written as floats, `1000.0`, are integers.
//!
//! A part with an `$id` is a resource of its own: references in it start from it. Many schemas write an `$id` and mean the whole
//! schema nevertheless: a reference `#/...` that leads nowhere in the resource stays as written.
//!
//! Readers of `$ref` take the text between slashes as it is. A reference with escapes therefore leads to a copy of the target, in
//! `$defs` under a name without escapes. Targets may refer to each other: each is copied once. A target within another one is copied
//! with both, so all copies together are bounded.

mod ecma_pattern;

use super::error::GrammarError;
use super::json_schema::SCHEMA_PLACES_MAX;
use super::schema_size::{OF_DATA, OF_NAMED, values_in, visit_parts};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Keywords that count something.
const COUNTS: [&str; 8] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];

/// The normalized schema.
///
/// # Errors
/// References with escapes lead to parts that are too large to copy.
pub(super) fn normalized(root: &Map<String, Value>) -> Result<Map<String, Value>, GrammarError> {
    plain(by_place(schema(root)))
}

fn schema(entries: &Map<String, Value>) -> Map<String, Value> {
    let entries = entries.iter();
    let normalized = entries.map(|(keyword, value)| (keyword.clone(), parts(keyword, value)));
    normalized.collect()
}

fn part(value: &Value) -> Value {
    match value {
        Value::Object(entries) => Value::Object(schema(entries)),
        Value::Array(list) => list.iter().map(part).collect(),
        other => other.clone(),
    }
}

/// The value of a keyword. A reference may lead to a schema below any keyword, except data.
fn parts(keyword: &str, value: &Value) -> Value {
    match value {
        value if OF_DATA.contains(&keyword) => value.clone(),
        Value::Object(named) if OF_NAMED.contains(&keyword) => {
            let named = named.iter().map(|(name, value)| match keyword {
                "patternProperties" => (ecma_pattern::in_rust(name), part(value)),
                _ => (name.clone(), part(value)),
            });
            Value::Object(named.collect())
        }
        Value::String(pattern) if keyword == "pattern" => ecma_pattern::in_rust(pattern).into(),
        Value::Number(_) if COUNTS.contains(&keyword) => whole(value),
        value => part(value),
    }
}

/// The longest text or list that the library can count.
const COUNT_MAX: u64 = u32::MAX as u64;

/// A count as an integer, at most [`COUNT_MAX`].
fn whole(value: &Value) -> Value {
    match value.as_f64() {
        Some(count) if count >= 0.0 && count.fract() == 0.0 => {
            json!((count as u64).min(COUNT_MAX))
        }
        _ => value.clone(),
    }
}

/// Longest path of a named part, in bytes: the path replaces every reference to the part. Parts at longer paths have no name.
const PATH_BYTES_MAX: usize = 512;

/// Keywords that name the part in which they are.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// The schema with references by place.
fn by_place(mut root: Map<String, Value>) -> Map<String, Value> {
    let mut parts = NamedParts {
        root: Value::Object(root.clone()),
        resources: HashMap::new(),
        anchors: HashMap::new(),
    };
    let base = base_of(&root, "");
    parts.resources.insert(base.clone(), String::new());
    parts.collect(&root, "", &base);
    parts.redirect(&mut root, &base);
    root
}

/// Parts that have names, each with the JSON Pointer of its place.
struct NamedParts {
    root: Value,
    /// By absolute URI.
    resources: HashMap<String, String>,
    /// By the URI of the resource, and the name.
    anchors: HashMap<(String, String), String>,
}

impl NamedParts {
    fn collect(&mut self, schema: &Map<String, Value>, place: &str, base: &str) {
        if place.len() > PATH_BYTES_MAX {
            return;
        }
        let own = base_of(schema, base);
        if own != base {
            self.resources.insert(own.clone(), place.to_owned());
        }
        let of_id = text_of(schema, "$id").and_then(|id| Some(id.split_once('#')?.1));
        let anchors = ANCHORS.iter().filter_map(|anchor| text_of(schema, anchor));
        for name in anchors.chain(of_id).filter(|name| !name.is_empty()) {
            let named = (own.clone(), name.to_owned());
            self.anchors
                .entry(named)
                .or_insert_with(|| place.to_owned());
        }
        for (keyword, value) in schema {
            let place = format!("{place}/{}", escaped(keyword));
            match value {
                _ if OF_DATA.contains(&keyword.as_str()) => {}
                Value::Object(named) if OF_NAMED.contains(&keyword.as_str()) => {
                    for (name, part) in named {
                        self.collect_value(part, &format!("{place}/{}", escaped(name)), &own);
                    }
                }
                Value::Array(list) => {
                    for (at, part) in list.iter().enumerate() {
                        self.collect_value(part, &format!("{place}/{at}"), &own);
                    }
                }
                part => self.collect_value(part, &place, &own),
            }
        }
    }

    fn collect_value(&mut self, part: &Value, place: &str, base: &str) {
        if let Value::Object(part) = part {
            self.collect(part, place, base);
        }
    }

    fn redirect(&self, schema: &mut Map<String, Value>, base: &str) {
        let own = base_of(schema, base);
        if let Some(Value::String(reference)) = schema.get_mut("$ref")
            && let Some(place) = self.place(reference, &own)
        {
            *reference = format!("#{}", place.replace('%', "%25"));
        }
        visit_parts(schema, &mut |part| self.redirect(part, &own));
    }

    /// The place that a reference leads to; `None` for a reference that stays as written.
    fn place(&self, reference: &str, base: &str) -> Option<String> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if uri.is_empty() {
            base.to_owned()
        } else {
            resolved(uri, base)
        };
        let within = self.resources.get(&resource)?;
        if fragment.is_empty() {
            return Some(within.clone());
        }
        if !fragment.starts_with('/') {
            return self.anchors.get(&(resource, fragment.to_owned())).cloned();
        }
        if within.is_empty() && uri.is_empty() {
            return None;
        }
        let place = format!("{within}{}", decoded(fragment)?);
        let is_there = self.root.pointer(&place).is_some();
        is_there.then_some(place)
    }
}

fn text_of<'s>(schema: &'s Map<String, Value>, keyword: &str) -> Option<&'s str> {
    schema.get(keyword).and_then(Value::as_str)
}

/// The URI of the resource that a part belongs to, without a fragment.
fn base_of(schema: &Map<String, Value>, base: &str) -> String {
    let id = text_of(schema, "$id").unwrap_or_default();
    match id.split('#').next() {
        None | Some("") => base.to_owned(),
        Some(uri) => resolved(uri, base),
    }
}

/// A URI relative to another one.
fn resolved(uri: &str, base: &str) -> String {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_absolute = !scheme.is_empty()
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    if is_absolute {
        return uri.to_owned();
    }
    // Where the path of the base begins.
    let path = base.find("://").map_or(0, |at| {
        let host = &base[at + 3..];
        at + 3 + host.find('/').unwrap_or(host.len())
    });
    let kept = if uri.starts_with('/') {
        path
    } else {
        base.rfind('/').map_or(0, |at| at + 1).max(path)
    };
    let uri = uri.trim_start_matches("./");
    let slash = if kept == path && path > 0 && !uri.starts_with('/') {
        "/"
    } else {
        ""
    };
    format!("{}{slash}{uri}", &base[..kept])
}

/// A name as a step of a JSON Pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A text without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%');
        let code = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        match code {
            Some(code) => {
                out.push(code);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(out).ok()
}

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
fn plain(mut root: Map<String, Value>) -> Result<Map<String, Value>, GrammarError> {
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
        places += target.map_or(0, values_in);
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
    use serde_json::json;

    #[test]
    fn counts_are_integers() {
        for (count, expected) in [
            (json!(1000.0), json!(1000)),
            (json!(1000.5), json!(1000.5)),
            (json!(-1.0), json!(-1.0)),
            (json!(7), json!(7)),
            (json!(u64::MAX), json!(COUNT_MAX)),
            (json!(9_007_199_254_740_991_u64), json!(COUNT_MAX)),
            (json!(1e300), json!(COUNT_MAX)),
        ] {
            let schema = json!({"items": [{"maxLength": count}]});
            let ours = normalized(schema.as_object().expect("an object")).expect("few copies");
            assert_eq!(
                ours["items"][0]["maxLength"], expected,
                "{count} becomes {expected}"
            );
        }
    }

    #[test]
    fn data_and_names_stay_as_written() {
        let schema = json!({
            "const": {"pattern": "[^]", "maxLength": 3.0}, "default": {"$ref": "#/$defs/a~1b"},
            "properties": {"pattern": {"const": "[^]"}, "maxLength": true, "$ref": {"type": "null"}},
        });
        let ours = normalized(schema.as_object().expect("an object")).expect("few copies");
        assert_eq!(Value::Object(ours), schema);
    }

    #[test]
    fn references_by_name_become_places() {
        for (label, schema, reference, want) in [
            (
                "an anchor",
                json!({"$defs": {"a/b%": {"$anchor": "one"}}}),
                "#one",
                "#/$defs/a~1b%25",
            ),
            (
                "an id of a fragment",
                json!({"definitions": {"a": {"$id": "#one"}}}),
                "#one",
                "#/definitions/a",
            ),
            (
                "a file",
                json!({"$defs": {"a": {"$id": "other.json"}}}),
                "other.json",
                "#/$defs/a",
            ),
            (
                "a place in a file",
                json!({"$id": "https://x.org/s/root.json", "$defs": {"a": {"$id": "other.json", "$defs": {"b": {}}}}}),
                "other.json#/$defs/b",
                "#/$defs/a/$defs/b",
            ),
            (
                "an anchor in a file",
                json!({"$id": "https://x.org/root.json", "$defs": {"a": {"$id": "/y/o.json", "items": {"$anchor": "n"}}}}),
                "https://x.org/y/o.json#n",
                "#/$defs/a/items",
            ),
            (
                "the schema itself",
                json!({"$id": "https://x.org/root.json"}),
                "root.json",
                "#",
            ),
            (
                "a place",
                json!({"$defs": {"a": {}}}),
                "#/$defs/a",
                "#/$defs/a",
            ),
            ("nowhere", json!({}), "#none", "#none"),
            ("another file", json!({"$id": "a.json"}), "b.json", "b.json"),
            (
                "data",
                json!({"const": {"$anchor": "one"}, "properties": {"$anchor": {"const": "x"}}}),
                "#one",
                "#one",
            ),
        ] {
            let mut schema = schema.as_object().cloned().expect("an object");
            schema.insert("not".to_owned(), json!({"$ref": reference}));
            assert_eq!(by_place(schema)["not"]["$ref"], want, "{label}");
        }
    }

    #[test]
    fn references_in_a_resource_start_from_it() {
        let schema = json!({
            "$defs": {
                "a": {"$id": "a.json", "items": {"$ref": "#/$defs/b"}, "not": {"$ref": "#/$defs/c"}, "if": {"$ref": "#"},
                    "$defs": {"b": {}}},
                "c": {},
            },
        });
        let ours = Value::Object(by_place(schema.as_object().cloned().expect("an object")));
        let a = &ours["$defs"]["a"];
        assert_eq!(a["items"]["$ref"], "#/$defs/a/$defs/b");
        assert_eq!(
            a["not"]["$ref"], "#/$defs/c",
            "it is only in the whole schema"
        );
        assert_eq!(a["if"]["$ref"], "#/$defs/a");
    }

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
