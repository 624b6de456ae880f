//! The parser of GBNF, and a grammar as expressions.

use super::lexeme::CharSet;
use crate::grammar::error::GrammarError;
use std::collections::HashMap;

/// The rule that an answer is derived from.
const ROOT: &str = "root";

/// Parses a grammar.
///
/// # Errors
/// The first error, with line and column.
pub(super) fn parse(text: &str) -> Result<GbnfGrammar, GrammarError> {
    let mut parser = GbnfParser {
        chars: text.chars().collect(),
        at: 0,
        ids: 0,
        names: HashMap::new(),
        rules: Vec::new(),
    };
    parser.skip_space(true);
    while parser.peek().is_some() {
        parser.rule()?;
    }
    parser.finish()
}

/// A rule that is referred to, and perhaps defined.
struct NamedRule {
    name: String,
    /// Where the name is first.
    at: usize,
    line: usize,
    body: Option<Expression>,
}

struct GbnfParser {
    chars: Vec<char>,
    at: usize,
    /// Numbers of expressions that were given away.
    ids: usize,
    names: HashMap<String, usize>,
    rules: Vec<NamedRule>,
}

impl GbnfParser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, char: char) -> bool {
        let is_next = self.peek() == Some(char);
        self.at += usize::from(is_next);
        is_next
    }

    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.chars[..at.min(self.chars.len())];
        let line = 1 + before.iter().filter(|&&char| char == '\n').count();
        let start = before.iter().rposition(|&char| char == '\n');
        (line, at - start.map_or(0, |start| start + 1) + 1)
    }

    fn error_at(&self, at: usize, why: impl std::fmt::Display) -> GrammarError {
        let (line, column) = self.position(at);
        GrammarError::whole(format!("GBNF, line {line}, column {column}: {why}"))
    }

    fn expected(&self, what: &str) -> GrammarError {
        let found = match self.peek() {
            Some(char) => format!("{char:?}"),
            None => "the end".to_owned(),
        };
        self.error_at(self.at, format_args!("expected {what}, found {found}"))
    }

    /// Skips spaces and comments; line ends only if `lines`.
    fn skip_space(&mut self, lines: bool) {
        while let Some(char) = self.peek() {
            match char {
                ' ' | '\t' => self.at += 1,
                '\n' | '\r' if lines => self.at += 1,
                '#' => {
                    while self.peek().is_some_and(|char| !matches!(char, '\n' | '\r')) {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        let start = self.at;
        while self.peek().is_some_and(is_name_char) {
            self.at += 1;
        }
        if start < self.at {
            Ok(self.chars[start..self.at].iter().collect())
        } else {
            Err(self.expected("a rule's name"))
        }
    }

    /// The number of a rule, which may be defined later.
    fn rule_number(&mut self, name: String, at: usize) -> Result<usize, GrammarError> {
        if let Some(&number) = self.names.get(&name) {
            return Ok(number);
        }
        if self.rules.len() == GBNF_RULES_MAX {
            let why = format!("more than {GBNF_RULES_MAX} (GBNF_RULES_MAX) rules");
            return Err(self.error_at(at, why));
        }
        let (line, _) = self.position(at);
        self.names.insert(name.clone(), self.rules.len());
        self.rules.push(NamedRule {
            name,
            at,
            line,
            body: None,
        });
        Ok(self.rules.len() - 1)
    }

    fn rule(&mut self) -> Result<(), GrammarError> {
        let at = self.at;
        let name = self.name()?;
        self.skip_space(false);
        for char in "::=".chars() {
            if !self.take(char) {
                return Err(self.expected("\"::=\" after the rule's name"));
            }
        }
        self.skip_space(true);
        let number = self.rule_number(name, at)?;
        let body = self.choice(0)?;
        if self.peek().is_some_and(|char| !matches!(char, '\n' | '\r')) {
            return Err(self.expected("the end of the line"));
        }
        self.skip_space(true);
        let (line, _) = self.position(at);
        if self.rules[number].body.is_some() {
            let why = format!("rule {:?} is defined twice", self.rules[number].name);
            return Err(self.error_at(at, why));
        }
        (self.rules[number].body, self.rules[number].line) = (Some(body), line);
        Ok(())
    }

    /// Alternatives; in a group, lines may end anywhere.
    fn choice(&mut self, depth: usize) -> Result<Expression, GrammarError> {
        if depth > GBNF_DEPTH_MAX {
            let why = format!("groups are nested more than {GBNF_DEPTH_MAX} (GBNF_DEPTH_MAX) deep");
            return Err(self.error_at(self.at, why));
        }
        let mut parts = vec![self.sequence(depth)?];
        while self.take('|') {
            self.skip_space(true);
            parts.push(self.sequence(depth)?);
        }
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => Expression::Choice(parts),
        })
    }

    fn sequence(&mut self, depth: usize) -> Result<Expression, GrammarError> {
        let mut parts = Vec::new();
        while let Some(part) = self.atom(depth)? {
            self.skip_space(depth > 0);
            parts.push(self.repeated(part, depth)?);
        }
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => Expression::Sequence(parts),
        })
    }

    /// A literal, class, name or group; `None`: there is none.
    fn atom(&mut self, depth: usize) -> Result<Option<Expression>, GrammarError> {
        let at = self.at;
        let atom = match self.peek() {
            Some('"') => self.literal()?,
            Some('[') => self.class()?,
            Some('.') => {
                self.at += 1;
                Expression::Chars(CharSet::all())
            }
            Some('(') => {
                self.at += 1;
                self.skip_space(true);
                let inner = self.choice(depth + 1)?;
                if !self.take(')') {
                    return Err(self.expected("\")\""));
                }
                inner
            }
            Some('<' | '!') => {
                let why = "token references (\"<\") are not supported; write the token's text";
                return Err(self.error_at(at, why));
            }
            Some(char) if is_name_char(char) => {
                let name = self.name()?;
                Expression::Rule(self.rule_number(name, at)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(atom))
    }

    fn literal(&mut self) -> Result<Expression, GrammarError> {
        let (start, mut chars) = (self.at, Vec::new());
        self.at += 1;
        while !self.take('"') {
            if matches!(self.peek(), None | Some('\n' | '\r')) {
                return Err(self.error_at(start, "the literal has no closing '\"' on its line"));
            }
            chars.push(self.char()?);
        }
        Ok(match chars.as_slice() {
            [] => Expression::Sequence(Vec::new()),
            [char] => Expression::Chars(CharSet::single(*char)),
            _ => Expression::Literal(self.next_id(), chars),
        })
    }

    fn class(&mut self) -> Result<Expression, GrammarError> {
        let (start, mut ranges) = (self.at, Vec::new());
        self.at += 1;
        let is_negated = self.take('^');
        while !self.take(']') {
            if matches!(self.peek(), None | Some('\n' | '\r')) {
                return Err(self.error_at(start, "the class has no closing \"]\" on its line"));
            }
            let (at, low) = (self.at, self.char()?);
            let is_range = self.peek() == Some('-') && self.chars.get(self.at + 1) != Some(&']');
            let high = if is_range {
                self.at += 1;
                self.char()?
            } else {
                low
            };
            if high < low {
                let why = format!("the range {low:?} to {high:?} is empty");
                return Err(self.error_at(at, why));
            }
            ranges.push((u32::from(low), u32::from(high)));
        }
        let set = if is_negated {
            CharSet::of(ranges).complement()
        } else {
            CharSet::of(ranges)
        };
        if set.is_empty() {
            return Err(self.error_at(start, "the class has no character"));
        }
        Ok(Expression::Chars(set))
    }

    /// A character of a literal or class, perhaps escaped.
    fn char(&mut self) -> Result<char, GrammarError> {
        let at = self.at;
        let char = self.peek().ok_or_else(|| self.expected("a character"))?;
        self.at += 1;
        if char != '\\' {
            return Ok(char);
        }
        let escape = self.peek().ok_or_else(|| self.expected("an escape"))?;
        self.at += 1;
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'n' => return Ok('\n'),
            '\\' | '"' | '[' | ']' => return Ok(escape),
            _ => {
                let why = format!(
                    "unknown escape \\{escape}: use \\n, \\r, \\t, \\\\, \\\", \\[, \\], \\xHH, \\uHHHH or \\UHHHHHHHH"
                );
                return Err(self.error_at(at, why));
            }
        };
        let text: String = self.chars.iter().skip(self.at).take(digits).collect();
        self.at += digits;
        let is_hex = text.len() == digits && text.chars().all(|char| char.is_ascii_hexdigit());
        let value = is_hex
            .then(|| u32::from_str_radix(&text, 16).ok())
            .flatten();
        value.and_then(char::from_u32).ok_or_else(|| {
            let why = format!("\\{escape} needs {digits} hexadecimal digits of a character");
            self.error_at(at, why)
        })
    }

    fn next_id(&mut self) -> usize {
        self.ids += 1;
        self.ids
    }

    /// An expression with the repetitions behind it.
    fn repeated(&mut self, mut body: Expression, depth: usize) -> Result<Expression, GrammarError> {
        let mut repetitions = 0;
        loop {
            let at = self.at;
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.counts()?,
                _ => return Ok(body),
            };
            repetitions += 1;
            if repetitions > GBNF_DEPTH_MAX {
                let why =
                    format!("more than {GBNF_DEPTH_MAX} (GBNF_DEPTH_MAX) repetitions in a row");
                return Err(self.error_at(at, why));
            }
            self.at += 1;
            self.skip_space(depth > 0);
            body = Expression::Repeat {
                id: self.next_id(),
                body: Box::new(body),
                min,
                max,
            };
        }
    }

    /// `{m}`, `{m,}` or `{m,n}` up to the closing brace.
    fn counts(&mut self) -> Result<(u32, Option<u32>), GrammarError> {
        let start = self.at;
        self.at += 1;
        self.skip_space(false);
        let min = self.count()?;
        self.skip_space(false);
        let mut max = Some(min);
        if self.take(',') {
            self.skip_space(false);
            max = match self.peek() {
                Some(char) if char.is_ascii_digit() => Some(self.count()?),
                _ => None,
            };
            self.skip_space(false);
        }
        if self.peek() != Some('}') {
            return Err(self.expected("\"}\""));
        }
        if max.is_some_and(|max| max < min) {
            return Err(self.error_at(start, "the repetition's maximum is less than its minimum"));
        }
        Ok((min, max))
    }

    fn count(&mut self) -> Result<u32, GrammarError> {
        let start = self.at;
        while self.peek().is_some_and(|char| char.is_ascii_digit()) {
            self.at += 1;
        }
        if start == self.at {
            return Err(self.expected("a number of repetitions"));
        }
        let digits: String = self.chars[start..self.at].iter().collect();
        let count = digits
            .parse()
            .ok()
            .filter(|&count| count <= GBNF_REPEAT_MAX);
        count.ok_or_else(|| {
            let why = format!("{digits} repetitions; at most {GBNF_REPEAT_MAX} (GBNF_REPEAT_MAX)");
            self.error_at(start, why)
        })
    }

    fn finish(self) -> Result<GbnfGrammar, GrammarError> {
        let root = self.names.get(ROOT).copied();
        let undefined = self.rules.iter().find(|rule| rule.body.is_none());
        if let Some(rule) = undefined {
            let why = format!("rule {:?} is not defined", rule.name);
            return Err(self.error_at(rule.at, why));
        }
        let root = root.ok_or_else(|| GrammarError::whole("GBNF: has no rule \"root\""))?;
        let rules = self.rules.into_iter().filter_map(|rule| {
            Some(GbnfRule {
                name: rule.name,
                line: rule.line,
                body: rule.body?,
            })
        });
        Ok(GbnfGrammar {
            rules: rules.collect(),
            root,
        })
    }
}

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
