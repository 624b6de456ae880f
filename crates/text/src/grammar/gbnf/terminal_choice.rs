//! The choice of terminals: as large as the longest match allows.
//!
//! A terminal `B` is in conflict with a terminal `A` (or with itself) that is possible at the same place, if a text of `A`
//! can go on as a text of `B` with a character that may also follow `A`: the lexer would take the longer one, and the
//! shorter one may be right. `B` is then written out: a literal as its characters, a repetition as a repetition of its
//! parts. Single characters are in conflict with nothing.

use super::lexeme::{CharSet, Lexeme, Overlap};
use super::parser::{Expression, ExpressionId, GbnfGrammar};
use super::terminal_flow::{GrammarNode, TerminalFlow};
use crate::grammar::error::GrammarError;
use std::collections::{HashMap, HashSet};

/// Places of terminals in a grammar. The work for a grammar grows with the square.
pub const GBNF_TERMINALS_MAX: usize = 1024;
/// Parts of a repetition that may become one terminal.
const PARTS_MAX: usize = 256;
/// Rounds in which terminals in conflict are written out; then all are.
const ROUNDS_MAX: usize = 16;
/// Comparisons of states of automata for one grammar; about 50 per millisecond.
pub const GBNF_COMPARISONS_MAX: usize = 50_000;

/// The terminals and rules of a grammar.
pub(super) struct ChosenTerminals {
    /// The regular expression of each terminal.
    pub(super) terminals: Vec<String>,
    /// By rule; a terminal's number is that of its regular expression.
    pub(super) rules: Vec<GrammarNode>,
}

/// Chooses the terminals.
///
/// # Errors
/// There are more places of terminals than [`GBNF_TERMINALS_MAX`].
pub(super) fn choose(grammar: &GbnfGrammar) -> Result<ChosenTerminals, GrammarError> {
    let recursive = recursive_rules(grammar);
    let (mut written_out, mut work) = (HashSet::new(), GBNF_COMPARISONS_MAX);
    for round in 0.. {
        let mut lowering = Lowering {
            grammar,
            recursive: &recursive,
            written_out: &written_out,
            writes_all: round >= ROUNDS_MAX,
            regexes: Regexes {
                work,
                ..Regexes::default()
            },
            places: Vec::new(),
        };
        let bodies = grammar.rules.iter().map(|rule| lowering.lower(&rule.body));
        let rules = bodies.collect::<Result<Vec<GrammarNode>, GrammarError>>()?;
        let conflicts = lowering.conflicts(&rules);
        work = lowering.regexes.work;
        if work == 0 {
            break;
        }
        if conflicts.is_empty() {
            let places = &lowering.places;
            let rules = rules.iter().map(|rule| by_regex(rule, places)).collect();
            return Ok(ChosenTerminals {
                terminals: lowering.regexes.texts,
                rules,
            });
        }
        written_out.extend(conflicts);
    }
    Err(GrammarError::whole(format!(
        "GBNF: comparing its repetitions and literals takes more than {GBNF_COMPARISONS_MAX} (GBNF_COMPARISONS_MAX) steps"
    )))
}

/// Rules that may contain themselves.
fn recursive_rules(grammar: &GbnfGrammar) -> Vec<bool> {
    let parts: Vec<Vec<usize>> = grammar
        .rules
        .iter()
        .map(|rule| {
            let mut parts = Vec::new();
            rule.body.each_rule(&mut |rule| parts.push(rule));
            parts.sort_unstable();
            parts.dedup();
            parts
        })
        .collect();
    let reaches_itself = |start: usize| {
        let (mut seen, mut waiting) = (vec![false; parts.len()], parts[start].clone());
        while let Some(next) = waiting.pop() {
            if next == start {
                return true;
            }
            if !std::mem::replace(&mut seen[next], true) {
                waiting.extend(&parts[next]);
            }
        }
        false
    };
    (0..parts.len()).map(reaches_itself).collect()
}

/// The place of a terminal.
struct TerminalPlace {
    /// Number of the regular expression.
    regex: usize,
    /// The expression that can be written out; `None`: a single character.
    id: Option<ExpressionId>,
}

