//! Stop strings with hold-back.
//!
//! # Algorithm
//! An Aho-Corasick automaton ("Efficient string matching", 1975) over the bytes of the stop strings. The
//! state after each byte is the longest suffix of the text that is a prefix of some stop string. Exactly that
//! suffix is held back: the text before the suffix cannot be part of a match. When a stop string ends in the
//! current state, the first such end is the earliest-ending match, and the longest stop string that ends
//! there is the match.
//!
//! Stop strings begin and end on character boundaries, and no suffix of the text that is a prefix of a stop
//! string begins inside a character. So the boundary between emitted and held text is always a character
//! boundary, and the automaton can work on bytes.
//!
//! # Cost
//! Building: time and memory are linear in the total length of the stop strings; a node is one byte of a stop
//! string, with children in a list sorted by byte. Text: each byte advances the state once and follows as
//! many fallbacks as the state advanced before, so time is linear in the length of the text, times the lookup
//! among at most 256 children. Held text is shorter than the longest stop string, in a buffer that is
//! allocated once.

use std::collections::VecDeque;

/// A match of a stop string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopHit {
    /// Index of the stop string in the list given to [`StopMatcher::new`].
    pub index: u16,
}

/// Finds the first stop string in a text that comes in pieces. A possible prefix of a stop string is held
/// back, and emitted when the stop string does not complete.
///
/// The caller bounds number and length of stop strings: memory is about 100 bytes per byte of stop string.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    nodes: Vec<Node>, // root first
    state: u32,
    /// The text of the current state: the longest suffix that is a prefix of a stop string.
    held: String, // (depth of `state`) bytes
    hit: Option<StopHit>,
}

impl StopMatcher {
    /// Empty stop strings are ignored. Of equal stop strings the first counts.
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

    /// Consumes a piece; appends to `out` the text that cannot be part of a stop string. After a match no
    /// text is appended, and each call returns the same match. The earliest-ending match wins; of matches
    /// with the same end, the longest. The text before the match is emitted, the match never.
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

    /// Bytes of text that are held back.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Ends the text: without a match, appends the held text and resets the matcher; after a match, appends
    /// nothing.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.state = ROOT;
    }

    /// Appends the held text and `piece` except the last `keep` bytes, which become the held text.
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

/// A prefix of a stop string.
#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<(u8, u32)>, // sorted by byte
    /// The longest proper suffix of this prefix that is a prefix too.
    fallback: u32,
    /// Length of this prefix in bytes.
    depth: u32,
    /// The longest stop string that is a suffix of this prefix, and the length of that stop string.
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

/// Inserts the prefixes of one stop string.
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

/// Computes fallbacks and matches breadth first: a fallback is shorter.
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
