//! Constrained decoding: the tokens that may come next under a JSON schema, a regular expression, a choice or
//! a context-free grammar.
//!
//! [`GrammarCompiler`] compiles a [`GrammarSource`] to a [`Grammar`] once; a [`GrammarMatcher`] then follows
//! each answer. The `llguidance` crate does the work: a derivative-based lexer and an Earley parser over a
//! trie of the vocabulary.
//!
//! **A complete answer is valid.** The mask before a token allows only tokens after which the answer can be
//! completed, and the end only where the answer is complete. Unsupported parts of a schema are rejected at
//! compilation with their path; no constraint is silently weakened.
//!
//! **Forced tokens.** Where the grammar leaves one continuation, [`GrammarMatcher::forced_tokens`] returns
//! the tokens as the tokenizer encodes the continuation, and their masks cost nothing. Vocabularies whose
//! encoding depends on the start of the text have no forced tokens.
//!
//! A source comes from a client and may be hostile: size, nesting and number of values are bounded before
//! parsing; compilation and each mask have fuel; the states of a matcher are bounded.

mod closed_objects;
mod error;
mod gbnf;
mod grammar_compiler;
mod grammar_matcher;
mod grammar_source;
mod json_schema;
mod large_numbers;
mod lexer_work;
mod number_lexemes;
mod schema_normalization;
mod schema_numbers;
mod schema_relaxation;
mod schema_rewriting;
mod schema_size;
#[cfg(test)]
mod tests;

pub use closed_objects::CLOSED_NAMES_MAX;
pub use error::GrammarError;
pub use gbnf::{
    GBNF_COMPARISONS_MAX, GBNF_DEPTH_MAX, GBNF_REPEAT_MAX, GBNF_RULES_MAX, GBNF_TERMINALS_MAX,
};
pub use grammar_compiler::{COMPILE_STACK_BYTES, GRAMMARS_MAX, GrammarCompiler, REFUSALS_MAX};
pub use grammar_matcher::{Grammar, GrammarMatcher, MatcherError};
pub use grammar_source::{CHOICES_IN_GRAMMAR_MAX, GrammarSource, LARK_DEPTH_MAX};
pub use json_schema::{SCHEMA_DEPTH_MAX, SCHEMA_PLACES_MAX};
pub(crate) use json_schema::{options as schema_options, prepared as prepared_schema};
pub use large_numbers::LARGE_NUMBERS_MAX;
pub use lexer_work::{
    DERIVATIVE_NODES_MAX, GRAMMAR_BYTES_MAX, GRAMMAR_SYMBOLS_MAX, INTERSECTED_MAX, LEXER_FUEL,
    LEXER_START_FUEL, LEXER_STATES_MAX, MASK_FUEL, MASK_ITEMS_MAX, ROW_ITEMS_MAX,
};
pub use number_lexemes::NUMBER_CHARS_MAX;
pub use schema_numbers::{MULTIPLE_DIGITS_MAX, SCHEMA_NUMBER_MAX};
pub use schema_relaxation::{EXCLUSION_CHECKS_MAX, SCHEMA_FORMATS, strict_schema_violation};
pub use schema_rewriting::{EXCLUDED_CHARS_MAX, REWRITTEN_PARTS_MAX};
pub use schema_size::{
    OPTIONAL_PROPERTIES_MAX, PATTERN_PAIRS_MAX, PATTERNS_AT_ONCE_MAX, SCHEMA_COPIES_MAX,
};
