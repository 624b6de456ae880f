//! A GBNF grammar as expressions.

use super::char_set::CharSet;

/// Nesting of groups.
pub const GBNF_DEPTH_MAX: usize = 128;
/// Rules of a grammar.
pub const GBNF_RULES_MAX: usize = 1024;
/// Count of a repetition, as in llama.cpp.
pub const GBNF_REPEAT_MAX: u32 = 2000;

/// Number of an expression that may become one terminal.
pub(super) type ExpressionId = usize;

/// The right side of a rule.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// One character.
    Chars(CharSet),
    /// A text of at least one character.
    Literal(ExpressionId, Vec<char>),
    /// The rule with this number.
    Rule(usize),
    Sequence(Vec<Expression>),
    Choice(Vec<Expression>),
    /// Something again and again, `min` times at least and `max` times at most.
    Repeat {
        id: ExpressionId,
        body: Box<Expression>,
        min: u32,
        max: Option<u32>,
    },
}

/// One rule.
#[derive(Debug)]
pub(super) struct GbnfRule {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) body: Expression,
}

/// All rules of a grammar.
#[derive(Debug)]
pub(super) struct GbnfGrammar {
    pub(super) rules: Vec<GbnfRule>,
    /// Number of the rule that an answer is derived from.
    pub(super) root: usize,
}

/// Whether a character may be in the name of a rule.
pub(super) fn is_name_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '-' | '_')
}

impl Expression {
    /// Whether the expression derives the empty text, where the rules that do are known.
    pub(super) fn is_nullable(&self, rules: &[bool]) -> bool {
        match self {
            Self::Chars(_) | Self::Literal(..) => false,
            Self::Rule(rule) => rules[*rule],
            Self::Sequence(parts) => parts.iter().all(|part| part.is_nullable(rules)),
            Self::Choice(parts) => parts.iter().any(|part| part.is_nullable(rules)),
            Self::Repeat { body, min, max, .. } => {
                *min == 0 || *max == Some(0) || body.is_nullable(rules)
            }
        }
    }

    /// Calls `visit` with the rules in the expression.
    pub(super) fn each_rule(&self, visit: &mut impl FnMut(usize)) {
        match self {
            Self::Chars(_) | Self::Literal(..) => {}
            Self::Rule(rule) => visit(*rule),
            Self::Sequence(parts) | Self::Choice(parts) => {
                parts.iter().for_each(|part| part.each_rule(visit));
            }
            Self::Repeat { body, .. } => body.each_rule(visit),
        }
    }
}

impl GbnfGrammar {
    /// For each rule, whether the rule derives the empty text.
    pub(super) fn nullable_rules(&self) -> Vec<bool> {
        let mut nullable = vec![false; self.rules.len()];
        loop {
            let mut has_changed = false;
            for (i, rule) in self.rules.iter().enumerate() {
                if !nullable[i] && rule.body.is_nullable(&nullable) {
                    (nullable[i], has_changed) = (true, true);
                }
            }
            if !has_changed {
                return nullable;
            }
        }
    }
}
