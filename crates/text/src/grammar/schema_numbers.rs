//! Numbers of a schema within what llguidance computes with: i64, from bounds that were rounded to f64.
//!
//! llguidance negates and subtracts bounds as i64 and calls itself with the result, so that -2^63 never ends. Bounds beyond
//! [`SCHEMA_INTEGER_MAX`] are moved inward, which loses a few values that no answer needs and allows none that
//! the schema forbids; numbers that would become others are rejected.

use super::error::GrammarError;
use super::schema_parts::{is_of_schemas, parts, path};
use serde_json::{Map, Number, Value, json};

/// The greatest magnitude of a bound, or of an integer constant: below 2^63, and exact as f64.
pub(super) const SCHEMA_INTEGER_MAX: i64 = 9_200_000_000_000_000_000;
/// Integers up to this magnitude are exact as f64.
const EXACT_MAX: i64 = 1 << 53;
/// Bounds below this magnitude may stand alone: numbers of 18 digits.
const OPEN_BOUND_MAX: f64 = 1e18;
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

/// Rejects a schema with a number that llguidance would change, with the path.
pub(super) fn check(root: &Map<String, Value>) -> Result<(), GrammarError> {
    check_part(root, &mut Vec::new())
}

fn check_part(schema: &Map<String, Value>, place: &mut Vec<String>) -> Result<(), GrammarError> {
    for (keyword, value) in schema {
        let wrong = match keyword.as_str() {
            "minimum" | "exclusiveMinimum" => unreachable_bound(value, 1.0),
            "maximum" | "exclusiveMaximum" => unreachable_bound(value, -1.0),
            "const" | "enum" => inexact_constant(value),
            "default" | "examples" => None,
            // A reference may lead to a schema below any keyword; `within_range` does not.
            other if !is_of_schemas(other) => out_of_range(value),
            _ => None,
        };
        if let Some(why) = wrong {
            place.push(keyword.clone());
            return Err(GrammarError {
                place: path(place),
                why,
            });
        }
    }
    for (step, part) in parts(schema) {
        if let Value::Object(part) = part {
            place.push(step);
            check_part(part, place)?;
            place.pop();
        }
    }
    Ok(())
}

/// A number below a keyword of bounds or constants, at any depth, that llguidance must not get as it is.
///
/// The last check, for the schema as compiled: a reference may lead below any keyword (`default`, a constant), and rewriting
/// turns the bounds in a `not` around, so that neither [`check`] nor [`within_range`] has seen every bound. No number
/// beyond [`SCHEMA_INTEGER_MAX`] passes that llguidance converts to an integer.
pub(super) fn out_of_range(schema: &Value) -> Option<String> {
    first_out_of_range(schema, has_integers(schema))
}

fn first_out_of_range(value: &Value, has_integers: bool) -> Option<String> {
    match value {
        Value::Array(values) => values
            .iter()
            .find_map(|value| first_out_of_range(value, has_integers)),
        Value::Object(entries) => entries.iter().find_map(|(keyword, value)| {
            let wrong = match keyword.as_str() {
                "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum" => {
                    unreachable_bound(value, 1.0).or_else(|| unreachable_bound(value, -1.0))
                }
                "const" | "enum" => inexact_constant(value).or_else(|| {
                    if has_integers {
                        large_float(value)
                    } else {
                        None
                    }
                }),
                _ => None,
            };
            wrong
                .map(|why| format!("has {keyword} that {why}"))
                .or_else(|| first_out_of_range(value, has_integers))
        }),
        _ => None,
    }
}

/// Whether any part has the type `integer`: a constant that meets it becomes an integer, also through `allOf` and `$ref`.
fn has_integers(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(has_integers),
        Value::Object(entries) => entries.iter().any(|(keyword, value)| {
            let is_integer = |kind: &Value| kind == "integer";
            let is_type = keyword == "type"
                && (is_integer(value)
                    || value
                        .as_array()
                        .is_some_and(|kinds| kinds.iter().any(is_integer)));
            is_type || has_integers(value)
        }),
        _ => false,
    }
}

