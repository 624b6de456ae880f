//! Merge loop of BPE and SPM: joins neighbors, cheapest pair first; and the merges of BPE by the pair that they join.
//!
//! Symbols form a doubly linked list in a vector; candidate pairs are in a heap. A candidate is stale if one
//! of its symbols was absorbed or has grown since, and is skipped when popped. Each join removes one symbol
//! and adds at most two candidates: O(n log n) for any input.

use super::error::TokenizerError;
use super::string_arena::{StringArena, mix};
use crate::{TokenKind, VocabSpec};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// No symbol, or no token.
pub(crate) const NONE: u32 = u32::MAX;

/// A range of the text that is a token or may become part of one.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    /// Bytes `start..start + len` of the text. `len` 0: absorbed by the left neighbor.
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// The token, or `NONE`.
    pub(crate) id: u32,
    prev: u32,
    next: u32,
}

/// Result of joining two neighbors.
#[derive(Clone, Copy)]
pub(crate) struct Join {
    /// Cheaper joins come first; of equal costs the leftmost. The rank of a merge.
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

/// The merges of a vocabulary.
#[derive(Default)]
pub(crate) struct Merges(HashMap<u64, Join, BuildHasherDefault<PairHasher>>);

impl Merges {
    /// Reads a vocabulary's merges. Also returns the number of omitted merges: those that would create a control token
    /// from plain text.
    pub(crate) fn read(
        spec: &VocabSpec,
        pieces: &StringArena,
    ) -> Result<(Self, usize), TokenizerError> {
        let (mut merges, mut left_out) = (Self::default(), 0);
        merges.0.reserve(spec.merges.len());
        let mut joined = String::new();
        for (rank, merge) in spec.merges.iter().enumerate() {
            // From index 1: a left side may begin with the separator.
            let cut = merge
                .char_indices()
                .skip(1)
                .find(|(_, written)| *written == ' ');
            let Some((cut, _)) = cut else {
                return Err(TokenizerError(format!(
                    "merge {rank} is not two tokens: {merge:?}"
                )));
            };
            let (left, right) = (&merge[..cut], &merge[cut + 1..]);
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let id_of = |text: &str| {
                let missing = || {
                    TokenizerError(format!(
                        "merge {rank} ({merge:?}) needs the token {text:?}, which is not in the vocabulary"
                    ))
                };
                pieces.find(text.as_bytes()).ok_or_else(missing)
            };
            let (left, right, id) = (id_of(left)?, id_of(right)?, id_of(&joined)?);
            match spec.kinds.get(id as usize) {
                Some(TokenKind::Control | TokenKind::Unknown) => left_out += 1,
                // The first rank of a duplicate merge counts.
                _ => {
                    let cost = rank as u32;
                    let join = merges.0.entry(pair(left, right));
                    join.or_insert(Join { cost, id });
                }
            }
        }
        Ok((merges, left_out))
    }

    /// The merge of these tokens, if there is one.
    pub(crate) fn of(&self, left: u32, right: u32) -> Option<Join> {
        self.0.get(&pair(left, right)).copied()
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Hashes one pair of ids.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write_u64(&mut self, pair: u64) {
        self.0 = mix(pair);
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.0 = mix(self.0 ^ u64::from(*byte)));
    }
}
