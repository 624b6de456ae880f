//! Which tokens may come next, when an answer must have a form: JSON of a schema, a regular
//! expression, a choice, a context-free grammar.
//!
//! [`GrammarCompiler`] turns a [`GrammarSource`] into a [`Grammar`], once; each answer then walks it
//! with a [`GrammarMatcher`] of its own. The work is done by the `llguidance` crate: a lexer of
//! derivatives and an Earley parser, run over a trie of the vocabulary.
//!
//! **A whole answer is valid.** The mask before a token leaves only tokens after which the answer
//! can still be completed, and an end only where it is complete. What the schema language cannot
//! say this way is refused when it is compiled, with its place; nothing is silently weakened.
//!
//! **Forced tokens.** Where the grammar leaves one continuation only, [`GrammarMatcher::forced`]
//! names its tokens, as the tokenizer itself would write them, and their masks cost nothing.
//! Vocabularies whose encoding depends on where a text begins give none.
//!
//! A source comes from a caller and may be hostile: its size, nesting and number of places are
//! bounded before it is looked at, compiling and each mask have fuel, and so have the states that a
//! matcher may remember.

mod accepted_loosely;
mod bounds;
mod cache;
mod closed_objects;
mod compiled;
mod compiler;
mod completable;
mod error;
mod lark_source;
mod lexer_work;
mod limits;
mod matcher;
mod schema;
mod schema_parts;
mod schema_size;
mod slices;
mod source;
#[cfg(test)]
mod tests;
mod vocabulary;
mod white_space;

pub(crate) use accepted_loosely::loosened;
pub use accepted_loosely::{EXCLUSION_CHECKS_MAX, FORMATS, strict_problem};
pub use cache::{GRAMMARS_MAX, REFUSALS_MAX};
pub use closed_objects::CLOSED_NAMES_MAX;
pub use compiled::Grammar;
pub use compiler::{COMPILE_STACK_BYTES, GrammarCompiler};
pub use error::GrammarError;
pub use lark_source::LARK_DEPTH_MAX;
pub use lexer_work::{DERIVATIVE_NODES_MAX, INTERSECTED_MAX, LEXER_START_FUEL};
pub use limits::{
    GRAMMAR_BYTES_MAX, GRAMMAR_SYMBOLS_MAX, LEXER_FUEL, LEXER_STATES_MAX, MASK_FUEL,
    MASK_ITEMS_MAX, ROW_ITEMS_MAX,
};
pub use matcher::{GrammarMatcher, OutOfGrammar};
pub(crate) use schema::options as schema_options;
pub use schema::{SCHEMA_DEPTH_MAX, SCHEMA_PLACES_MAX};
pub use schema_size::{
    OPTIONAL_PROPERTIES_MAX, PATTERN_PAIRS_MAX, PATTERNS_AT_ONCE_MAX, SCHEMA_COPIES_MAX,
};
pub use source::{CHOICES_IN_GRAMMAR_MAX, GrammarSource};
