//! Numbers beyond 2^53, which llguidance's f64 cannot tell apart, with all their digits.
//!
//! **Marks.** Before compilation each large number of a schema is replaced by a *mark*: an even integer between 2^53 and 2^54, in
//! the order of the numbers. Marks are exact as f64, so combining and comparing bounds has the right result; and no bound is near
//! the ends of i64, where llguidance overflows.
//!
//! **Reading back.** Between two marks no bound lies, so a terminal of the compiled grammar takes all integers there or none. One
//! sample for each mark and each gap therefore tells which large integers the terminal means: the terminal loses all integers beyond
//! 2^53 and takes these instead ([`number_lexemes`](super::number_lexemes)). Fractions of such numbers are lost.
//! A terminal that takes all large integers, or none, has no bound among them and stays as it is.
//!
//! Multiples have holes between marks: their gaps count as not taken, which allows nothing that is forbidden.

use super::error::GrammarError;
use super::schema_numbers::{EXACT_INTEGER_MAX, SCHEMA_NUMBER_MAX};
use serde_json::{Number, Value, json};

/// Different numbers beyond 2^53 in one grammar; each costs two samples of each terminal with numbers.
pub const LARGE_NUMBERS_MAX: usize = 1_024;

/// Distance of two marks; a gap is sampled at two consecutive integers, which no multiple above 1 takes.
const MARK_DISTANCE: u64 = 64;
/// The greatest number that is written with all digits.
const WRITTEN_MAX: u128 = SCHEMA_NUMBER_MAX as u128;

/// Magnitude of a large number. Floats beyond u128 saturate, and are ordered by `float`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Magnitude {
    integer: u128,
    float: f64,
}

/// The large numbers of all schemas of a grammar, in order of magnitude.
#[derive(Clone, Debug, Default)]
pub(super) struct LargeNumbers {
    positive: Vec<Magnitude>,
    negative: Vec<Magnitude>,
}

/// Large integers of a terminal: the expressions of texts that the terminal loses, and of those it takes.
#[derive(Debug, PartialEq)]
pub(super) struct LargeIntegers {
    pub(super) lost: String,
    pub(super) taken: Vec<String>,
}

impl LargeNumbers {
    /// The large numbers of schemas, which are replaced by their marks.
    ///
    /// # Errors
    /// There are more than [`LARGE_NUMBERS_MAX`].
    pub(super) fn marked<'v>(
        schemas: impl IntoIterator<Item = &'v mut Value>,
    ) -> Result<Self, GrammarError> {
        let mut schemas: Vec<&mut Value> = schemas.into_iter().collect();
        let mut all = Self::default();
        schemas.iter().for_each(|schema| all.add(schema));
        for numbers in [&mut all.positive, &mut all.negative] {
            numbers.sort_by(|a, b| {
                let by_float = a.float.total_cmp(&b.float);
                a.integer.cmp(&b.integer).then(by_float)
            });
            numbers.dedup();
        }
        let count = all.positive.len() + all.negative.len();
        if count > LARGE_NUMBERS_MAX {
            return Err(GrammarError::whole(format!(
                "has {count} different numbers beyond 2^53; at most {LARGE_NUMBERS_MAX} (LARGE_NUMBERS_MAX) are accepted"
            )));
        }
        if count > 0 {
            schemas.iter_mut().for_each(|schema| all.mark(schema));
        }
        Ok(all)
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Number(number) => {
                if let Some((is_negative, magnitude)) = large(number) {
                    self.of_sign_mut(is_negative).push(magnitude);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(entries) => entries.values().for_each(|entry| self.add(entry)),
            _ => {}
        }
    }

    fn mark(&self, value: &mut Value) {
        match value {
            Value::Number(number) => {
                let Some((is_negative, magnitude)) = large(number) else {
                    return;
                };
                let numbers = self.of_sign(is_negative);
                let at = numbers.iter().position(|known| *known == magnitude);
                let mark = mark(at.unwrap_or_default()) as i64;
                let mark = if is_negative { -mark } else { mark };
                // A constant that is a float may also be written otherwise.
                *value = if number.is_f64() {
                    json!(mark as f64)
                } else {
                    json!(mark)
                };
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mark(item)),
            Value::Object(entries) => entries.values_mut().for_each(|entry| self.mark(entry)),
            _ => {}
        }
    }

    fn of_sign(&self, is_negative: bool) -> &[Magnitude] {
        if is_negative {
            &self.negative
        } else {
            &self.positive
        }
    }

    fn of_sign_mut(&mut self, is_negative: bool) -> &mut Vec<Magnitude> {
        if is_negative {
            &mut self.negative
        } else {
            &mut self.positive
        }
    }

    /// The large integers that a terminal means, for each sign with bounds among them. `takes` tells whether the terminal takes a
    /// text; `has_multiples`: a constant may be no multiple although its mark is.
    pub(super) fn read_back(
        &self,
        mut takes: impl FnMut(&str) -> bool,
        has_multiples: bool,
    ) -> Vec<LargeIntegers> {
        let signs = [(false, ""), (true, "-")].into_iter();
        let found = signs.filter_map(|(is_negative, sign)| {
            let numbers = self.of_sign(is_negative);
            let mut takes = |integer: u64| takes(&format!("{sign}{integer}"));
            read_sign(numbers, sign, &mut takes, has_multiples)
        });
        found.collect()
    }
}

