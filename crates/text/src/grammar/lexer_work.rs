//! Checks of a compiled grammar before its first use: the lexer's work, and dead ends.
//!
//! llguidance takes derivatives of regular expressions and counts the work as fuel, but checks the fuel only
//! between derivatives, and one derivative may take minutes (80,000 times `a?`: 58 s). So the size of a
//! derivative is first estimated from the expression alone; then the first derivatives are taken with fuel.
//!
//! A symbol is *productive* if some finite text is derived from the symbol; a rule that only leads back to
//! itself (`a: "x" a`, a `$ref` cycle) and a terminal that matches nothing are not productive. A rule that
//! consumes input and then requires an unproductive symbol would lead an answer into a dead end, so such
//! grammars are rejected. A rule that begins with the unproductive symbol consumes no input and is harmless.

use super::error::GrammarRejection;
use llguidance::api::ParserLimits;
use llguidance::derivre::ExprRef;
use llguidance::derivre::raw::ExprSet;
use llguidance::earley::lexerspec::{LexemeIdx, LexerSpec};
use llguidance::earley::{CGrammar, CSymIdx};

/// Estimated regular expression nodes of one derivative of all terminals; about 50 per microsecond.
pub const DERIVATIVE_NODES_MAX: u64 = 8_000_000;
/// Intersected regular expressions in one terminal: `&` in Lark, `allOf` of patterns, a pattern beside a
/// format and a length. The size of the product grows exponentially with the number of factors.
pub const INTERSECTED_MAX: u64 = 16;
/// Work of the lexer before the first token, in llguidance's fuel; up to 100 ns per unit.
pub const LEXER_START_FUEL: u64 = 2_000_000;

// llguidance's numbers of expression kinds; `expression_kinds_equal_llguidance` checks the numbers.
const REPEAT: u8 = 9;
const CONCAT: u8 = 10;
const OR: u8 = 11;
const AND: u8 = 12;

/// Rejects a lexer whose estimated work exceeds a bound.
pub(super) fn check_size(spec: &LexerSpec) -> Result<(), GrammarRejection> {
    let (nodes, intersected) = LexerEstimates::of(spec.regex_builder.exprset()).of_terminals();
    if intersected > INTERSECTED_MAX {
        return Err(GrammarRejection::bound(format!(
            "intersects {intersected} regular expressions; at most {INTERSECTED_MAX} (INTERSECTED_MAX) are accepted"
        )));
    }
    if nodes > DERIVATIVE_NODES_MAX {
        return Err(GrammarRejection::bound(format!(
            "has regular expressions of which one step makes {nodes} nodes; at most {DERIVATIVE_NODES_MAX} \
             (DERIVATIVE_NODES_MAX) are accepted: write fewer optional parts in a row"
        )));
    }
    Ok(())
}

/// Takes the derivatives that llguidance takes without fuel when a parser is created. Returns for each terminal whether the
/// terminal matches nothing.
pub(super) fn first_derivatives(
    spec: &LexerSpec,
    limits: &ParserLimits,
) -> Result<Vec<bool>, GrammarRejection> {
    let mut lexer = spec
        .to_regex_vec(&mut limits.clone())
        .map_err(|error| GrammarRejection::of(&error))?;
    lexer.set_fuel(LEXER_START_FUEL);
    let start = lexer.initial_state(&spec.all_lexemes());
    for byte in 0..=u8::MAX {
        lexer.transition(start, byte);
        if lexer.has_error() {
            return Err(GrammarRejection::bound(format!(
                "has regular expressions that take more than {LEXER_START_FUEL} steps (LEXER_START_FUEL) before \
                 the first token"
            )));
        }
    }
    let empty = (0..spec.lexemes.len()).map(|number| {
        let mut alone = spec.alloc_lexeme_set();
        alone.add(LexemeIdx::new(number));
        lexer.initial_state(&alone).is_dead()
    });
    Ok(empty.collect())
}

/// The estimate of one expression.
#[derive(Clone, Copy, Default)]
struct ExpressionEstimate {
    /// Alternatives in the derivative.
    width: u64,
    /// Nodes that the derivative creates.
    nodes: u64,
    /// The largest `nodes` of any subexpression: later derivatives work on subexpressions.
    most: u64,
    /// Number of intersected expressions.
    intersected: u64,
}

/// Estimates of all expressions of a set; subexpressions have lower numbers.
struct LexerEstimates {
    all: Vec<ExpressionEstimate>,
    /// Whether the expression is a subexpression of another.
    is_part: Vec<bool>,
}

impl LexerEstimates {
    fn of(set: &ExprSet) -> Self {
        let mut all = Self {
            all: vec![ExpressionEstimate::default(); set.len() + 1],
            is_part: vec![false; set.len() + 1],
        };
        for number in 1..set.len() {
            let expression = ExprRef::new(number as u32);
            if set.is_valid(expression) {
                all.all[number] = all.estimate(set, expression);
                for part in set.get_args(expression) {
                    all.is_part[part.as_usize()] = true;
                }
            }
        }
        all
    }

    /// The largest number of nodes that one derivative of all terminals creates, and the largest number of
    /// intersected expressions in a terminal. An expression that is no subexpression is a terminal, or
    /// unused.
    fn of_terminals(&self) -> (u64, u64) {
        let whole = self.all.iter().zip(&self.is_part);
        let whole = whole
            .filter(|(_, is_part)| !**is_part)
            .map(|(estimate, _)| estimate);
        whole.fold((0, 0), |(nodes, intersected): (u64, u64), estimate| {
            (
                nodes.saturating_add(estimate.most),
                intersected.max(estimate.intersected),
            )
        })
    }

