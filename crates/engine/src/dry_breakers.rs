//! Sequence breakers of the DRY penalty as token ids.

use std::collections::HashMap;
use std::sync::Arc;

/// Token sequences over which no repetition reaches back. Shared by all choices of a request; `None`: there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryBreakers(Option<Arc<BreakerTable>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct BreakerTable {
    /// One bit for each token: whether the token alone is a breaker.
    single: TokenSet,
    /// One bit for each token: whether a longer breaker begins with the token.
    first: TokenSet,
    /// The rests of the longer breakers by their first token, the longest first.
    rests: HashMap<u32, Vec<Box<[u32]>>>,
}

/// One bit for each token.
#[derive(Debug, Default, PartialEq, Eq)]
struct TokenSet(Vec<u64>);

impl TokenSet {
    fn insert(&mut self, token: u32) {
        let word = token as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (token % 64);
    }

    fn has(&self, token: u32) -> bool {
        let word = self.0.get(token as usize / 64);
        word.is_some_and(|word| word >> (token % 64) & 1 == 1)
    }
}

impl DryBreakers {
    /// Breakers of these sequences; empty ones have no effect.
    pub fn new(sequences: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let mut table = BreakerTable::default();
        for sequence in sequences {
            match sequence.split_first() {
                None => {}
                Some((&token, [])) => table.single.insert(token),
                Some((&first, rest)) => {
                    table.first.insert(first);
                    table.rests.entry(first).or_default().push(rest.into());
                }
            }
        }
        for rests in table.rests.values_mut() {
            rests.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            rests.dedup();
        }
        Self((table != BreakerTable::default()).then(|| Arc::new(table)))
    }

    /// Number of breakers with more than one token.
    pub fn longer_count(&self) -> usize {
        let tables = self.0.iter();
        tables
            .flat_map(|table| table.rests.values())
            .map(Vec::len)
            .sum()
    }

    /// Number of tokens after the breaker that begins last; all without one.
    pub(crate) fn tokens_after_last(&self, tokens: &[u32]) -> usize {
        let Some(table) = &self.0 else {
            return tokens.len();
        };
        for (at, &token) in tokens.iter().enumerate().rev() {
            let behind = &tokens[at + 1..];
            if let Some(length) = table.rest_length(token, behind) {
                return behind.len() - length;
            }
        }
        tokens.len()
    }
}

impl BreakerTable {
    /// Tokens after this one of the longest breaker that begins here; `None`: no breaker begins here.
    fn rest_length(&self, token: u32, behind: &[u32]) -> Option<usize> {
        if self.first.has(token) {
            let rests = self.rests.get(&token).into_iter().flatten();
            let mut matching = rests.filter(|rest| behind.starts_with(rest));
            if let Some(rest) = matching.next() {
                return Some(rest.len());
            }
        }
        self.single.has(token).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::DryBreakers;

    #[test]
    fn tokens_after_the_last_breaker_are_counted() {
        let breakers = DryBreakers::new([vec![5], vec![5, 6], vec![7, 8], vec![]]);
        assert_eq!(breakers.longer_count(), 2);
        for (tokens, want) in [
            (&[][..], 0),
            (&[1, 2], 2),
            (&[5, 1, 2], 2),
            (&[5, 6, 2], 1),
            (&[1, 5], 0),
            (&[7, 8, 1], 1),
            (&[7, 1, 8], 3),
            (&[5, 1, 7, 8, 1, 1], 2),
        ] {
            assert_eq!(breakers.tokens_after_last(tokens), want, "{tokens:?}");
        }
        assert_eq!(DryBreakers::default().tokens_after_last(&[1, 2, 3]), 3);
    }
}