/// A float beyond the range, at any depth of a constant.
fn large_float(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let float = number.as_f64()?;
            (float.abs() > SCHEMA_INTEGER_MAX as f64).then(|| {
                format!(
                    "has the number {float:e}; at most {SCHEMA_INTEGER_MAX} (SCHEMA_INTEGER_MAX) is accepted in a schema with integers"
                )
            })
        }
        Value::Array(values) => values.iter().find_map(large_float),
        Value::Object(entries) => entries.values().find_map(large_float),
        _ => None,
    }
}

/// A lower (`sign` 1) or upper (-1) bound that leaves only numbers beyond the greatest magnitude.
fn unreachable_bound(bound: &Value, sign: f64) -> Option<String> {
    let bound = bound.as_f64()?;
    (bound * sign > SCHEMA_INTEGER_MAX as f64).then(|| {
        format!("is {bound:e}; numbers between -{SCHEMA_INTEGER_MAX} and {SCHEMA_INTEGER_MAX} (SCHEMA_INTEGER_MAX) are generated")
    })
}

/// An integer that is another one as f64, at any depth of a constant.
fn inexact_constant(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if !is_exact(number) => Some(format!(
            "has the integer {number}; integers beyond 2^53 must be exact as a 64-bit float, and at most {SCHEMA_INTEGER_MAX} \
             (SCHEMA_INTEGER_MAX)"
        )),
        Value::Array(values) => values.iter().find_map(inexact_constant),
        Value::Object(entries) => entries.values().find_map(inexact_constant),
        _ => None,
    }
}

fn is_exact(number: &Number) -> bool {
    if let Some(integer) = number.as_i64() {
        return integer.unsigned_abs() <= EXACT_MAX as u64
            || (integer.unsigned_abs() <= SCHEMA_INTEGER_MAX as u64
                && integer as f64 as i128 == i128::from(integer));
    }
    // An integer beyond i64, or a float.
    !number.is_u64()
}

/// The value of this keyword as compiled.
pub(super) fn within_range(keyword: &str, value: Value) -> Value {
    match keyword {
        "minimum" => lower_bound(value, false),
        "exclusiveMinimum" => lower_bound(value, true),
        "maximum" => upper_bound(value, false),
        "exclusiveMaximum" => upper_bound(value, true),
        _ if COUNTS.contains(&keyword) => whole(value),
        _ => value,
    }
}

/// Adds the other bound where one bound has 19 digits: llguidance computes with the next power of ten.
pub(super) fn close_range(schema: &mut Map<String, Value>) {
    let bound = |keywords: [&str; 2]| {
        let mut values = keywords.iter().filter_map(|keyword| schema.get(*keyword));
        values.find_map(Value::as_f64)
    };
    let low = bound(["minimum", "exclusiveMinimum"]);
    let high = bound(["maximum", "exclusiveMaximum"]);
    let most = SCHEMA_INTEGER_MAX as f64;
    match (low, high) {
        (Some(low), None) if low >= OPEN_BOUND_MAX => {
            schema.insert("maximum".to_owned(), json!(most));
        }
        (None, Some(high)) if high <= -OPEN_BOUND_MAX => {
            schema.insert("minimum".to_owned(), json!(-most));
        }
        _ => {}
    }
}

fn lower_bound(value: Value, is_exclusive: bool) -> Value {
    let Some(bound) = large(&value) else {
        return value;
    };
    let rounded = bound as f64;
    let inward = if is_exclusive || (rounded as i128) < bound {
        rounded.next_up()
    } else {
        rounded
    };
    json!(inward.max(-(SCHEMA_INTEGER_MAX as f64)))
}

fn upper_bound(value: Value, is_exclusive: bool) -> Value {
    let Some(bound) = large(&value) else {
        return value;
    };
    let rounded = bound as f64;
    let inward = if is_exclusive || (rounded as i128) > bound {
        rounded.next_down()
    } else {
        rounded
    };
    json!(inward.min(SCHEMA_INTEGER_MAX as f64))
}

/// A bound that is not exact as f64, or that may be beyond the range. Floats beyond i128 saturate.
fn large(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    let bound = number.as_i128().or_else(|| {
        let float = number.as_f64()?;
        Some(float as i128)
    })?;
    (bound.unsigned_abs() >= EXACT_MAX as u128).then_some(bound)
}

