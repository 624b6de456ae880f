//! Which blocks one engine probably has in its prefix cache (a bounded set, least recently used first out), and the
//! hash chain over blocks of tokens that identifies prefixes of a prompt.
//!
//! A prediction needs no proof: where two prefixes have one hash, a request is placed less well, and nothing else
//! happens. The engine's prefix index compares tokens.

use std::collections::HashMap;

/// The end of the list.
const NONE: u32 = u32::MAX;

/// Hashes of blocks (see [`PrefixChain`](PrefixChain)) in order of use.
#[derive(Debug)]
pub(super) struct PrefixCache {
    places: HashMap<u64, u32>,
    /// A doubly linked list; unused nodes are in `unused`.
    nodes: Vec<Node>,
    unused: Vec<u32>,
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    older: u32,
    newer: u32,
}

impl Default for PrefixCache {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            nodes: Vec::new(),
            unused: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }
}

impl PrefixCache {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Blocks at the beginning of `chain` that are in the set.
    pub(super) fn matched(&self, chain: &[u64]) -> usize {
        let found = chain.iter().take_while(|h| self.places.contains_key(h));
        found.count()
    }

    /// Records that the blocks were used, the first block last: a prefix outlives what follows it.
    pub(super) fn touch(&mut self, chain: &[u64], limit: usize) {
        let chain = &chain[..chain.len().min(limit)];
        for &hash in chain.iter().rev() {
            match self.places.get(&hash) {
                Some(&node) => self.unlink(node),
                None => {
                    let node = self.take_node(hash);
                    self.places.insert(hash, node);
                }
            }
            self.link_newest(self.places[&hash]);
        }
        self.trim(limit);
    }

    /// Removes these blocks.
    pub(super) fn forget(&mut self, hashes: &[u64]) {
        for hash in hashes {
            if let Some(node) = self.places.remove(hash) {
                self.unlink(node);
                self.unused.push(node);
            }
        }
    }

    /// Removes the least recently used blocks beyond `limit`.
    pub(super) fn trim(&mut self, limit: usize) {
        while self.places.len() > limit {
            let oldest = self.nodes[self.oldest as usize].hash;
            self.forget(&[oldest]);
        }
    }