    fn get(&self, expression: ExprRef) -> ExpressionEstimate {
        self.all
            .get(expression.as_usize())
            .copied()
            .unwrap_or_default()
    }

    fn estimate(&self, set: &ExprSet, expression: ExprRef) -> ExpressionEstimate {
        let parts = set.get_args(expression);
        let sum = |of: fn(&ExpressionEstimate) -> u64| {
            let each = parts.iter().map(|&part| of(&self.get(part)));
            each.fold(0, u64::saturating_add)
        };
        let highest = |of: fn(&ExpressionEstimate) -> u64| {
            parts
                .iter()
                .map(|&part| of(&self.get(part)))
                .max()
                .unwrap_or(0)
        };
        let (width, nodes) = match (set.get_tag(expression) as u8, parts) {
            (CONCAT, &[first, _]) if !set.is_nullable(first) => {
                let first = self.get(first);
                (first.width, first.nodes.saturating_add(first.width))
            }
            (CONCAT, _) => {
                let width = sum(|part| part.width);
                (width, sum(|part| part.nodes).saturating_add(width))
            }
            (OR | REPEAT, _) => {
                let width = sum(|part| part.width);
                (width, sum(|part| part.nodes).saturating_add(width))
            }
            (AND, _) => (
                1,
                sum(|part| part.nodes).saturating_add(sum(|part| part.width)),
            ),
            _ => (1, sum(|part| part.nodes).saturating_add(1)),
        };
        ExpressionEstimate {
            width: width.max(1),
            nodes: nodes.max(1),
            most: nodes.max(1).max(highest(|part| part.most)),
            intersected: match set.get_tag(expression) as u8 {
                AND => sum(|part| part.intersected),
                _ => highest(|part| part.intersected).max(1),
            },
        }
    }
}

/// Bytes of a grammar or schema as received.
pub const GRAMMAR_BYTES_MAX: usize = 1 << 18;
/// Regular expression nodes that compilation may create; about 50 per microsecond.
pub const LEXER_FUEL: u64 = 1_000_000;
/// Symbols in the productions of a grammar. Compilation time grows quadratically: 0.7 s at this bound.
pub const GRAMMAR_SYMBOLS_MAX: usize = 25_000;
/// Work of the lexer for one mask; about 14 units per microsecond.
pub const MASK_FUEL: u64 = 200_000;
/// Work of the parser for one mask, in Earley items; about 20 per microsecond.
pub const MASK_ITEMS_MAX: usize = 50_000;
/// Earley items of one row: simultaneous positions in the grammar. An optional property that may come next
/// takes 4; time grows quadratically, 10 ms at this bound.
pub const ROW_ITEMS_MAX: usize = 10_000;
/// Lexer states that one answer may create, 1 to 2 KB each.
pub const LEXER_STATES_MAX: usize = 16_384;

/// Rejection of a grammar without derivations.
pub(super) const NOTHING: &str =
    "allows no answer: it leads back to itself, or what it asks for contradicts itself";
/// Rejection of a grammar with prefixes that cannot be completed.
const ENDLESS: &str = "cannot be completed: a part that it requires leads back to itself for ever, or contradicts itself";

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

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::derivre::RegexBuilder;

    #[test]
    fn expression_kinds_equal_llguidance() {
        for (regex, kind) in [
            ("(ab*c){2,3}", REPEAT),
            ("[ab]*c[de]", CONCAT),
            ("a[bc]*|[de]f", OR),
        ] {
            let mut builder = RegexBuilder::new();
            let expression = builder.mk_regex(regex).unwrap();
            assert_eq!(builder.exprset().get_tag(expression) as u8, kind, "{regex}");
        }
        let mut builder = RegexBuilder::new();
        let parts = ["[ab]*c", "a[bc]*"].map(|regex| builder.mk_regex(regex).unwrap());
        let both = parts.map(llguidance::derivre::RegexAst::ExprRef).to_vec();
        let both = builder
            .mk(&llguidance::derivre::RegexAst::And(both))
            .unwrap();
        assert_eq!(builder.exprset().get_tag(both) as u8, AND);
    }

    #[test]
    fn consecutive_optional_parts_are_estimated_quadratically() {
        let estimate = |regex: &str| {
            let mut builder = RegexBuilder::new();
            let expression = builder.mk_regex(regex).unwrap();
            LexerEstimates::of(builder.exprset()).get(expression).most
        };
        let (few, many) = (estimate(&"a?".repeat(100)), estimate(&"a?".repeat(1000)));
        assert!(few > 2_000 && few < 50_000, "{few}");
        assert!(many > 80 * few && many < 120 * few, "{few}, {many}");
        let behind = estimate(&format!("[a-z]{{8}}{}", "a?".repeat(1000)));
        assert!(
            behind >= many,
            "{behind}, {many}: also after what is taken before"
        );
        let words: Vec<String> = (0..20_000)
            .map(|i| format!("w{}", i * 7919 % 100_003))
            .collect();
        let words = estimate(&words.join("|"));
        assert!(words < 200_000, "{words}: alternatives are no row");
    }
}
