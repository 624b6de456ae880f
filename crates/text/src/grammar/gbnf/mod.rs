//! GBNF, the grammar language of llama.cpp, translated to Lark.
//!
//! A GBNF grammar derives characters, and Lark's parser gets terminals from a lexer that takes the longest match. The
//! translation is exact: literals, character classes and repetitions of regular parts become terminals where the longest
//! match is always the right one, and are written out in single characters elsewhere (`terminal_choice`). Single
//! characters alone would be exact too, but a mask over a large vocabulary would then exceed its bounds.
//!
//! ```text
//! parser           text to expressions, errors with line and column
//! left_recursion   rules that begin with themselves are rejected
//! lexeme           regular expressions, and which characters may continue one where another one ends
//! terminal_flow    which terminals may follow one another, and which are possible at the same place
//! terminal_choice  the terminals without conflicts
//! lark_writer      the grammar as Lark
//! ```

mod char_set;
mod expression;
mod lark_writer;
mod left_recursion;
mod lexeme;
mod parser;
mod terminal_choice;
mod terminal_flow;
#[cfg(test)]
mod tests;

use super::error::GrammarError;
pub use expression::{GBNF_DEPTH_MAX, GBNF_REPEAT_MAX, GBNF_RULES_MAX};
pub use terminal_choice::{GBNF_COMPARISONS_MAX, GBNF_TERMINALS_MAX};

/// Whether a grammar is written in GBNF: the first thing in it, after comments, is `name ::=`.
pub(super) fn is_gbnf(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = first else {
        return false;
    };
    let after = first.trim_start_matches(expression::is_name_char);
    after.len() < first.len() && after.trim_start().starts_with("::=")
}

/// Translates a grammar to Lark.
///
/// # Errors
/// The grammar is invalid or exceeds a bound; errors of the syntax have line and column.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let grammar = parser::parse(text)?;
    left_recursion::check(&grammar)?;
    let chosen = terminal_choice::choose(&grammar)?;
    Ok(lark_writer::write(&grammar, &chosen))
}