/// The distinct regular expressions.
#[derive(Default)]
struct Regexes {
    numbers: HashMap<String, usize>,
    texts: Vec<String>,
    lexemes: Vec<Lexeme>,
    overlaps: HashMap<(usize, usize), Overlap>,
    /// Comparisons that are left.
    work: usize,
}

impl Regexes {
    fn number(&mut self, expression: &Expression) -> Option<usize> {
        let mut text = String::new();
        write_regex(expression, &mut text);
        if let Some(&number) = self.numbers.get(&text) {
            return Some(number);
        }
        self.lexemes.push(Lexeme::of(expression)?);
        self.texts.push(text.clone());
        self.numbers.insert(text, self.texts.len() - 1);
        Some(self.texts.len() - 1)
    }

    fn overlap(&mut self, a: usize, b: usize) -> &Overlap {
        let (lexemes, work) = (&self.lexemes, &mut self.work);
        let overlap = || lexemes[a].overlap(&lexemes[b], work);
        self.overlaps.entry((a, b)).or_insert_with(overlap)
    }
}

/// Rules on their way from expressions to terminals.
struct Lowering<'g> {
    grammar: &'g GbnfGrammar,
    recursive: &'g [bool],
    written_out: &'g HashSet<ExpressionId>,
    /// Whether every terminal is a single character.
    writes_all: bool,
    regexes: Regexes,
    places: Vec<TerminalPlace>,
}

impl Lowering<'_> {
    fn lower(&mut self, expression: &Expression) -> Result<GrammarNode, GrammarError> {
        match expression {
            Expression::Chars(_) => self.terminal(expression, None),
            Expression::Rule(rule) => Ok(GrammarNode::Rule(*rule)),
            Expression::Sequence(parts) => self.lower_all(parts).map(GrammarNode::Sequence),
            Expression::Choice(parts) => self.lower_all(parts).map(GrammarNode::Choice),
            Expression::Literal(id, chars) => {
                if self.may_be_terminal(*id) && self.regexes.number(expression).is_some() {
                    return self.terminal(expression, Some(*id));
                }
                let chars = chars.iter().map(|&char| CharSet::single(char));
                let parts: Vec<_> = chars.map(Expression::Chars).collect();
                self.lower_all(&parts).map(GrammarNode::Sequence)
            }
            Expression::Repeat { max: Some(0), .. } => Ok(GrammarNode::Sequence(Vec::new())),
            Expression::Repeat { id, body, min, max } => {
                if self.may_be_terminal(*id)
                    && let Some(regular) = self.regular(body, &mut 0)
                    && !regular.is_nullable(&[])
                {
                    let once = Expression::Repeat {
                        id: *id,
                        body: Box::new(regular),
                        min: (*min).max(1),
                        max: *max,
                    };
                    if self.regexes.number(&once).is_some() {
                        let terminal = self.terminal(&once, Some(*id))?;
                        return Ok(match min {
                            0 => GrammarNode::Repeat(Box::new(terminal), 0, Some(1)),
                            _ => terminal,
                        });
                    }
                }
                let body = self.lower(body)?;
                Ok(GrammarNode::Repeat(Box::new(body), *min, *max))
            }
        }
    }

    fn may_be_terminal(&self, id: ExpressionId) -> bool {
        !self.writes_all && !self.written_out.contains(&id)
    }

    fn lower_all(&mut self, parts: &[Expression]) -> Result<Vec<GrammarNode>, GrammarError> {
        parts.iter().map(|part| self.lower(part)).collect()
    }

    fn terminal(
        &mut self,
        expression: &Expression,
        id: Option<ExpressionId>,
    ) -> Result<GrammarNode, GrammarError> {
        let too_many = || {
            GrammarError::whole(format!(
                "GBNF: has more than {GBNF_TERMINALS_MAX} (GBNF_TERMINALS_MAX) literals, character classes and \
                 repetitions, where characters of a literal that is the beginning of another one are counted one by one"
            ))
        };
        let regex = self.regexes.number(expression).ok_or_else(too_many)?;
        if self.places.len() == GBNF_TERMINALS_MAX {
            return Err(too_many());
        }
        self.places.push(TerminalPlace { regex, id });
        Ok(GrammarNode::Terminal(self.places.len() - 1))
    }

    /// The expression without rules; `None`: there is none, or one with too many `parts`.
    fn regular(&self, expression: &Expression, parts: &mut usize) -> Option<Expression> {
        *parts += 1;
        if *parts > PARTS_MAX {
            return None;
        }
        let mut all = |list: &[Expression]| -> Option<Vec<Expression>> {
            list.iter().map(|part| self.regular(part, parts)).collect()
        };
        match expression {
            Expression::Chars(_) | Expression::Literal(..) => Some(expression.clone()),
            Expression::Rule(rule) if self.recursive[*rule] => None,
            Expression::Rule(rule) => self.regular(&self.grammar.rules[*rule].body, parts),
            Expression::Sequence(list) => all(list).map(Expression::Sequence),
            Expression::Choice(list) => all(list).map(Expression::Choice),
            Expression::Repeat { id, body, min, max } => Some(Expression::Repeat {
                id: *id,
                body: Box::new(self.regular(body, parts)?),
                min: *min,
                max: *max,
            }),
        }
    }

    /// The expressions that have to be written out.
    fn conflicts(&mut self, rules: &[GrammarNode]) -> HashSet<ExpressionId> {
        let (places, regexes) = (&self.places, &mut self.regexes);
        let flow = TerminalFlow::of(rules, self.grammar.root, places.len(), |a, b| {
            let overlap = regexes.overlap(places[a].regex, places[b].regex);
            overlap.has_common
        });
        let mut conflicts = HashSet::new();
        for (a, beside) in flow.beside.iter().enumerate() {
            let next = flow.follow[a].iter();
            let next = next.map(|next| regexes.lexemes[places[next].regex].first_chars());
            let next = next.fold(CharSet::default(), |all, chars| all.union(&chars));
            for b in beside.iter() {
                let Some(id) = places[b].id else {
                    continue;
                };
                let overlap = regexes.overlap(places[a].regex, places[b].regex);
                let continuing = overlap.continuing.as_ref();
                if continuing.is_none_or(|continuing| continuing.intersects(&next)) {
                    conflicts.insert(id);
                }
            }
        }
        conflicts
    }
}

