//! Regular expressions that may become terminals, as automata over sets of characters.

use super::parser::Expression;
use std::collections::HashSet;
use std::fmt::Write;

/// StateSet of the automaton of one terminal.
const STATES_MAX: usize = 512;
/// Pairs of sets of states that are compared for two terminals.
const PAIRS_MAX: usize = 2000;

/// The overlap of terminals that are not compared to the end.
const UNKNOWN: Overlap = Overlap {
    continuing: None,
    has_common: true,
};

/// A nondeterministic automaton over characters.
pub(super) struct Lexeme {
    states: Vec<LexemeState>,
    accept: usize,
}

#[derive(Default)]
struct LexemeState {
    /// Where a character leads.
    edges: Vec<(CharSet, usize)>,
    /// Where nothing leads.
    empty: Vec<usize>,
}

/// StateSet that an automaton is in, sorted.
type StateSet = Vec<usize>;

/// Texts that two terminals have in common at one place.
#[derive(Clone, Debug)]
pub(super) struct Overlap {
    /// Characters that continue a text of the second one behind a whole text of the first one; `None`: not known.
    pub(super) continuing: Option<CharSet>,
    /// Whether a text may be both.
    pub(super) has_common: bool,
}

impl Lexeme {
    /// The automaton of an expression without rules; `None`: has too many states.
    pub(super) fn of(expression: &Expression) -> Option<Self> {
        let mut lexeme = Self {
            states: vec![LexemeState::default()],
            accept: 0,
        };
        lexeme.accept = lexeme.add(expression, 0)?;
        Some(lexeme)
    }

    fn state(&mut self) -> Option<usize> {
        self.states.push(LexemeState::default());
        (self.states.len() <= STATES_MAX).then(|| self.states.len() - 1)
    }

    /// Adds an expression behind state `from`, and returns the state behind it.
    fn add(&mut self, expression: &Expression, from: usize) -> Option<usize> {
        match expression {
            Expression::Chars(set) => self.add_char(set.clone(), from),
            Expression::Literal(_, chars) => chars.iter().try_fold(from, |from, &char| {
                self.add_char(CharSet::single(char), from)
            }),
            Expression::Rule(_) => None,
            Expression::Sequence(parts) => parts
                .iter()
                .try_fold(from, |from, part| self.add(part, from)),
            Expression::Choice(parts) => {
                let end = self.state()?;
                for part in parts {
                    let last = self.add(part, from)?;
                    self.states[last].empty.push(end);
                }
                Some(end)
            }
            Expression::Repeat { body, min, max, .. } => self.add_repeat(body, (*min, *max), from),
        }
    }

    fn add_char(&mut self, set: CharSet, from: usize) -> Option<usize> {
        let next = self.state()?;
        self.states[from].edges.push((set, next));
        Some(next)
    }

    fn add_repeat(
        &mut self,
        body: &Expression,
        (min, max): (u32, Option<u32>),
        from: usize,
    ) -> Option<usize> {
        let mut at = from;
        for _ in 0..min {
            at = self.add(body, at)?;
        }
        match max {
            None => {
                // A state of its own, so that nothing before it is entered again.
                let loop_start = self.state()?;
                self.states[at].empty.push(loop_start);
                let last = self.add(body, loop_start)?;
                self.states[last].empty.push(loop_start);
                Some(loop_start)
            }
            Some(max) => {
                let end = self.state()?;
                self.states[at].empty.push(end);
                for _ in min..max {
                    let start = self.state()?;
                    self.states[at].empty.push(start);
                    at = self.add(body, start)?;
                    self.states[at].empty.push(end);
                }
                Some(end)
            }
        }
    }

    /// Characters that a text begins with.
    pub(super) fn first_chars(&self) -> CharSet {
        self.outgoing(&self.closure(vec![0]))
    }

