//! References by name: `$anchor`, and `$id` of parts. They become references by place, `#/...`, which all readers of `$ref` take.
//!
//! A part with an `$id` is a resource of its own: references in it start from it. Many schemas write an `$id` and mean the whole
//! schema nevertheless: a reference `#/...` that leads nowhere in the resource stays as written.

use crate::grammar::schema_parts::{OF_DATA, OF_NAMED, visit_parts};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Longest path of a named part, in bytes: the path replaces every reference to the part. Parts at longer paths have no name.
const PATH_BYTES_MAX: usize = 512;

/// Keywords that name the part in which they are.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// The schema with references by place.
pub(super) fn by_place(mut root: Map<String, Value>) -> Map<String, Value> {
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
pub(super) fn decoded(text: &str) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
}
