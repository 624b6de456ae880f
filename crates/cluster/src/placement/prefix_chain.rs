//! The hash chain over blocks of tokens that identifies prefixes of a prompt.
//!
//! A prediction needs no proof: where two prefixes have one hash, a request is placed less well, and nothing else
//! happens. The engine's prefix index compares tokens.

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