fn read_sign(
    numbers: &[Magnitude],
    sign: &str,
    takes: &mut dyn FnMut(u64) -> bool,
    has_multiples: bool,
) -> Option<LargeIntegers> {
    if numbers.is_empty() {
        return None;
    }
    let mut gap =
        |after: u64| takes(after + MARK_DISTANCE / 2) && takes(after + MARK_DISTANCE / 2 + 1);
    let mut gaps = vec![gap(EXACT_INTEGER_MAX as u64)];
    gaps.extend((0..numbers.len()).map(|at| gap(mark(at))));
    let marks: Vec<bool> = (0..numbers.len()).map(|at| takes(mark(at))).collect();
    let mut all = gaps.iter().chain(&marks);
    if all.clone().all(|taken| *taken) || !all.any(|taken| *taken) {
        return None;
    }
    let is_taken = |at: usize| marks[at] && (!has_multiples || gaps[at] || gaps[at + 1]);
    let (mut ranges, mut taken) = (Vec::<(u128, u128)>::new(), Vec::new());
    let mut add = |low: u128, high: u128| match ranges.last_mut() {
        _ if low > high => {}
        Some((_, last)) if *last + 1 == low => *last = high,
        _ => ranges.push((low, high)),
    };
    let mut low = EXACT_INTEGER_MAX as u128 + 1;
    for (at, number) in numbers.iter().enumerate() {
        if gaps[at] {
            add(low, (number.integer - 1).min(WRITTEN_MAX));
        }
        if is_taken(at) {
            if number.integer <= WRITTEN_MAX {
                add(number.integer, number.integer);
            } else {
                taken.push(format!("{sign}{}", number.in_powers()));
            }
        }
        low = number.integer.saturating_add(1);
    }
    if gaps.last() == Some(&true) {
        add(low, WRITTEN_MAX);
    }
    let ranges = ranges
        .into_iter()
        .map(|(low, high)| format!("{sign}({})", integers(low, high)));
    taken.extend(ranges);
    let sixteen = integers(EXACT_INTEGER_MAX as u128 + 1, 9_999_999_999_999_999);
    Some(LargeIntegers {
        lost: format!(r"{sign}({sixteen}|[1-9][0-9]{{16,}})(\.[0-9]+)?"),
        taken,
    })
}

impl Magnitude {
    /// The number with a power of ten, in a regular expression.
    fn in_powers(self) -> String {
        let float = if self.float == 0.0 {
            self.integer as f64
        } else {
            self.float
        };
        format!("{float:e}").replace('.', r"\.")
    }
}

/// Sign and magnitude of a number beyond 2^53.
fn large(number: &Number) -> Option<(bool, Magnitude)> {
    let (is_negative, magnitude) = match number.as_i128() {
        Some(integer) => (
            integer < 0,
            Magnitude {
                integer: integer.unsigned_abs(),
                float: 0.0,
            },
        ),
        None => {
            let float = number.as_f64()?;
            let integer = float.abs() as u128;
            let rest = if integer == u128::MAX {
                float.abs()
            } else {
                0.0
            };
            (
                float < 0.0,
                Magnitude {
                    integer,
                    float: rest,
                },
            )
        }
    };
    (magnitude.integer > EXACT_INTEGER_MAX as u128).then_some((is_negative, magnitude))
}

/// The mark of the number at this place in the order.
fn mark(at: usize) -> u64 {
    EXACT_INTEGER_MAX as u64 + MARK_DISTANCE * (at as u64 + 1)
}

/// A regular expression of the integers from `low` to `high`.
fn integers(low: u128, high: u128) -> String {
    let (low, high) = (low.to_string(), high.to_string());
    let lengths = low.len()..=high.len();
    let of_length = lengths.map(|length| {
        let from = if length == low.len() {
            low.clone()
        } else {
            format!("1{}", "0".repeat(length - 1))
        };
        let to = if length == high.len() {
            high.clone()
        } else {
            "9".repeat(length)
        };
        between(&from, &to)
    });
    of_length.collect::<Vec<_>>().join("|")
}

