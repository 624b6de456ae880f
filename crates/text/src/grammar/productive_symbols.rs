//! Check that every prefix a grammar allows can be completed.
//!
//! A symbol is *productive* if some finite text is derived from the symbol; a rule that only leads back to
//! itself (`a: "x" a`, a `$ref` cycle) and a terminal that matches nothing are not productive. A rule that
//! consumes input and then requires an unproductive symbol would lead an answer into a dead end, so such
//! grammars are rejected. A rule that begins with the unproductive symbol consumes no input and is harmless.

use llguidance::earley::{CGrammar, CSymIdx};

/// Rejection of a grammar without derivations.
pub(super) const NOTHING: &str =
    "allows no answer: it leads back to itself, or what it asks for contradicts itself";
/// Rejection of a grammar with prefixes that cannot be completed.
pub(super) const ENDLESS: &str = "cannot be completed: a part that it requires leads back to itself for ever, or contradicts itself";

/// Rejects a grammar with dead ends. `empty` lists by lexeme number the terminals that match nothing.
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
                if !productive[part.as_index()] {
                    if at > 0 {
                        return Err(ENDLESS);
                    }
                    break;
                }
            }
        }
    }
    Ok(())
}

/// A rule with its left and right side.
struct ProductionRule<'g> {
    of: CSymIdx,
    parts: &'g [CSymIdx],
}

/// All rules of reachable symbols.
fn rules(grammar: &CGrammar) -> Vec<ProductionRule<'_>> {
    let mut rules = Vec::new();
    let mut seen = std::collections::HashSet::from([grammar.start()]);
    let mut waiting = vec![grammar.start()];
    while let Some(of) = waiting.pop() {
        for &rule in grammar.rules_of(of) {
            let parts = grammar.rule_rhs(rule).0;
            rules.push(ProductionRule { of, parts });
            waiting.extend(parts.iter().filter(|part| seen.insert(**part)));
        }
    }
    rules
}

/// For each symbol, whether the symbol derives a finite text.
fn productive(grammar: &CGrammar, rules: &[ProductionRule<'_>], empty: &[bool]) -> Vec<bool> {
    let symbols = rules.iter().flat_map(|rule| rule.parts.iter().copied());
    let symbols = symbols.chain(rules.iter().map(|rule| rule.of));
    let most = symbols.clone().map(|symbol| symbol.as_index()).max();
    let count = most.unwrap_or(0).max(grammar.start().as_index()) + 1;
    let mut productive = vec![false; count];
    // Rules by the symbols on their right sides, and for each rule the number of symbols not yet known to be
    // productive.
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

/// Whether a symbol is a terminal that matches something, or is nullable.
fn ends_by_itself(grammar: &CGrammar, symbol: CSymIdx, empty: &[bool]) -> bool {
    let symbol = grammar.sym_data(symbol);
    match symbol.lexeme {
        Some(lexeme) => !empty.get(lexeme.as_usize()).copied().unwrap_or(false),
        None => symbol.is_nullable || !symbol.cond_nullable.is_empty(),
    }
}
