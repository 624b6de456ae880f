//! Rejection of rules that begin with themselves, as in llama.cpp.

use super::expression::{Expression, GbnfGrammar};
use crate::grammar::error::GrammarError;

/// Rejects a grammar with a left-recursive rule.
pub(super) fn check(grammar: &GbnfGrammar) -> Result<(), GrammarError> {
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
