//! Prompt lookup: draft tokens from an earlier occurrence of the sequence's last tokens.

/// The shortest n-gram that is searched for: one token predicts little.
const NGRAM_MIN: usize = 2;

/// A match of this length is as good as any longer one.
const NGRAM_MAX: usize = 5;

/// Tokens that are searched, from the last: some microseconds per sequence and step.
const LOOK_BACK: usize = 16_384;

/// Appends to `drafts` up to `most` tokens that follow an earlier occurrence of the last tokens: the
/// longest match, the latest where equal. The continuation may run into the draft tokens themselves, when
/// a pattern shorter than `most` repeats.
pub(crate) fn lookup_prompt(tokens: &[u32], most: usize, drafts: &mut Vec<u32>) {
    let Some(mut from) = longest_match(&tokens[tokens.len().saturating_sub(LOOK_BACK)..]) else {
        return;
    };
    from += tokens.len().saturating_sub(LOOK_BACK);
    let first = drafts.len();
    for at in from..from + most {
        let token = match at.checked_sub(tokens.len()) {
            None => tokens[at],
            Some(beyond) => drafts[first + beyond],
        };
        drafts.push(token);
    }
}

/// The end of the longest earlier occurrence of the last tokens.
fn longest_match(tokens: &[u32]) -> Option<usize> {
    let (&last, before) = tokens.split_last()?;
    let (mut best, mut longest) = (None, NGRAM_MIN - 1);
    for (at, _) in before.iter().enumerate().rev().filter(|(_, t)| **t == last) {
        let length = common_suffix(&tokens[..=at], tokens);
        if length > longest {
            (best, longest) = (Some(at + 1), length);
            if length >= NGRAM_MAX {
                break;
            }
        }
    }
    best
}

/// Length of the common suffix, up to [`NGRAM_MAX`].
fn common_suffix(a: &[u32], b: &[u32]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take(NGRAM_MAX).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drafts_of(tokens: &[u32], most: usize) -> Vec<u32> {
        let mut drafts = Vec::new();
        lookup_prompt(tokens, most, &mut drafts);
        drafts
    }

    #[test]
    fn drafts_follow_the_earlier_occurrence() {
        let check = |label, tokens: &[u32], most, expected: &[u32]| {
            assert_eq!(drafts_of(tokens, most), expected, "{label}");
        };
        check("no tokens", &[], 4, &[]);
        check("no repetition", &[1, 2, 3], 4, &[]);
        check("one token is too short", &[1, 2, 3, 1], 4, &[]);
        check("two tokens", &[1, 2, 3, 4, 1, 2], 2, &[3, 4]);
        check(
            "into the drafts",
            &[1, 2, 3, 1, 2],
            7,
            &[3, 1, 2, 3, 1, 2, 3],
        );
        check("one token repeated", &[9, 9, 9], 3, &[9, 9, 9]);
        check("latest occurrence", &[1, 2, 5, 1, 2, 6, 1, 2], 1, &[6]);
        let longer = [7, 1, 2, 5, 8, 1, 2, 6, 7, 1, 2];
        check("longest occurrence", &longer, 1, &[5]);
        check("none wanted", &[1, 2, 1, 2], 0, &[]);
    }

    #[test]
    fn occurrence_beyond_the_look_back_is_not_found() {
        let mut tokens = vec![1, 2, 3];
        tokens.extend((0..LOOK_BACK as u32).map(|i| 10 + i));
        tokens.extend([1, 2]);
        assert!(drafts_of(&tokens, 3).is_empty());
        tokens.extend([3, 1, 2]);
        assert_eq!(drafts_of(&tokens, 3), [3, 1, 2]);
    }

    proptest! {
        #[test]
        fn drafts_equal_those_of_a_plain_search(
            tokens in prop::collection::vec(0u32..4, 0..60),
            most in 0usize..12,
        ) {
            let ends = |at: usize, length: usize| tokens[..at].ends_with(&tokens[tokens.len() - length..]);
            let found = (NGRAM_MIN..=NGRAM_MAX.min(tokens.len())).rev().find_map(|length| {
                (length..tokens.len()).rev().find(|&at| ends(at, length))
            });
            let mut all = tokens.clone();
            if let Some(from) = found {
                (from..from + most).for_each(|at| all.push(all[at]));
            }
            prop_assert_eq!(drafts_of(&tokens, most), &all[tokens.len()..]);
        }
    }
}