/// A count that is written as a float, `1000.0`, as the integer that it is.
fn whole(value: Value) -> Value {
    match value.as_f64() {
        Some(count)
            if value.is_f64()
                && count.fract() == 0.0
                && (0.0..=EXACT_MAX as f64).contains(&count) =>
        {
            json!(count as u64)
        }
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_beyond_the_range_are_moved_inward() {
        let most = SCHEMA_INTEGER_MAX as f64;
        let rows = [
            ("minimum", json!(5), json!(5)),
            ("minimum", json!(0.25), json!(0.25)),
            ("minimum", json!(i64::MIN), json!(-most)),
            ("minimum", json!(-1e19), json!(-most)),
            ("exclusiveMinimum", json!(-1e308), json!(-most)),
            ("maximum", json!(i64::MAX), json!(most)),
            ("maximum", json!(u64::MAX), json!(most)),
            (
                "exclusiveMaximum",
                json!(1.7976931348623157e308),
                json!(most),
            ),
            // 2^53 + 1 lies between two f64.
            (
                "minimum",
                json!(9_007_199_254_740_993_i64),
                json!(9_007_199_254_740_994.0),
            ),
            (
                "maximum",
                json!(9_007_199_254_740_993_i64),
                json!(9_007_199_254_740_992.0),
            ),
            (
                "exclusiveMinimum",
                json!(1_i64 << 60),
                json!((1_i64 << 60) as f64 + 256.0),
            ),
            ("exclusiveMaximum", json!(true), json!(true)),
            ("maxLength", json!(1000.0), json!(1000)),
            ("maxLength", json!(1000.5), json!(1000.5)),
        ];
        for (keyword, value, expected) in rows {
            assert_eq!(
                within_range(keyword, value.clone()),
                expected,
                "{keyword}: {value}"
            );
        }
    }

    #[test]
    fn numbers_that_would_become_others_are_rejected_with_path() {
        let rows = [
            (json!({"const": i64::MIN}), "const"),
            (json!({"enum": [1, {"a": [u64::MAX]}]}), "enum"),
            (json!({"const": 1_234_567_890_123_456_789_i64}), "const"),
            (
                json!({"properties": {"a": {"minimum": 1e19}}}),
                "properties.a.minimum",
            ),
            (
                json!({"anyOf": [{}, {"exclusiveMaximum": -1e300}]}),
                "anyOf[1].exclusiveMaximum",
            ),
            (
                json!({"$ref": "#/components/a", "components": {"a": {"minimum": i64::MIN}}}),
                "components",
            ),
            (
                json!({"$ref": "#/x/0", "x": [{"items": {"const": i64::MIN}}]}),
                "x",
            ),
        ];
        for (schema, place) in rows {
            let error = check(schema.as_object().expect("an object"));
            assert_eq!(error.expect_err(place).place, place, "{schema}");
        }
        let kept = json!({"const": 1_i64 << 60, "enum": [0.1, 1e300, -9_007_199_254_740_992_i64],
            "minimum": i64::MIN, "default": {"const": i64::MIN}, "maximum": 1e308});
        assert!(check(kept.as_object().expect("an object")).is_ok());
    }

    #[test]
    fn numbers_that_a_reference_or_a_rewriting_reaches_are_found() {
        let hidden = json!({"type": "integer", "minimum": -1e19});
        for schema in [
            json!({"type": "integer", "const": -1e19}),
            json!({"allOf": [{"type": ["null", "integer"]}, {"enum": [1, {"a": -1e30}]}]}),
            json!({"$ref": "#/default", "default": hidden}),
            json!({"$ref": "#/examples/0", "examples": [hidden]}),
            json!({"$ref": "#/$defs/a/enum/0", "$defs": {"a": {"enum": [hidden]}}}),
            json!({"$ref": "#/$defs/a/const", "$defs": {"a": {"const": hidden}}}),
            json!({"type": "integer", "exclusiveMaximum": -1e19}),
        ] {
            assert!(out_of_range(&schema).is_some(), "{schema}");
        }
        for schema in [
            json!({"type": "number", "enum": [-1e300, 0.5]}),
            json!({"type": "integer", "minimum": -(SCHEMA_INTEGER_MAX as f64), "maximum": SCHEMA_INTEGER_MAX as f64}),
            json!({"properties": {"minimum": {"type": "integer"}}}),
        ] {
            assert_eq!(out_of_range(&schema), None, "{schema}");
        }
    }
}
