//! Numbers of a schema in the forms that llguidance computes with exactly.
//!
//! llguidance holds bounds as f64, and multiples as a 32-bit coefficient that a loop finds by multiplying with ten.
//!
//! - An exclusive bound becomes the inclusive bound of the next number where llguidance would allow it: a whole bound, on its side
//!   towards zero, together with a bound with the same whole part; and for integers. Other exclusive bounds stay: the next number has many
//!   digits, and below such a bound llguidance refuses shorter numbers.
//! - A bound nearer to zero than [`LEAST_FRACTION`] is moved inward.
//! - `multipleOf` becomes a neighbor in f64 from which the loop finds the decimal as written.
//!
//! Integers beyond [`EXACT_INTEGER_MAX`] are the subject of [`large_numbers`](super::large_numbers).
//!
//! Values of `multipleOf` that apply to one number together: llguidance computes their least common multiple in 32 bits.
//!
//! Multiples meet only where several constraints of one part have some: those of its plain keywords, of each part of `allOf`, of
//! `anyOf`, of the target of `$ref`, and so on. Multiples in different properties never meet, but within constraints that do, all
//! are taken together.

#[cfg(test)]
mod tests;

use super::error::GrammarError;
use super::schema_normalization::target;
use super::schema_size::{OF_DATA, OF_NAMED, SCHEMA_COPIES_MAX, path, visit_parts};
use serde_json::{Map, Number, Value, json};
use std::collections::HashSet;

/// Integers up to this magnitude are exact as f64.
pub(super) const EXACT_INTEGER_MAX: i64 = 1 << 53;
/// The greatest magnitude that a number may be required to exceed: numbers of 37 digits are generated.
pub const SCHEMA_NUMBER_MAX: f64 = 1e37;
/// The least distance of a bound from zero, unless the bound is zero: a fraction of 30 digits.
const LEAST_FRACTION: f64 = 1e-30;
/// Digits after the point of a `multipleOf`.
pub const MULTIPLE_DIGITS_MAX: u32 = 8;
/// Decimal digits that every f64 keeps.
const EXACT_DIGITS: usize = 15;
/// Neighbors in f64 among which the loop's exact start is searched.
const NEIGHBORS: usize = 16;
/// A number of a schema by its value: the greatest integer below, and the rest. Floats beyond i128 saturate, and are the rest.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct ExactNumber {
    integer: i128,
    rest: f64,
}

impl ExactNumber {
    pub(super) fn of(number: &Number) -> Option<Self> {
        if let Some(integer) = number.as_i128() {
            return Some(Self { integer, rest: 0.0 });
        }
        let float = number.as_f64()?;
        let floor = float.floor();
        let is_saturated = floor.abs() >= i128::MAX as f64;
        Some(Self {
            integer: floor as i128,
            rest: if is_saturated { float } else { float - floor },
        })
    }
}

/// Which side of the numbers a bound leaves out.
#[derive(Clone, Copy, PartialEq)]
enum BoundSide {
    Below,
    Above,
}

/// Rejects a schema with a number that has no exact form, with the path.
pub(super) fn check(root: &Map<String, Value>) -> Result<(), GrammarError> {
    let mut multiples = Vec::new();
    check_part(root, &mut Vec::new(), &mut multiples)?;
    if Multiple::product_fits(&multiples) {
        Ok(())
    } else {
        check_multiples(root)
    }
}

fn check_part(
    schema: &Map<String, Value>,
    place: &mut Vec<String>,
    multiples: &mut Vec<Multiple>,
) -> Result<(), GrammarError> {
    for (keyword, value) in schema {
        let wrong = match (keyword.as_str(), value) {
            ("minimum" | "exclusiveMinimum", Value::Number(bound)) => {
                unreachable(bound, 1.0).or_else(|| rounded(value))
            }
            ("maximum" | "exclusiveMaximum", Value::Number(bound)) => {
                unreachable(bound, -1.0).or_else(|| rounded(value))
            }
            ("const" | "enum", value) => rounded(value),
            ("multipleOf", Value::Number(number)) => match Multiple::of(number) {
                Some(multiple) => {
                    multiples.push(multiple);
                    None
                }
                None => Some(format!(
                    "is {number}; a multiple is above 0, has at most {MULTIPLE_DIGITS_MAX} digits after the point \
                     (MULTIPLE_DIGITS_MAX), and at most 8 digits in all"
                )),
            },
            _ => None,
        };
        place.push(keyword.clone());
        if let Some(why) = wrong {
            return Err(GrammarError {
                place: path(place),
                why,
            });
        }
        if !OF_DATA.contains(&keyword.as_str()) {
            check_value(
                value,
                OF_NAMED.contains(&keyword.as_str()),
                place,
                multiples,
            )?;
        }
        place.pop();
    }
    Ok(())
}

