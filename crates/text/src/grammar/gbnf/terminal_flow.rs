//! Which terminals may follow one another, and which may be possible at the same place of a text.

/// A set of terminals, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TerminalSet(Vec<u64>);

/// A rule's body with terminals in place of texts.
#[derive(Clone, Debug)]
pub(super) enum GrammarNode {
    Terminal(usize),
    Rule(usize),
    Sequence(Vec<GrammarNode>),
    Choice(Vec<GrammarNode>),
    Repeat(Box<GrammarNode>, u32, Option<u32>),
}

/// Terminals at the edges of what a rule derives.
#[derive(Clone, PartialEq, Eq)]
struct RuleEdges {
    is_nullable: bool,
    first: TerminalSet,
    last: TerminalSet,
}

/// Terminals after terminals, and side by side.
pub(super) struct TerminalFlow {
    /// By terminal: those that may follow.
    pub(super) follow: Vec<TerminalSet>,
    /// By terminal: those that may be possible where that one is, itself among them.
    pub(super) beside: Vec<TerminalSet>,
}

impl TerminalSet {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, terminal: usize) {
        self.0[terminal / 64] |= 1 << (terminal % 64);
    }

    pub(super) fn has(&self, terminal: usize) -> bool {
        self.0[terminal / 64] >> (terminal % 64) & 1 == 1
    }

    /// Adds all of `other`; whether any of them is new.
    fn add(&mut self, other: &Self) -> bool {
        let mut has_changed = false;
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            has_changed |= *more & !*word != 0;
            *word |= more;
        }
        has_changed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len() * 64).filter(move |&terminal| self.has(terminal))
    }
}

impl TerminalFlow {
    /// Of these rules with `count` terminals. `has_common` tells whether a text may be either of two terminals.
    pub(super) fn of(
        rules: &[GrammarNode],
        root: usize,
        count: usize,
        mut has_common: impl FnMut(usize, usize) -> bool,
    ) -> Self {
        let edges = rule_edges(rules, count);
        let mut follow = vec![TerminalSet::new(count); count];
        for rule in rules {
            node_edges(rule, &edges, count, Some(follow.as_mut_slice()));
        }
        let mut beside = vec![TerminalSet::new(count); count];
        join(&mut beside, &edges[root].first, &edges[root].first);
        for next in &follow {
            join(&mut beside, next, next);
        }
        // After a text that is either of two terminals, what follows either one is possible.
        let mut done = vec![TerminalSet::new(count); count];
        loop {
            let mut has_changed = false;
            for a in 0..count {
                let new: Vec<usize> = beside[a].iter().filter(|&b| !done[a].has(b)).collect();
                for b in new {
                    done[a].insert(b);
                    if a != b && has_common(a, b) {
                        has_changed |= join(&mut beside, &follow[a], &follow[b]);
                        has_changed |= join(&mut beside, &follow[b], &follow[a]);
                    }
                }
            }
            if !has_changed {
                return Self { follow, beside };
            }
        }
    }
}

/// Notes that all of `a` are possible where all of `b` are; whether any of that is new.
fn join(beside: &mut [TerminalSet], a: &TerminalSet, b: &TerminalSet) -> bool {
    let mut has_changed = false;
    for terminal in a.iter() {
        has_changed |= beside[terminal].add(b);
    }
    has_changed
}

fn rule_edges(rules: &[GrammarNode], count: usize) -> Vec<RuleEdges> {
    let none = RuleEdges {
        is_nullable: false,
        first: TerminalSet::new(count),
        last: TerminalSet::new(count),
    };
    let mut edges = vec![none; rules.len()];
    loop {
        let mut has_changed = false;
        for (i, rule) in rules.iter().enumerate() {
            let found = node_edges(rule, &edges, count, None);
            has_changed |= found != edges[i];
            edges[i] = found;
        }
        if !has_changed {
            return edges;
        }
    }
}

/// The edges of a node, with those of the rules so far. Adds what follows what within the node to `follow`.
fn node_edges(
    node: &GrammarNode,
    rules: &[RuleEdges],
    count: usize,
    mut follow: Option<&mut [TerminalSet]>,
) -> RuleEdges {
    let mut edges = RuleEdges {
        is_nullable: false,
        first: TerminalSet::new(count),
        last: TerminalSet::new(count),
    };
    match node {
        GrammarNode::Terminal(terminal) => {
            edges.first.insert(*terminal);
            edges.last.insert(*terminal);
        }
        GrammarNode::Rule(rule) => edges = rules[*rule].clone(),
        GrammarNode::Choice(parts) => {
            for part in parts {
                let part = node_edges(part, rules, count, follow.as_deref_mut());
                edges.is_nullable |= part.is_nullable;
                edges.first.add(&part.first);
                edges.last.add(&part.last);
            }
        }
        GrammarNode::Sequence(parts) => {
            edges.is_nullable = true;
            for part in parts {
                let part = node_edges(part, rules, count, follow.as_deref_mut());
                note_follow(follow.as_deref_mut(), &edges.last, &part.first);
                if edges.is_nullable {
                    edges.first.add(&part.first);
                }
                if !part.is_nullable {
                    edges.last = TerminalSet::new(count);
                }
                edges.last.add(&part.last);
                edges.is_nullable &= part.is_nullable;
            }
        }
        GrammarNode::Repeat(body, min, max) => {
            edges = node_edges(body, rules, count, follow.as_deref_mut());
            if *max != Some(1) {
                note_follow(follow, &edges.last, &edges.first);
            }
            edges.is_nullable |= *min == 0;
        }
    }
    edges
}

fn note_follow(follow: Option<&mut [TerminalSet]>, last: &TerminalSet, first: &TerminalSet) {
    let Some(follow) = follow else {
        return;
    };
    for terminal in last.iter() {
        follow[terminal].add(first);
    }
}
