//! Stop strings with hold-back.
//!
//! # How
//!
//! An automaton of Aho and Corasick ("Efficient string matching", 1975) over the stop strings'
//! bytes. Its state after each byte is the longest suffix of the text that begins some stop
//! string. That suffix is exactly what must be held back: everything before it can no longer be
//! part of a match. When the state says that a whole stop string ends here, the first such end is
//! the earliest-ending match, and the longest string that ends here is the match.
//!
//! A stop string begins and ends on character boundaries, and no suffix of the text that begins a
//! stop string starts inside a character. So the cut between what is given and what is held is
//! always a character boundary, and bytes can be walked without looking at characters.
//!
//! # Cost
//!
//! Building: time and memory are linear in the stop strings' total length, times the width of a
//! node: a node is a byte of some stop string and has its children in a list sorted by byte. Text:
//! each byte moves forward once and falls back as often as it moved forward, so a text costs time
//! linear in its length, times the look-up among at most 256 children, whatever it contains. Held back
//! is at most the longest stop string less one byte, in a buffer sized when the matcher is made.

use std::collections::VecDeque;

/// A stop string was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopHit {
    /// Its index in the list given to [`StopMatcher::new`].
    pub index: u16,
}

/// Finds the first stop string in a text that comes in pieces; a text that may turn out to be the
/// beginning of one is held back, never leaked, and given when it does not complete.
///
/// How many stop strings there may be, and how long, is for the caller to bound: memory is about
/// 100 bytes per byte of stop string.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    nodes: Vec<Node>, // the root first
    state: u32,
    /// The text the state stands for: the longest suffix that begins a stop string.
    held: String, // (depth of `state`) bytes
    hit: Option<StopHit>,
}

impl StopMatcher {
    /// Empty stop strings are ignored. Of equal ones the first counts.
    ///
    /// # Panics
    /// If there are more than `u16::MAX` stop strings or 4 GiB of them.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Self {
        assert!(
            stops.len() <= usize::from(u16::MAX),
            "stop strings are numbered in 16 bits"
        );
        let mut nodes = vec![Node::default()];
        for (index, stop) in stops.iter().enumerate() {
            add(&mut nodes, index as u16, stop.as_ref());
        }
        link(&mut nodes);
        let longest = stops
            .iter()
            .map(|stop| stop.as_ref().len())
            .max()
            .unwrap_or(0);
        Self {
            nodes,
            state: ROOT,
            held: String::with_capacity(longest),
            hit: None,
        }
    }

    /// Takes the next piece; appends to `out` what is certainly not part of a stop string. After a
    /// hit nothing more is given, and each further push says the same hit. The earliest-ending
    /// match wins; of those that end together, the longest; the text before the match is given,
    /// the match itself never.
    pub fn push(&mut self, piece: &str, out: &mut String) -> Option<StopHit> {
        if self.hit.is_some() {
            return self.hit;
        }
        for (at, byte) in piece.bytes().enumerate() {
            self.state = self.after(self.state, byte);
            if let Some((hit, len)) = self.nodes[self.state as usize].ends_here {
                self.give(&piece[..=at], len as usize, out);
                self.held.clear();
                self.hit = Some(hit);
                return self.hit;
            }
        }
        self.give(piece, self.nodes[self.state as usize].depth as usize, out);
        None
    }

    /// The text is over without a hit: gives what was held back, and is as new. After a hit it
    /// gives nothing.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.state = ROOT;
    }

    /// Gives all of the held text and `piece` but the last `keep` bytes, which become the held text.
    fn give(&mut self, piece: &str, keep: usize, out: &mut String) {
        match keep.checked_sub(piece.len()) {
            Some(keep_of_held) => {
                let given = self.held.len() - keep_of_held;
                out.push_str(&self.held[..given]);
                self.held.drain(..given);
                self.held.push_str(piece);
            }
            None => {
                let (given, kept) = piece.split_at(piece.len() - keep);
                out.push_str(&self.held);
                out.push_str(given);
                self.held.clear();
                self.held.push_str(kept);
            }
        }
    }

    /// The state after one more byte.
    fn after(&self, mut state: u32, byte: u8) -> u32 {
        loop {
            let node = &self.nodes[state as usize];
            if let Some(child) = node.child(byte) {
                return child;
            }
            if state == ROOT {
                return ROOT;
            }
            state = node.fallback;
        }
    }
}

const ROOT: u32 = 0;

/// A beginning of some stop string.
#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<(u8, u32)>, // sorted by byte
    /// The longest proper suffix of this beginning that is a beginning too.
    fallback: u32,
    /// Bytes of this beginning.
    depth: u32,
    /// The longest stop string that ends where this beginning does, and its bytes.
    ends_here: Option<(StopHit, u32)>,
}

impl Node {
    fn child(&self, byte: u8) -> Option<u32> {
        let at = self
            .children
            .binary_search_by_key(&byte, |&(b, _)| b)
            .ok()?;
        Some(self.children[at].1)
    }
}

/// Adds the beginnings of one stop string.
fn add(nodes: &mut Vec<Node>, index: u16, stop: &str) {
    let mut state = ROOT;
    for byte in stop.bytes() {
        state = nodes[state as usize].child(byte).unwrap_or_else(|| {
            let fresh = u32::try_from(nodes.len()).expect("less than 4 GiB of stop strings");
            let depth = nodes[state as usize].depth + 1;
            let siblings = &mut nodes[state as usize].children;
            let at = siblings.partition_point(|&(b, _)| b < byte);
            siblings.insert(at, (byte, fresh));
            nodes.push(Node {
                depth,
                ..Node::default()
            });
            fresh
        });
    }
    if state != ROOT {
        let depth = nodes[state as usize].depth;
        nodes[state as usize]
            .ends_here
            .get_or_insert((StopHit { index }, depth));
    }
}

/// Finds each node's fallback, and what ends at it, breadth first: a fallback is less deep.
fn link(nodes: &mut [Node]) {
    let mut queue = VecDeque::from([ROOT]);
    while let Some(parent) = queue.pop_front() {
        for i in 0..nodes[parent as usize].children.len() {
            let (byte, child) = nodes[parent as usize].children[i];
            let fallback = fallback_of_child(nodes, parent, byte);
            let shorter = nodes[fallback as usize].ends_here;
            let node = &mut nodes[child as usize];
            node.fallback = fallback;
            node.ends_here = node.ends_here.or(shorter);
            queue.push_back(child);
        }
    }
}

fn fallback_of_child(nodes: &[Node], parent: u32, byte: u8) -> u32 {
    let mut state = parent;
    while state != ROOT {
        state = nodes[state as usize].fallback;
        if let Some(child) = nodes[state as usize].child(byte) {
            return child;
        }
    }
    ROOT
}
