//! GBNF, the grammar language of llama.cpp, translated to Lark.
//!
//! A GBNF grammar derives characters, and Lark's parser gets terminals from a lexer that takes the longest match. The
//! translation is exact: literals, character classes and repetitions of regular parts become terminals where the longest
//! match is always the right one, and are written out in single characters elsewhere (`terminal_choice`). Single
//! characters alone would be exact too, but a mask over a large vocabulary would then exceed its bounds.
//!
//! The steps; this file has the last one, and the rejection of rules that begin with themselves:
//!
//! ```text
//! parser           text to expressions, errors with line and column
//! lexeme           regular expressions, and which characters may continue one where another one ends
//! terminal_flow    which terminals may follow one another, and which are possible at the same place
//! terminal_choice  the terminals without conflicts
//! ```

mod lexeme;
mod parser;
mod terminal_choice;
mod terminal_flow;
#[cfg(test)]
mod tests;

pub use parser::{GBNF_DEPTH_MAX, GBNF_REPEAT_MAX, GBNF_RULES_MAX};
pub use terminal_choice::{GBNF_COMPARISONS_MAX, GBNF_TERMINALS_MAX};

use super::error::GrammarError;
use parser::{Expression, GbnfGrammar};
use std::fmt::Write;
use terminal_choice::ChosenTerminals;
use terminal_flow::GrammarNode;

/// Whether a grammar is written in GBNF: the first thing in it, after comments, is `name ::=`.
pub(super) fn is_gbnf(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = first else {
        return false;
    };
    let after = first.trim_start_matches(parser::is_name_char);
    after.len() < first.len() && after.trim_start().starts_with("::=")
}

/// Translates a grammar to Lark.
///
/// # Errors
/// The grammar is invalid or exceeds a bound; errors of the syntax have line and column.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let grammar = parser::parse(text)?;
    check(&grammar)?;
    let chosen = terminal_choice::choose(&grammar)?;
    Ok(write(&grammar, &chosen))
}

/// The text of the grammar: rules `r0`, `r1` ..., terminals `T0`, `T1` ...
fn write(grammar: &GbnfGrammar, chosen: &ChosenTerminals) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = writeln!(out, "start: r{}", grammar.root);
    for (number, rule) in chosen.rules.iter().enumerate() {
        let _ = write!(out, "r{number}: ");
        write_node(rule, &mut out);
        out.push('\n');
    }
    for (number, regex) in chosen.terminals.iter().enumerate() {
        let _ = writeln!(out, "T{number}: /{regex}/");
    }
    out
}

fn write_node(node: &GrammarNode, out: &mut String) {
    match node {
        GrammarNode::Terminal(terminal) => {
            let _ = write!(out, "T{terminal}");
        }
        GrammarNode::Rule(rule) => {
            let _ = write!(out, "r{rule}");
        }
        GrammarNode::Sequence(parts) if parts.is_empty() => out.push_str("\"\""),
        GrammarNode::Sequence(parts) => write_parts(parts, " ", out),
        GrammarNode::Choice(parts) => write_parts(parts, " | ", out),
        GrammarNode::Repeat(body, min, max) => {
            out.push('(');
            write_node(body, out);
            out.push(')');
            let _ = match (min, max) {
                (0, None) => out.write_char('*'),
                (1, None) => out.write_char('+'),
                (0, Some(1)) => out.write_char('?'),
                (min, None) => write!(out, "{{{min},}}"),
                (min, Some(max)) => write!(out, "{{{min},{max}}}"),
            };
        }
    }
}

fn write_parts(parts: &[GrammarNode], between: &str, out: &mut String) {
    out.push('(');
    for (i, part) in parts.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { between });
        write_node(part, out);
    }
    out.push(')');
}

/// Rejects a grammar with a left-recursive rule.
fn check(grammar: &GbnfGrammar) -> Result<(), GrammarError> {
    let nullable = grammar.nullable_rules();
    let begins: Vec<Vec<usize>> = grammar
        .rules
        .iter()
        .map(|rule| {
            let mut first = Vec::new();
            first_rules(&rule.body, &nullable, &mut first);
            first.sort_unstable();
            first.dedup();
            first
        })
        .collect();
    for (start, rule) in grammar.rules.iter().enumerate() {
        let mut seen = vec![false; begins.len()];
        let mut waiting = begins[start].clone();
        while let Some(next) = waiting.pop() {
            if next == start {
                return Err(GrammarError::whole(format!(
                    "GBNF, line {}: rule {:?} is left-recursive: it may begin with itself; write a repetition instead, \
                     such as item (\",\" item)*",
                    rule.line, rule.name
                )));
            }
            if !std::mem::replace(&mut seen[next], true) {
                waiting.extend(&begins[next]);
            }
        }
    }
    Ok(())
}

/// Appends the rules that the expression may begin with.
fn first_rules(expression: &Expression, nullable: &[bool], into: &mut Vec<usize>) {
    match expression {
        Expression::Chars(_) | Expression::Literal(..) => {}
        Expression::Rule(rule) => into.push(*rule),
        Expression::Choice(parts) => {
            for part in parts {
                first_rules(part, nullable, into);
            }
        }
        Expression::Sequence(parts) => {
            for part in parts {
                first_rules(part, nullable, into);
                if !part.is_nullable(nullable) {
                    return;
                }
            }
        }
        Expression::Repeat { body, .. } => first_rules(body, nullable, into),
    }
}
