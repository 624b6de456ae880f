//! Merge loop of BPE and SPM: joins neighbors, cheapest pair first.
//!
//! Symbols form a doubly linked list in a vector; candidate pairs are in a heap. A candidate is stale if one
//! of its symbols was absorbed or has grown since, and is skipped when popped. Each join removes one symbol
//! and adds at most two candidates: O(n log n) for any input.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No symbol, or no token.
pub(crate) const NONE: u32 = u32::MAX;

/// A range of the text that is a token or may become part of one.
#[derive(Clone, Copy)]
pub(crate) struct Symbol {
    /// Bytes `start..start + len` of the text. `len` 0: absorbed by the left neighbor.
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// The token, or `NONE`.
    pub(crate) id: u32,
    prev: u32,
    next: u32,
}

/// Result of joining two neighbors.
pub(crate) struct Join {
    /// Cheaper joins come first; of equal costs the leftmost.
    pub(crate) cost: u32,
    pub(crate) id: u32,
}

/// Ordered by the fields, first to last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    cost: u32,
    left: u32,
    right: u32,
    /// Bytes of both symbols when the candidate was created.
    len: u32,
    id: u32,
}

/// Reusable buffers of the merge loop.
#[derive(Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Clears the last text.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends the next range of the text.
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

    /// Joins until `join` returns `None` for all pairs. Each pair is queried once when the pair forms.
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

    /// The remaining symbols, in text order.
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

    /// The right symbol's start is fixed, and the left symbol can only grow by absorbing the right one, so
    /// the joint length decides.
    fn is_stale(&self, candidate: &Candidate) -> bool {
        let left = self.symbols[candidate.left as usize].len;
        let right = self.symbols[candidate.right as usize].len;
        left == 0 || right == 0 || left + right != candidate.len
    }
}
