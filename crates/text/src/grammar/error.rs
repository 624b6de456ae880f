//! Errors of compiling a grammar, with llguidance's messages in this crate's terms.

use super::lexer_work::{
    GRAMMAR_SYMBOLS_MAX, LEXER_FUEL, LEXER_STATES_MAX, MASK_FUEL, MASK_ITEMS_MAX, ROW_ITEMS_MAX,
};

/// Why a grammar cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{}{why}", if place.is_empty() { "" } else { ": " })]
pub struct GrammarError {
    /// Location in the source: a path such as `properties.name.pattern` in a schema; empty for the whole
    /// source and for sources without paths.
    pub place: String,
    /// The fault at the location.
    pub why: String,
}

impl GrammarError {
    /// Value of `why` when the system could not create a thread.
    pub(super) const NO_THREAD: &str = "could not be compiled now: no thread";

    /// Whether the same source may compile later.
    pub fn is_temporary(&self) -> bool {
        self.why == Self::NO_THREAD
    }

    pub(super) fn whole(why: impl Into<String>) -> Self {
        Self {
            place: String::new(),
            why: why.into(),
        }
    }

    /// This error located in the arguments' schema of a tool.
    pub(super) fn in_tool(self, tool: usize) -> Self {
        let dot = if self.place.is_empty() { "" } else { "." };
        let Self { place, why } = self;
        Self {
            place: format!("[{tool}]"),
            why: format!("parameters{dot}{place}: {why}"),
        }
    }
}

/// Keywords that are enforced.
const KEPT_KEYWORDS: &str = "type, enum, const, $ref, anyOf, oneOf, allOf, properties, patternProperties, \
    additionalProperties, required, minProperties, maxProperties, items, prefixItems, additionalItems, minItems, maxItems, \
    minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf";

/// Why a grammar is rejected.
#[derive(Debug)]
pub(super) struct GrammarRejection {
    pub(super) why: String,
    /// Whether a bound is exceeded; then compiling parts of the grammar may cost as much again.
    pub(super) is_bound: bool,
}

impl GrammarRejection {
    pub(super) fn bound(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            is_bound: true,
        }
    }

    pub(super) fn wrong(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            is_bound: false,
        }
    }

    /// Cost of finding the error, in units of compiled schema parts.
    pub(super) fn effort(&self) -> usize {
        if self.is_bound { 16 } else { 1 }
    }

    /// From an error message of llguidance.
    pub(super) fn of(error: &impl std::fmt::Display) -> Self {
        let error = first_lines(error);
        match bound(&error) {
            Some(why) => Self::bound(why),
            None => Self::wrong(schema_words(&error).unwrap_or(error)),
        }
    }
}

/// The exceeded bound, if the message is about a bound.
fn bound(error: &str) -> Option<String> {
    let says = |words: &str| error.contains(words);
    let why = if says("number of symbols") || says("out of range") {
        format!(
            "needs more than {GRAMMAR_SYMBOLS_MAX} grammar symbols (GRAMMAR_SYMBOLS_MAX); an optional property takes 8"
        )
    } else if says("initial lexer configuration") || says("fuel exhausted") {
        format!("needs more than {LEXER_FUEL} nodes of regular expressions (LEXER_FUEL)")
    } else if says("too many states") {
        format!(
            "needs more than {LEXER_STATES_MAX} states of its lexer (LEXER_STATES_MAX): a text that is fixed, or counted, is too long"
        )
    } else if says("too many expressions") {
        format!("needs more than {MASK_FUEL} steps of its lexer (MASK_FUEL) for one token")
    } else if says("Too many items") {
        format!("needs more than {MASK_ITEMS_MAX} parser items (MASK_ITEMS_MAX) for one token")
    } else if says("Current row has") {
        format!("may go on in more than {ROW_ITEMS_MAX} ways at once (ROW_ITEMS_MAX)")
    } else if says("schema too large") {
        "expands to more than 50000 schemas (allOf, anyOf and $ref beside other keywords multiply)"
            .to_owned()
    } else if says("intersection stack level") {
        "combines schemas more than 128 deep (allOf, $ref beside other keywords)".to_owned()
    } else if says("Unable to determine if regex is empty")
        || says("can't determine if patternProperty")
    {
        "has patterns, formats and lengths that are together too complex to be told from contradictions".to_owned()
    } else {
        return None;
    };
    Some(why)
}

/// An error message about a schema, in terms of the schema.
fn schema_words(error: &str) -> Option<String> {
    let after = |start: &str| error.find(start).map(|at| error[at + start.len()..].trim());
    if let Some(what) = after("Unsatisfiable schema: ") {
        return Some(format!("allows no value: {what}"));
    }
    if let Some(keywords) = after("Unimplemented keys: ") {
        let keywords = keywords.trim_matches(['[', ']']).replace('"', "");
        return Some(format!(
            "{keywords}: not supported; the keywords that are kept are {KEPT_KEYWORDS}"
        ));
    }
    if let Some(kind) = after("Invalid type: ") {
        return Some(format!(
            "type: must be one of null, boolean, integer, number, string, array, object, and not {kind}"
        ));
    }
    if let Some(reference) = after("circular references with sibling keys are not supported: ") {
        return Some(format!(
            "$ref {reference}: refers to itself beside other keywords, which is not supported"
        ));
    }
    if error.contains("Only absolute $ref's") {
        let reference = after("; ref ").unwrap_or_default();
        return Some(format!(
            "$ref {reference}: only references within the schema (#/...) are supported"
        ));
    }
    if error.contains("Reference segment") {
        let reference = after("not found in ")
            .unwrap_or_default()
            .trim_end_matches('.');
        return Some(format!(
            "$ref {reference}: there is nothing in the schema at this place"
        ));
    }
    if error.contains("min/maxProperties only supported") {
        return Some("minProperties and maxProperties are supported where all properties are required, or one of them is wanted".to_owned());
    }
    None
}

/// The message without stack trace and internal state, limited in length.
pub(super) fn first_lines(error: &impl std::fmt::Display) -> String {
    const BYTES_MAX: usize = 400;
    let error = error.to_string();
    let error = error.split("\n<").next().unwrap_or_default().trim();
    let end = (0..=BYTES_MAX.min(error.len())).rev();
    let end = end.into_iter().find(|end| error.is_char_boundary(*end));
    error[..end.unwrap_or(0)].to_owned()
}