    fn take_node(&mut self, hash: u64) -> u32 {
        let node = Node {
            hash,
            older: NONE,
            newer: NONE,
        };
        if let Some(free) = self.unused.pop() {
            self.nodes[free as usize] = node;
            return free;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn link_newest(&mut self, node: u32) {
        let older = std::mem::replace(&mut self.newest, node);
        self.nodes[node as usize].older = older;
        self.nodes[node as usize].newer = NONE;
        match older {
            NONE => self.oldest = node,
            older => self.nodes[older as usize].newer = node,
        }
    }

    fn unlink(&mut self, node: u32) {
        let Node { older, newer, .. } = self.nodes[node as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
    }
}

/// Odd constants of the mixing function (splitmix64).
const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// The beginning of a sequence, to which tokens are appended: each full block gives one hash.
#[derive(Clone, Debug)]
pub(super) struct PrefixChain {
    /// Of all tokens so far.
    hash: u64,
    /// Tokens after the last full block.
    rest: usize,
    block_tokens: usize,
}

impl PrefixChain {
    pub(super) fn new(model: u64, salt: u64, block_tokens: usize) -> Self {
        Self {
            hash: mix(mix(model) ^ salt),
            rest: 0,
            block_tokens: block_tokens.max(1),
        }
    }

    /// Appends tokens, and to `hashes` the hash of each block that became full, up to `blocks_max` of them.
    pub(super) fn append(&mut self, tokens: &[u32], hashes: &mut Vec<u64>, blocks_max: usize) {
        for &token in tokens {
            if hashes.len() >= blocks_max {
                return;
            }
            self.hash = mix(self.hash ^ u64::from(token).wrapping_add(1));
            self.rest += 1;
            if self.rest == self.block_tokens {
                self.rest = 0;
                hashes.push(self.hash);
            }
        }
    }
}

/// A bijection of 64 bits in which each bit of the result depends on each bit of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(MIX[0]);
    let x = (x ^ (x >> 27)).wrapping_mul(MIX[1]);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside a list in which the newest is last.
        #[test]
        fn set_equals_a_naive_copy(steps in proptest::collection::vec((0u8..3, 0u64..12, 1usize..6), 0..200)) {
            const LIMIT: usize = 8;
            let (mut cache, mut naive) = (PrefixCache::default(), Vec::<u64>::new());
            for (kind, first, len) in steps {
                let chain: Vec<u64> = (first..first + len as u64).collect();
                match kind {
                    0 => {
                        cache.touch(&chain, LIMIT);
                        for hash in chain.iter().rev() {
                            naive.retain(|h| h != hash);
                            naive.push(*hash);
                        }
                        let over = naive.len().saturating_sub(LIMIT);
                        naive.drain(..over);
                    }
                    1 => {
                        cache.forget(&chain);
                        naive.retain(|h| !chain.contains(h));
                    }
                    _ => {
                        cache.trim(len);
                        let over = naive.len().saturating_sub(len);
                        naive.drain(..over);
                    }
                }
                prop_assert_eq!(cache.len(), naive.len());
                let expected = chain.iter().take_while(|h| naive.contains(h)).count();
                prop_assert_eq!(cache.matched(&chain), expected);
                prop_assert!(cache.nodes.len() <= LIMIT + 6);
            }
        }
    }

    #[test]
    fn prefix_outlives_what_follows_it() {
        let mut cache = PrefixCache::default();
        cache.touch(&[1, 2, 3, 4], 4);
        cache.touch(&[1, 9], 4);
        assert_eq!(cache.matched(&[1, 2, 3, 4]), 3);
        assert_eq!(cache.matched(&[1, 9]), 2);
    }

    #[test]
    fn chain_longer_than_the_limit_keeps_its_beginning() {
        let mut cache = PrefixCache::default();
        cache.touch(&[1, 2, 3, 4, 5, 6], 4);
        assert_eq!(cache.matched(&[1, 2, 3, 4, 5, 6]), 4);
        cache.touch(&[1], 0);
        assert_eq!(cache.len(), 0);
    }

    fn hashes(model: u64, salt: u64, parts: &[&[u32]]) -> Vec<u64> {
        let mut chain = PrefixChain::new(model, salt, 4);
        let mut hashes = Vec::new();
        for part in parts {
            chain.append(part, &mut hashes, 100);
        }
        hashes
    }

    #[test]
    fn equal_prefixes_have_equal_hashes_however_they_are_cut() {
        let prompt: Vec<u32> = (0..23).collect();
        let whole = hashes(1, 2, &[&prompt]);
        assert_eq!(whole.len(), 5, "full blocks only");
        for cut in 0..=prompt.len() {
            assert_eq!(hashes(1, 2, &[&prompt[..cut], &prompt[cut..]]), whole);
        }
        let mut other = prompt.clone();
        other[9] += 1;
        let other = hashes(1, 2, &[&other]);
        assert_eq!(other[..2], whole[..2]);
        assert!(other[2..].iter().zip(&whole[2..]).all(|(a, b)| a != b));
    }

    #[test]
    fn models_and_salts_share_no_hash() {
        let prompt: Vec<u32> = (0..8).collect();
        let all = [(1, 2), (1, 3), (2, 2), (2, 1)].map(|(m, s)| hashes(m, s, &[&prompt])[1]);
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn long_prompt_gives_no_more_than_the_bound() {
        let mut chain = PrefixChain::new(0, 0, 4);
        let mut hashes = Vec::new();
        chain.append(&[7; 1000], &mut hashes, 9);
        chain.append(&[7; 1000], &mut hashes, 9);
        assert_eq!(hashes.len(), 9);
    }
}
