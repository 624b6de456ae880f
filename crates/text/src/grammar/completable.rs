//! Whether whatever a grammar has begun can be completed.
//!
//! A symbol is *productive* where some finite text is derived from it: not a rule that only leads back to itself
//! (`a: "x" a`, a `$ref` cycle), not a terminal that matches nothing. A rule that takes input and then needs a symbol
//! that is not productive would lead an answer to a place from which there is no way on, so such a grammar is refused.
//! A rule that needs it first takes no input, and does no harm.

use llguidance::earley::{CGrammar, CSymIdx};

/// The refusal of a grammar that derives nothing.
pub(super) const NOTHING: &str =
    "allows no answer: it leads back to itself, or what it asks for contradicts itself";
/// The refusal of a grammar that may begin what cannot be completed.
pub(super) const ENDLESS: &str = "cannot be completed: a part that it requires leads back to itself for ever, or contradicts itself";

/// Refuses a grammar in which an answer may come to a place without a way on. `empty` says which terminals match
/// nothing, by the number of their lexeme.
pub(super) fn check(grammar: &CGrammar, empty: &[bool]) -> Result<(), &'static str> {
    let rules = rules(grammar);
    let productive = productive(grammar, &rules, empty);
    if !productive[grammar.start().as_index()] {
        return Err(NOTHING);
    }
    let mut reached = vec![false; productive.len()];
    let mut waiting = vec![grammar.start()];
    while let Some(symbol) = waiting.pop() {
        if std::mem::replace(&mut reached[symbol.as_index()], true) {
            continue;
        }
        for &rule in grammar.rules_of(symbol) {
            for (at, &part) in grammar.rule_rhs(rule).0.iter().enumerate() {
                waiting.push(part);
                match productive[part.as_index()] {
                    true => {}
                    false if at > 0 => return Err(ENDLESS),
                    false => break,
                }
            }
        }
    }
    Ok(())
}

/// A rule: what it derives, and what from.
struct Rule<'g> {
    of: CSymIdx,
    parts: &'g [CSymIdx],
}

/// All rules of symbols that the start leads to.
fn rules(grammar: &CGrammar) -> Vec<Rule<'_>> {
    let mut rules = Vec::new();
    let mut seen = std::collections::HashSet::from([grammar.start()]);
    let mut waiting = vec![grammar.start()];
    while let Some(of) = waiting.pop() {
        for &rule in grammar.rules_of(of) {
            let parts = grammar.rule_rhs(rule).0;
            rules.push(Rule { of, parts });
            waiting.extend(parts.iter().filter(|part| seen.insert(**part)));
        }
    }
    rules
}

/// Which symbols derive some finite text; by the symbols' numbers.
fn productive(grammar: &CGrammar, rules: &[Rule<'_>], empty: &[bool]) -> Vec<bool> {
    let symbols = rules.iter().flat_map(|rule| rule.parts.iter().copied());
    let symbols = symbols.chain(rules.iter().map(|rule| rule.of));
    let most = symbols.clone().map(|symbol| symbol.as_index()).max();
    let count = most.unwrap_or(0).max(grammar.start().as_index()) + 1;
    let mut productive = vec![false; count];
    // The rules that a symbol is a part of, and how many parts of each are not yet known to be productive.
    let mut used: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut missing: Vec<usize> = rules.iter().map(|rule| rule.parts.len()).collect();
    for (at, rule) in rules.iter().enumerate() {
        rule.parts
            .iter()
            .for_each(|part| used[part.as_index()].push(at));
    }
    let mut found: Vec<CSymIdx> = symbols
        .chain([grammar.start()])
        .filter(|&symbol| ends_by_itself(grammar, symbol, empty))
        .collect();
    while let Some(symbol) = found.pop() {
        if std::mem::replace(&mut productive[symbol.as_index()], true) {
            continue;
        }
        for &at in &used[symbol.as_index()] {
            missing[at] -= 1;
            if missing[at] == 0 {
                found.push(rules[at].of);
            }
        }
    }
    productive
}

/// Whether a symbol is a terminal that matches something, or may be left out.
fn ends_by_itself(grammar: &CGrammar, symbol: CSymIdx, empty: &[bool]) -> bool {
    let symbol = grammar.sym_data(symbol);
    match symbol.lexeme {
        Some(lexeme) => !empty.get(lexeme.as_usize()).copied().unwrap_or(false),
        None => symbol.is_nullable || !symbol.cond_nullable.is_empty(),
    }
}
