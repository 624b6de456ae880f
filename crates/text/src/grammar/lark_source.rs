//! Lark grammars before compilation: a caller's is checked (depth, embedded schemas), and embedded schemas get exact numbers.

use super::error::GrammarError;
use super::json_schema::BoundedSchema;
use super::number_lexemes::{NumberRules, NumberedGrammar};
use super::schema_numbers::make_all_exact;
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value};

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
        }
    }
    Ok(())
}

/// The grammar with the embedded schemas as `made` makes them and their numbers in exact forms; llguidance reads everything else as
/// it is.
pub(super) fn numbered(
    lark: &str,
    made: impl Fn(Map<String, Value>) -> Result<Map<String, Value>, GrammarError>,
) -> Result<NumberedGrammar, GrammarError> {
    let (mut places, mut schemas, mut end) = (Vec::new(), Vec::new(), 0);
    for (at, _) in lark.match_indices(SCHEMA_MARK) {
        let start = at + SCHEMA_MARK.len();
        if at < end {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&lark[start..]).into_iter::<Value>();
        if let Some(Ok(Value::Object(schema))) = values.next() {
            end = start + values.byte_offset();
            let mut schema = made(schema)?;
            make_all_exact(&mut schema);
            places.push(start..end);
            schemas.push(Value::Object(schema));
        }
    }
    let numbers = NumberRules::of(&mut schemas)?.embedded();
    let (mut exact, mut copied) = (String::new(), 0);
    for (place, schema) in places.into_iter().zip(&schemas) {
        exact.push_str(&lark[copied..place.start]);
        exact.push(' ');
        exact.push_str(&schema.to_string());
        copied = place.end;
    }
    exact.push_str(&lark[copied..]);
    Ok(NumberedGrammar {
        grammar: TopLevelGrammar::from_lark(exact),
        numbers,
    })
}