/// Digits of one length, from `low` to `high`.
fn between(low: &str, high: &str) -> String {
    if low == high {
        return low.to_owned();
    }
    let rest = low.len() - 1;
    let all = |rest: usize| match rest {
        0 => String::new(),
        rest => format!("[0-9]{{{rest}}}"),
    };
    let (first, last) = (low.as_bytes()[0], high.as_bytes()[0]);
    let (low, high) = (&low[1..], &high[1..]);
    if first == last {
        return format!("{}({})", first as char, between(low, high));
    }
    let is_low = low.bytes().all(|digit| digit == b'0');
    let is_high = high.bytes().all(|digit| digit == b'9');
    let (from, to) = (first + u8::from(!is_low), last - u8::from(!is_high));
    let mut parts = Vec::new();
    if !is_low {
        parts.push(format!(
            "{}({})",
            first as char,
            between(low, &"9".repeat(rest))
        ));
    }
    if from <= to {
        parts.push(format!("[{}-{}]{}", from as char, to as char, all(rest)));
    }
    if !is_high {
        parts.push(format!(
            "{}({})",
            last as char,
            between(&"0".repeat(rest), high)
        ));
    }
    parts.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_automata::meta::Regex;

    #[test]
    fn ranges_of_integers_are_exact() {
        let numbers = [
            1_u128, 9, 10, 11, 99, 100, 101, 123, 199, 456, 999, 1000, 1001, 2345, 10_000,
        ];
        for &low in &numbers {
            for &high in numbers.iter().filter(|&&high| high >= low) {
                let regex = Regex::new(&format!("^({})$", integers(low, high))).expect("a regex");
                for number in (1..1100).chain(2300..2400).chain(9990..10_010) {
                    let is_within = (low..=high).contains(&number);
                    assert_eq!(
                        regex.is_match(&number.to_string()),
                        is_within,
                        "{number} in {low}..={high}"
                    );
                }
            }
        }
    }

    #[test]
    fn terminal_with_marks_means_the_numbers() {
        let mut schema = json!({"enum": [9_007_199_254_740_993_i64, 18_446_744_073_709_551_615_u64, 1e300, 7], "minimum": i64::MIN});
        let numbers = LargeNumbers::marked([&mut schema]).expect("few numbers");
        let marks = [mark(0) as i64, mark(1) as i64, mark(2) as i64];
        assert_eq!(
            schema["enum"],
            json!([marks[0], marks[1], marks[2] as f64, 7])
        );
        assert_eq!(schema["minimum"], json!(-marks[0]));
        // From the first to the second number, and the third.
        let read = numbers.read_back(
            |text| {
                text.parse::<i64>()
                    .is_ok_and(|n| (marks[0]..=marks[1]).contains(&n) || n == marks[2])
            },
            false,
        );
        assert_eq!(read.len(), 1, "the negative ones are all absent: {read:?}");
        let taken = Regex::new(&format!("^({})$", read[0].taken.join("|"))).expect("a regex");
        for (text, expected) in [
            ("9007199254740992", false),
            ("9007199254740993", true),
            ("18446744073709551615", true),
            ("18446744073709551616", false),
            ("1e300", true),
        ] {
            assert_eq!(taken.is_match(text), expected, "{text}");
        }
        let lost = Regex::new(&format!("^({})$", read[0].lost)).expect("a regex");
        for (text, expected) in [
            ("9007199254740992", false),
            ("9007199254740993", true),
            ("12345678901234567890123.5", true),
        ] {
            assert_eq!(lost.is_match(text), expected, "{text}");
        }
        assert_eq!(numbers.read_back(|_| true, false), []);
        let only_marks = |text: &str| text.parse::<i64>().is_ok_and(|n| marks.contains(&n));
        // A mark may be a multiple that the number is not; the terminal loses the mark.
        let read = numbers.read_back(only_marks, true);
        assert_eq!(read.len(), 1);
        assert!(read[0].taken.is_empty(), "{read:?}");
    }

    #[test]
    fn too_many_large_numbers_are_rejected() {
        let of = |count: u64| json!({"enum": (0..count).map(|n| u64::MAX - n).collect::<Vec<_>>()});
        assert!(LargeNumbers::marked([&mut of(LARGE_NUMBERS_MAX as u64)]).is_ok());
        let error =
            LargeNumbers::marked([&mut of(LARGE_NUMBERS_MAX as u64 + 1)]).expect_err("too many");
        assert!(error.why.contains("LARGE_NUMBERS_MAX"), "{error}");
    }
}
