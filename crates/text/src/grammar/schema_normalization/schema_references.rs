//! References with escapes: JSON Pointer's `~0` and `~1`, and percent-encoding.
//!
//! Readers of `$ref` take the text between slashes as it is. A reference with escapes therefore leads to a copy of the target, in
//! `$defs` under a name without escapes. Targets may refer to each other: each is copied once.

use crate::grammar::schema_parts::visit_parts;
use serde_json::{Map, Value, json};

/// Prefix of the names in `$defs` of targets that are reached with escapes.
const TARGET: &str = "millrace-target-";

/// The target of a reference within the schema.
pub(in crate::grammar) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = decoded(reference.strip_prefix('#')?)?;
    root.pointer(&pointer)
}

/// The schema without escapes in references. References without a target stay as written, and are rejected later.
pub(super) fn plain(mut root: Map<String, Value>) -> Map<String, Value> {
    let mut references = EscapedReferences {
        root: Value::Object(root.clone()),
        known: Vec::new(),
    };
    references.redirect(&mut root);
    let mut copies = Map::new();
    // A copy may have further references.
    while let Some(pointer) = references.known.get(copies.len()).cloned() {
        let mut copy = references
            .root
            .pointer(&pointer)
            .cloned()
            .unwrap_or_default();
        if let Some(copy) = copy.as_object_mut() {
            references.redirect(copy);
        }
        copies.insert(format!("{TARGET}{}", copies.len()), copy);
    }
    if !copies.is_empty() {
        let kept = root.entry("$defs").or_insert_with(|| json!({}));
        if let Some(kept) = kept.as_object_mut() {
            kept.extend(copies);
        }
    }
    root
}

struct EscapedReferences {
    root: Value,
    /// Places that references with escapes lead to, in the order of their copies.
    known: Vec<String>,
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
        let at = self.known.iter().position(|known| *known == pointer);
        let at = at.unwrap_or_else(|| {
            self.known.push(pointer);
            self.known.len() - 1
        });
        Some(format!("#/$defs/{TARGET}{at}"))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_with_escapes_lead_to_copies() {
        let schema = json!({
            "$defs": {"a/b": {"items": {"$ref": "#/$defs/x%20~0y"}}, "x ~y": {"$ref": "#/$defs/a~1b"}, "é": {}},
            "properties": {"p": {"$ref": "#/$defs/a~1b"}, "q": {"$ref": "#/$defs/%C3%A9"}, "r": {"$ref": "#/$defs/no~1"}},
        });
        let ours = Value::Object(plain(schema.as_object().cloned().expect("an object")));
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
}