/// Checks the schemas of a value; a reference may lead to a schema below any keyword.
fn check_value(
    value: &Value,
    is_named: bool,
    place: &mut Vec<String>,
    multiples: &mut Vec<Multiple>,
) -> Result<(), GrammarError> {
    match value {
        Value::Object(named) if is_named => {
            for (name, part) in named {
                place.push(name.clone());
                check_value(part, false, place, multiples)?;
                place.pop();
            }
            Ok(())
        }
        Value::Object(part) => check_part(part, place, multiples),
        Value::Array(parts) => {
            let keyword = place.pop().unwrap_or_default();
            for (at, part) in parts.iter().enumerate() {
                place.push(format!("{keyword}[{at}]"));
                check_value(part, false, place, multiples)?;
                place.pop();
            }
            place.push(keyword);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A lower (`sign` 1) or upper (-1) bound that leaves only numbers beyond the greatest magnitude.
fn unreachable(bound: &Number, sign: f64) -> Option<String> {
    let bound = bound.as_f64()?;
    (bound * sign >= SCHEMA_NUMBER_MAX).then(|| {
        format!("is {bound:e}; numbers between -{SCHEMA_NUMBER_MAX:e} and {SCHEMA_NUMBER_MAX:e} (SCHEMA_NUMBER_MAX) are generated")
    })
}

/// A whole number in a value that was most likely written with all its digits, of which an f64 holds only the first: beyond 64
/// bits, and of so many digits that no one writes it with a power of ten.
fn rounded(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64()?;
            let written = format!("{float:e}");
            let mantissa = written.split('e').next().unwrap_or_default();
            let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
            let most = if float < 0.0 {
                -(i64::MIN as f64)
            } else {
                u64::MAX as f64
            };
            let range = most..SCHEMA_NUMBER_MAX;
            (range.contains(&float.abs()) && digits > EXACT_DIGITS).then(|| {
                format!("is about {float:e}; integers beyond 64 bits are kept to {EXACT_DIGITS} digits only, so that this one would be rounded")
            })
        }
        Value::Array(items) => items.iter().find_map(rounded),
        Value::Object(entries) => entries.values().find_map(rounded),
        _ => None,
    }
}

/// The numbers of one part in exact forms.
fn make_exact(schema: &mut Map<String, Value>) {
    let is_integer = schema.get("type").is_some_and(|kind| kind == "integer");
    for (plain, exclusive, side) in [
        ("minimum", "exclusiveMinimum", BoundSide::Below),
        ("maximum", "exclusiveMaximum", BoundSide::Above),
    ] {
        let Some(bound) = inclusive(schema, [plain, exclusive], side, is_integer) else {
            continue;
        };
        if bound.replaces_exclusive {
            schema.shift_remove(exclusive);
        }
        schema.insert(plain.to_owned(), bound.number.into());
    }
    if let Some(multiple) = schema.get("multipleOf").and_then(Value::as_number) {
        let start = Multiple::of(multiple).and_then(|exact| exact.loop_start(multiple));
        if let Some(start) = start {
            schema.insert("multipleOf".to_owned(), json!(start));
        }
    }
}

/// The numbers of a schema and its parts in exact forms.
pub(super) fn make_all_exact(schema: &mut Map<String, Value>) {
    make_exact(schema);
    visit_parts(schema, &mut make_all_exact);
}

/// An inclusive bound.
struct InclusiveBound {
    number: Number,
    /// Whether the exclusive bound says nothing more.
    replaces_exclusive: bool,
}

/// The inclusive bound of two keywords; `None` if there is none, and for values that are none.
fn inclusive(
    schema: &Map<String, Value>,
    [plain, exclusive]: [&str; 2],
    side: BoundSide,
    is_integer: bool,
) -> Option<InclusiveBound> {
    let plain = schema.get(plain).and_then(Value::as_number);
    let (plain, beyond) = match schema.get(exclusive) {
        None | Some(Value::Bool(false)) => (plain, None),
        Some(Value::Bool(true)) => (None, plain),
        Some(Value::Number(beyond)) => (plain, Some(beyond)),
        Some(_) => return None,
    };
    let beyond = beyond.filter(|bound| is_replaced(bound, side, is_integer));
    let plain = plain.map(|bound| away_from_zero(bound.clone(), side));
    let beyond = beyond.map(|bound| away_from_zero(next(bound, side, is_integer), side));
    let replaces_exclusive = beyond.is_some();
    let number = match (plain, beyond) {
        (Some(a), Some(b)) => {
            let is_less = ExactNumber::of(&a)? < ExactNumber::of(&b)?;
            if is_less == (side == BoundSide::Below) {
                b
            } else {
                a
            }
        }
        (a, b) => a.or(b)?,
    };
    Some(InclusiveBound {
        number,
        replaces_exclusive,
    })
}

/// Whether an exclusive bound becomes an inclusive one.
fn is_replaced(bound: &Number, side: BoundSide, is_integer: bool) -> bool {
    let float = bound.as_f64().unwrap_or_default();
    let is_towards_zero = match side {
        BoundSide::Below => float >= 0.0,
        BoundSide::Above => float <= 0.0,
    };
    is_integer
        || float.abs() >= EXACT_INTEGER_MAX as f64
        || (is_towards_zero && (float.fract() == 0.0 || float.abs() < LEAST_FRACTION))
}

/// The number after an exclusive bound.
fn next(bound: &Number, side: BoundSide, is_integer: bool) -> Number {
    let float = bound.as_f64().unwrap_or_default();
    let is_exact = float.abs() < EXACT_INTEGER_MAX as f64;
    let integer = match side {
        BoundSide::Below if is_integer && is_exact => Some(float.floor() as i128 + 1),
        BoundSide::Above if is_integer && is_exact => Some(float.ceil() as i128 - 1),
        _ if is_exact => None,
        BoundSide::Below => bound.as_i128().map(|integer| integer + 1),
        BoundSide::Above => bound.as_i128().map(|integer| integer - 1),
    };
    let float = match side {
        BoundSide::Below => float.next_up(),
        BoundSide::Above => float.next_down(),
    };
    let integer = integer.and_then(Number::from_i128);
    integer
        .or_else(|| Number::from_f64(float))
        .unwrap_or_else(|| bound.clone())
}

/// The bound, or where it is too near to zero, the next one inward.
fn away_from_zero(bound: Number, side: BoundSide) -> Number {
    let float = bound.as_f64().unwrap_or_default();
    if !bound.is_f64() || float.abs() >= LEAST_FRACTION {
        return bound;
    }
    let inward = match side {
        BoundSide::Below if float > 0.0 => Number::from_f64(LEAST_FRACTION),
        BoundSide::Above if float < 0.0 => Number::from_f64(-LEAST_FRACTION),
        _ => None,
    };
    inward.unwrap_or_else(|| Number::from(0))
}

/// A `multipleOf` as a decimal: `coefficient` divided by ten to the power of `digits`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Multiple {
    coefficient: u64,
    digits: u32,
}