/// The rule with numbers of regular expressions in place of those of places.
fn by_regex(node: &GrammarNode, places: &[TerminalPlace]) -> GrammarNode {
    let all = |parts: &[GrammarNode]| parts.iter().map(|part| by_regex(part, places)).collect();
    match node {
        GrammarNode::Terminal(place) => GrammarNode::Terminal(places[*place].regex),
        GrammarNode::Rule(rule) => GrammarNode::Rule(*rule),
        GrammarNode::Sequence(parts) => GrammarNode::Sequence(all(parts)),
        GrammarNode::Choice(parts) => GrammarNode::Choice(all(parts)),
        GrammarNode::Repeat(body, min, max) => {
            GrammarNode::Repeat(Box::new(by_regex(body, places)), *min, *max)
        }
    }
}

/// Writes an expression without rules as a regular expression.
fn write_regex(expression: &Expression, out: &mut String) {
    match expression {
        Expression::Chars(set) => set.write_regex(out),
        Expression::Literal(_, chars) => {
            for &char in chars {
                CharSet::single(char).write_regex(out);
            }
        }
        Expression::Rule(_) => {}
        Expression::Sequence(parts) => parts.iter().for_each(|part| write_group(part, out)),
        Expression::Choice(parts) => {
            for (i, part) in parts.iter().enumerate() {
                out.push_str(if i == 0 { "(?:" } else { "|" });
                write_regex(part, out);
            }
            out.push(')');
        }
        Expression::Repeat { body, min, max, .. } => {
            write_group(body, out);
            let counts = match (min, max) {
                (0, None) => "*".to_owned(),
                (1, None) => "+".to_owned(),
                (0, Some(1)) => "?".to_owned(),
                (min, None) => format!("{{{min},}}"),
                (min, Some(max)) => format!("{{{min},{max}}}"),
            };
            out.push_str(&counts);
        }
    }
}

fn write_group(expression: &Expression, out: &mut String) {
    out.push_str("(?:");
    write_regex(expression, out);
    out.push(')');
}