    fn closure(&self, mut waiting: Vec<usize>) -> StateSet {
        let (mut states, mut seen) = (StateSet::new(), vec![false; self.states.len()]);
        while let Some(state) = waiting.pop() {
            if !std::mem::replace(&mut seen[state], true) {
                states.push(state);
                waiting.extend(&self.states[state].empty);
            }
        }
        states.sort_unstable();
        states
    }

    fn edges<'a>(&'a self, states: &'a StateSet) -> impl Iterator<Item = &'a (CharSet, usize)> {
        states
            .iter()
            .flat_map(move |&state| &self.states[state].edges)
    }

    fn outgoing(&self, states: &StateSet) -> CharSet {
        let sets = self.edges(states).map(|(set, _)| set);
        sets.fold(CharSet::default(), |all, set| all.union(set))
    }

    fn step(&self, states: &StateSet, char: u32) -> StateSet {
        let edges = self.edges(states).filter(|(set, _)| set.has(char));
        self.closure(edges.map(|(_, next)| *next).collect())
    }

    /// Texts that this terminal and another one have in common, where both begin at the same place. Takes the pairs that are
    /// compared from `work`, and is not known where that is used up.
    pub(super) fn overlap(&self, other: &Self, work: &mut usize) -> Overlap {
        let (mut continuing, mut has_common) = (CharSet::default(), false);
        let mut seen = HashSet::new();
        let mut waiting = vec![(self.closure(vec![0]), other.closure(vec![0]))];
        while let Some(pair) = waiting.pop() {
            if !seen.insert(pair.clone()) {
                continue;
            }
            if seen.len() > PAIRS_MAX || *work == 0 {
                return UNKNOWN;
            }
            *work -= 1;
            let (own, others) = pair;
            if own.contains(&self.accept) {
                continuing = continuing.union(&other.outgoing(&others));
                has_common |= others.contains(&other.accept);
            }
            let sets = self.edges(&own).chain(other.edges(&others));
            let mut starts: Vec<u32> = sets.flat_map(|(set, _)| set.boundaries()).collect();
            starts.sort_unstable();
            starts.dedup();
            for start in starts {
                let next = (self.step(&own, start), other.step(&others, start));
                if !next.0.is_empty() && !next.1.is_empty() {
                    waiting.push(next);
                }
            }
        }
        Overlap {
            continuing: Some(continuing),
            has_common,
        }
    }
}

/// Ranges of Unicode scalar values, inclusive, sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CharSet(Vec<(u32, u32)>);

/// All characters: no surrogates.
const ALL: [(u32, u32); 2] = [(0, 0xD7FF), (0xE000, 0x10_FFFF)];

impl CharSet {
    /// These ranges, in any order.
    pub(super) fn of(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }

    pub(super) fn single(char: char) -> Self {
        Self(vec![(char.into(), char.into())])
    }

    /// Every character.
    pub(super) fn all() -> Self {
        Self(ALL.to_vec())
    }

    /// Every character that is not in the set.
    pub(super) fn complement(&self) -> Self {
        let mut left = Vec::new();
        for (low, high) in ALL {
            let mut from = low;
            for &(start, end) in &self.0 {
                if end < from || start > high {
                    continue;
                }
                if start > from {
                    left.push((from, start - 1));
                }
                from = end + 1;
            }
            if from <= high {
                left.push((from, high));
            }
        }
        Self(left)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        Self::of([self.0.as_slice(), &other.0].concat())
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        let meets = |a: &(u32, u32)| other.0.iter().any(|b| a.0 <= b.1 && b.0 <= a.1);
        self.0.iter().any(meets)
    }

    pub(super) fn has(&self, value: u32) -> bool {
        self.0
            .iter()
            .any(|&(low, high)| (low..=high).contains(&value))
    }

    /// The first value of each range, and the first one behind each range.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|&(low, high)| [low, high + 1])
    }

    /// The set as a class of a regular expression.
    pub(super) fn write_regex(&self, out: &mut String) {
        out.push('[');
        for &(low, high) in &self.0 {
            // A string takes everything.
            let _ = write!(out, "\\x{{{low:x}}}-\\x{{{high:x}}}");
        }
        out.push(']');
    }
}