impl Multiple {
    /// The decimal as written, if llguidance can compute with it.
    pub(super) fn of(number: &Number) -> Option<Self> {
        let text = number.to_string();
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        let power = exponent.parse::<i64>().ok()? - fraction.len() as i64 + zeros as i64;
        let coefficient: u64 = digits.trim_end_matches('0').parse().ok()?;
        let scale = 10_u64.checked_pow(u32::try_from(power.max(0)).ok()?)?;
        let multiple = Self {
            coefficient: coefficient.checked_mul(scale)?,
            digits: u32::try_from(-power.min(0)).ok()?,
        };
        multiple.fits().then_some(multiple)
    }

    /// Whether a remainder and a further digit are within 32 bits.
    fn fits(self) -> bool {
        let digit = 9 * 10_u64.pow(self.digits.min(MULTIPLE_DIGITS_MAX));
        self.digits <= MULTIPLE_DIGITS_MAX
            && self.coefficient > 0
            && self.coefficient.saturating_mul(10).saturating_add(digit) <= u64::from(u32::MAX)
    }

    /// Whether llguidance can compute the least common multiple of any of these.
    fn product_fits(all: &[Self]) -> bool {
        let digits = all
            .iter()
            .map(|multiple| multiple.digits)
            .max()
            .unwrap_or(0);
        let (mut common, mut greatest) = (1u64, 1u64);
        for multiple in all {
            let coefficient = multiple
                .coefficient
                .saturating_mul(10_u64.pow(digits - multiple.digits));
            greatest = greatest.max(coefficient);
            common = (common / divisor(common, coefficient)).saturating_mul(coefficient);
        }
        let whole = Self {
            coefficient: common,
            digits,
        };
        whole.fits() && common.saturating_mul(greatest) <= u64::from(u32::MAX)
    }

    /// A number from which llguidance's loop finds this decimal: `number` or a neighbor.
    fn loop_start(self, number: &Number) -> Option<f64> {
        let (mut below, mut above) = (number.as_f64()?.abs(), number.as_f64()?.abs());
        for _ in 0..NEIGHBORS {
            if let Some(found) = [below, above]
                .into_iter()
                .find(|start| self.is_found(*start))
            {
                return Some(found);
            }
            (below, above) = (below.next_down(), above.next_up());
        }
        None
    }

    fn is_found(self, start: f64) -> bool {
        let (mut value, mut digits) = (start, 0);
        while value.fract() != 0.0 && digits <= self.digits {
            (value, digits) = (value * 10.0, digits + 1);
        }
        digits == self.digits && value == self.coefficient as f64
    }
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        b => divisor(b, a % b),
    }
}

/// Keywords that are a constraint of their own, in addition to the plain ones.
const IN_PLACE: [&str; 7] = ["$ref", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords of which each part is such a constraint.
const EACH_IN_PLACE: [&str; 3] = ["allOf", "dependencies", "dependentSchemas"];
/// Keywords whose schemas apply only where a reference leads to them.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Rejects a schema with multiples that meet and have no common multiple in 32 bits.
fn check_multiples(root: &Map<String, Value>) -> Result<(), GrammarError> {
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
