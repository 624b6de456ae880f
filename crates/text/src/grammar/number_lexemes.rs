//! Terminals with numbers, changed after llguidance has made them: numbers end, and large integers keep their digits.
//!
//! A terminal may take numbers and other texts (`anyOf` of a number and a string is one terminal), so a terminal is changed as a set
//! of texts: intersected with a complement, and united with ranges. What the terminal means is found by samples.

use super::error::{GrammarError, GrammarRejection};
use super::large_numbers::LargeNumbers;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::derivre::{ExprRef, RegexAst, StateID};
use llguidance::earley::lexerspec::{LexemeClass, LexemeIdx, LexemeSpec, LexerSpec};
use llguidance::earley::regexvec::RegexVec;
use serde_json::Value;

/// Characters of a number after the first digit, so that no answer consists of digits without end. A schema with a longer constant
/// raises the bound.
pub const NUMBER_CHARS_MAX: usize = 80;

/// A grammar, and what its numbers mean.
pub(super) struct NumberedGrammar {
    pub(super) grammar: TopLevelGrammar,
    pub(super) numbers: NumberRules,
}

/// What the numbers of a grammar's schemas mean.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberRules {
    large: LargeNumbers,
    /// Whether a `multipleOf` leaves holes between integers.
    has_multiples: bool,
    /// Characters of a number after the first digit; 0 without schemas.
    chars_max: usize,
    /// Whether the schemas are embedded in a Lark grammar, whose own terminals stay as written.
    is_embedded: bool,
}

impl NumberRules {
    /// The rules of schemas as compiled, whose large numbers are replaced by marks.
    ///
    /// # Errors
    /// There are too many large numbers.
    pub(super) fn of(schemas: &mut [Value]) -> Result<Self, GrammarError> {
        let longest = schemas.iter().map(longest_number).max();
        Ok(Self {
            has_multiples: schemas.iter().any(has_multiples),
            chars_max: longest.map_or(0, |longest| longest.max(NUMBER_CHARS_MAX)),
            is_embedded: false,
            large: LargeNumbers::marked(schemas)?,
        })
    }

    /// These rules for schemas that are embedded in a Lark grammar.
    pub(super) fn embedded(self) -> Self {
        Self {
            is_embedded: true,
            ..self
        }
    }

    /// Changes the terminals of a grammar.
    pub(super) fn apply(
        &self,
        spec: &mut LexerSpec,
        limits: &ParserLimits,
        fuel: u64,
    ) -> Result<(), GrammarRejection> {
        if self.chars_max == 0 {
            return Ok(());
        }
        let lexer = spec.to_regex_vec(&mut limits.clone());
        let mut lexer = lexer.map_err(|error| GrammarRejection::of(&error))?;
        lexer.set_fuel(fuel);
        // The first class is the Lark grammar's; schemas have others, unless the grammar ignores white space exactly as they do.
        let has_own = self.is_embedded && spec.skip_by_class.len() > 1;
        let changed = (0..spec.lexemes.len()).filter_map(|number| {
            if has_own && spec.lexemes[number].class() == LexemeClass::ROOT {
                return None;
            }
            let expression = expression(&spec.lexemes[number])?;
            let terminal = TerminalSample::of(&mut lexer, spec, number);
            Some((number, self.changed(terminal, expression)?))
        });
        let changed: Vec<(usize, RegexAst)> = changed.collect();
        if lexer.has_error() {
            return Err(GrammarRejection::bound(format!(
                "has numbers whose terminals take more than {fuel} steps (LEXER_START_FUEL) to examine"
            )));
        }
        for (number, regex) in changed {
            replace(spec, number, regex).map_err(|error| GrammarRejection::of(&error))?;
        }
        Ok(())
    }

    /// The terminal's new expression, if the terminal has numbers that change.
    fn changed(&self, mut terminal: TerminalSample<'_>, expression: ExprRef) -> Option<RegexAst> {
        if !terminal.has_numbers() {
            return None;
        }
        let mut regex = RegexAst::ExprRef(expression);
        let read = self
            .large
            .read_back(|text| terminal.takes(text), self.has_multiples);
        // Near the end of a multiple each remainder would be a state of the lexer, for each number of characters.
        let may_end = !self.has_multiples || terminal.takes_neighbors();
        let is_endless = may_end && terminal.is_endless(self.chars_max);
        if read.is_empty() && !is_endless {
            return None;
        }
        for large in read {
            let mut all = vec![without(regex, &large.lost)];
            all.extend(large.taken.into_iter().map(RegexAst::Regex));
            regex = RegexAst::Or(all);
        }
        if is_endless {
            regex = without(
                regex,
                &format!(r"-?[0-9][0-9.eE+\-]{{{},}}", self.chars_max + 1),
            );
        }
        Some(regex)
    }
}

fn without(regex: RegexAst, texts: &str) -> RegexAst {
    let texts = RegexAst::Regex(texts.to_owned());
    RegexAst::And(vec![regex, RegexAst::Not(Box::new(texts))])
}

/// Samples of the texts of one terminal.
struct TerminalSample<'l> {
    lexer: &'l mut RegexVec,
    start: StateID,
}

impl<'l> TerminalSample<'l> {
    fn of(lexer: &'l mut RegexVec, spec: &LexerSpec, number: usize) -> Self {
        let mut alone = spec.alloc_lexeme_set();
        alone.add(LexemeIdx::new(number));
        let start = lexer.initial_state(&alone);
        Self { lexer, start }
    }

    fn after(&mut self, text: &str) -> StateID {
        let bytes = text.bytes();
        bytes.fold(self.start, |state, byte| self.lexer.transition(state, byte))
    }

    fn begins(&mut self, text: &str) -> bool {
        !self.after(text).is_dead()
    }

