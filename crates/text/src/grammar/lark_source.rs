//! Checks of a caller's Lark grammar before compilation: depth, and embedded schemas.

use super::error::GrammarError;
use super::json_schema::BoundedSchema;
use super::schema_numbers;
use serde_json::Value;

/// Nesting of brackets in a grammar, including brackets in strings.
pub const LARK_DEPTH_MAX: usize = 1000;
/// Keyword before an embedded schema.
const SCHEMA_MARK: &str = "%json";

/// Rejects a grammar that is nested too deeply or contains a schema that would be rejected alone.
pub(super) fn check(lark: &str) -> Result<(), GrammarError> {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in lark.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > LARK_DEPTH_MAX {
        return Err(GrammarError::whole(format!(
            "has brackets nested {deepest} deep; at most {LARK_DEPTH_MAX} (LARK_DEPTH_MAX) are accepted"
        )));
    }
    for (at, _) in lark.match_indices(SCHEMA_MARK) {
        let after = &lark[at + SCHEMA_MARK.len()..];
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        // llguidance rejects other text after the keyword, or the keyword is inside a string.
        if let Some(Ok(schema @ Value::Object(_))) = values.next() {
            BoundedSchema::read(&schema).map_err(|error| {
                let line = lark[..at].lines().count().max(1);
                GrammarError::whole(format!("line {line}: the schema after %json: {error}"))
            })?;
            // llguidance reads the text as it is.
            if let Some(why) = schema_numbers::out_of_range(&schema) {
                return Err(GrammarError::whole(format!("a schema after %json {why}")));
            }
        }
    }
    Ok(())
}
