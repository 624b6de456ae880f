//! Joining neighbours, cheapest first: the loop that both BPE and SPM run.
//!
//! Symbols are a doubly linked list in one vector; candidates wait in a heap. A candidate is stale
//! when one of its symbols was swallowed or has grown since; it is recognised when it comes up and
//! dropped. Each join removes one symbol and adds at most two candidates: O(n log n) for any input.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No symbol, no token.
pub(crate) const NONE: u32 = u32::MAX;

/// A stretch of the text that has become one token, or may become part of one.
#[derive(Clone, Copy)]
pub(crate) struct Symbol {
    /// Bytes `start..start + len` of the text. `len` 0: swallowed by its left neighbour.
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// The token, or `NONE`.
    pub(crate) id: u32,
    prev: u32,
    next: u32,
}

/// What two neighbours would become.
pub(crate) struct Join {
    /// Cheaper joins come first; of equal ones the leftmost.
    pub(crate) cost: u32,
    pub(crate) id: u32,
}

/// Ordered by its fields, top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    cost: u32,
    left: u32,
    right: u32,
    /// Bytes of both together when the candidate was made.
    len: u32,
    id: u32,
}

/// The memory of the loop, for use again.
#[derive(Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Forgets the last text.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends the next stretch of the text.
    pub(crate) fn push(&mut self, len: u32, id: u32) {
        let index = self.symbols.len() as u32;
        let start = self.symbols.last_mut().map_or(0, |last| {
            last.next = index;
            last.start + last.len
        });
        self.symbols.push(Symbol {
            start,
            len,
            id,
            prev: index.wrapping_sub(1),
            next: NONE,
        });
    }

    /// Joins until `join` knows no more pair. A pair is asked about once per time it forms.
    pub(crate) fn run(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<Join>) {
        for right in 1..self.symbols.len() as u32 {
            self.offer(right - 1, right, &join);
        }
        while let Some(Reverse(best)) = self.queue.pop() {
            if self.is_stale(&best) {
                continue;
            }
            let after = self.symbols[best.right as usize].next;
            self.symbols[best.right as usize].len = 0;
            if after != NONE {
                self.symbols[after as usize].prev = best.left;
            }
            let left = &mut self.symbols[best.left as usize];
            (left.len, left.id, left.next) = (best.len, best.id, after);
            let before = left.prev;
            self.offer(before, best.left, &join);
            self.offer(best.left, after, &join);
        }
    }

    /// What is left, in the text's order.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.len > 0)
    }

    fn offer(&mut self, left: u32, right: u32, join: impl Fn(&Symbol, &Symbol) -> Option<Join>) {
        if left == NONE || right == NONE {
            return;
        }
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some(Join { cost, id }) = join(a, b) {
            let len = a.len + b.len;
            self.queue.push(Reverse(Candidate {
                cost,
                left,
                right,
                len,
                id,
            }));
        }
    }

    /// The right one's start is fixed and the left one cannot grow without swallowing it, so that
    /// the length of both together tells all.
    fn is_stale(&self, candidate: &Candidate) -> bool {
        let left = self.symbols[candidate.left as usize].len;
        let right = self.symbols[candidate.right as usize].len;
        left == 0 || right == 0 || left + right != candidate.len
    }
}