    fn takes(&mut self, text: &str) -> bool {
        let state = self.after(text);
        !state.is_dead() && self.lexer.state_desc(state).greedy_accepting.is_some()
    }

    /// Whether the terminal has numbers, and no other texts that begin as numbers do: JSON's have no leading zeros.
    fn has_numbers(&mut self) -> bool {
        if ["00", "01", "-00", "-01"]
            .iter()
            .any(|text| self.begins(text))
        {
            return false;
        }
        let mut digits = (b'0'..=b'9').map(char::from);
        let first = digits
            .find(|digit| self.begins(&digit.to_string()) || self.begins(&format!("-{digit}")));
        first.is_some_and(|digit| {
            !self.begins(&format!("{digit}x")) && !self.begins(&format!("-{digit}x"))
        })
    }

    /// Whether the terminal takes two consecutive integers, which multiples are not.
    fn takes_neighbors(&mut self) -> bool {
        let pairs = [["1000000001", "1000000002"], ["-1000000001", "-1000000002"]];
        pairs
            .into_iter()
            .any(|pair| pair.into_iter().all(|text| self.takes(text)))
    }

    /// Whether a number may have more than this many characters after the first digit.
    fn is_endless(&mut self, chars: usize) -> bool {
        let digits = |first: &str| format!("{first}{}", "1".repeat(chars + 1));
        let begins = [
            "1", "-1", "9", "-9", "0.", "-0.", "1.", "-1.", "1e", "9.", "-9.",
        ];
        begins.into_iter().any(|first| self.begins(&digits(first)))
    }
}

/// The expression of a terminal that is one expression, as those of a schema's values are.
///
/// llguidance tells it only in its description, `[3] name (ExprRef 17)`; `descriptions_name_expressions` checks the words.
fn expression(lexeme: &LexemeSpec) -> Option<ExprRef> {
    let description = lexeme.to_string(usize::MAX, None);
    let (_, number) = description.strip_suffix(')')?.rsplit_once(" (ExprRef ")?;
    Some(ExprRef::new(number.parse().ok()?))
}

/// Replaces the expression of a terminal, which keeps its number.
fn replace(
    spec: &mut LexerSpec,
    number: usize,
    regex: RegexAst,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let current = spec.current_class;
    let mut behind = spec.lexemes.split_off(number);
    let after = behind.split_off(1);
    let old = behind.remove(0);
    spec.current_class = old.class();
    // An expression that is already a terminal gets no second number: then the new one is made different without meaning.
    let unused = RegexAst::Not(Box::new(RegexAst::Literal(format!("\0{number}"))));
    let different = RegexAst::And(vec![regex.clone(), unused]);
    for regex in [regex, different] {
        if spec.lexemes.len() == number {
            spec.add_greedy_lexeme(String::new(), regex, false, None, old.max_tokens())?;
        }
    }
    if spec.lexemes.len() == number {
        spec.lexemes.push(old);
    }
    spec.lexemes.extend(after);
    spec.current_class = current;
    Ok(())
}

/// Whether a `multipleOf` leaves holes between integers, at any depth.
fn has_multiples(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_multiples),
        Value::Object(entries) => entries.iter().any(|(keyword, value)| match value.as_f64() {
            Some(multiple) if keyword == "multipleOf" => (1.0 / multiple).fract() != 0.0,
            _ => has_multiples(value),
        }),
        _ => false,
    }
}

/// Characters of the longest fraction in plain digits, as llguidance writes constants.
fn longest_number(value: &Value) -> usize {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| float.abs() < 1.0);
            float.map_or(0, |float| format!("{float}").len())
        }
        Value::Array(items) => items.iter().map(longest_number).max().unwrap_or(0),
        Value::Object(entries) => entries.values().map(longest_number).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::api::GrammarInit;
    use serde_json::json;

    fn spec(schema: &Value) -> LexerSpec {
        let grammar = TopLevelGrammar::from_json_schema(schema.clone());
        let made = GrammarInit::Serialized(grammar).to_internal(None, ParserLimits::default());
        made.expect("a grammar").1
    }

    #[test]
    fn descriptions_name_expressions() {
        let spec = spec(&json!({"type": "array", "items": {"type": ["integer", "string"]}}));
        let expressions: Vec<ExprRef> = spec.lexemes.iter().filter_map(expression).collect();
        assert!(!expressions.is_empty(), "{spec:?}");
        let known = spec.regex_builder.exprset();
        assert!(
            expressions.iter().all(|one| known.is_valid(*one)),
            "{spec:?}"
        );
    }

    #[test]
    fn replaced_terminals_keep_their_numbers() {
        let schema = json!({"type": "array", "prefixItems": [{"type": "integer", "minimum": 3, "maximum": 5}, {"type": "integer", "minimum": 4, "maximum": 6}],
            "minItems": 2, "items": false});
        let mut spec = spec(&schema);
        let count = spec.lexemes.len();
        let limits = ParserLimits::default();
        let mut lexer = spec.to_regex_vec(&mut limits.clone()).expect("a lexer");
        let numbers: Vec<usize> = (0..count)
            .filter(|&number| TerminalSample::of(&mut lexer, &spec, number).has_numbers())
            .collect();
        assert_eq!(numbers.len(), 2);
        for &number in &numbers {
            replace(&mut spec, number, RegexAst::Regex("[7-9]".to_owned())).expect("a regex");
        }
        assert_eq!(spec.lexemes.len(), count);
        let mut lexer = spec.to_regex_vec(&mut limits.clone()).expect("a lexer");
        for number in numbers {
            let mut sample = TerminalSample::of(&mut lexer, &spec, number);
            assert!(
                sample.takes("8") && !sample.takes("4"),
                "{number}: {spec:?}"
            );
        }
    }
}
