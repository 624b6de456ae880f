//! Guesses from the sequence's own tokens.

/// The shortest run of last tokens that is looked for: one token alone says little.
const RUN_MIN: usize = 2;

/// A run this long is as good as any longer one.
const RUN_MAX: usize = 5;

/// How far back is looked: at most some microseconds per sequence and step.
const LOOK_BACK: usize = 16_384;

/// Adds to `guesses` up to `most` tokens that followed when the last tokens were said before: the
/// longest run, the latest where equal. What follows may run into the guesses themselves, as where
/// a pattern repeats that is shorter than `most`.
pub(crate) fn lookup(tokens: &[u32], most: usize, guesses: &mut Vec<u32>) {
    let Some(mut from) = latest(&tokens[tokens.len().saturating_sub(LOOK_BACK)..]) else {
        return;
    };
    from += tokens.len().saturating_sub(LOOK_BACK);
    let first = guesses.len();
    for at in from..from + most {
        let token = match at.checked_sub(tokens.len()) {
            None => tokens[at],
            Some(beyond) => guesses[first + beyond],
        };
        guesses.push(token);
    }
}

/// Where the longest earlier run of the last tokens ends.
fn latest(tokens: &[u32]) -> Option<usize> {
    let (&last, before) = tokens.split_last()?;
    let (mut best, mut longest) = (None, RUN_MIN - 1);
    for (at, _) in before.iter().enumerate().rev().filter(|(_, t)| **t == last) {
        let run = alike(&tokens[..=at], tokens);
        if run > longest {
            (best, longest) = (Some(at + 1), run);
            if run >= RUN_MAX {
                break;
            }
        }
    }
    best
}

/// Tokens that both end with, as far as it matters.
fn alike(a: &[u32], b: &[u32]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take(RUN_MAX).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn guessed(tokens: &[u32], most: usize) -> Vec<u32> {
        let mut guesses = Vec::new();
        lookup(tokens, most, &mut guesses);
        guesses
    }

    #[test]
    fn what_followed_is_guessed() {
        let check = |label, tokens: &[u32], most, expected: &[u32]| {
            assert_eq!(guessed(tokens, most), expected, "{label}");
        };
        check("nothing said", &[], 4, &[]);
        check("said once", &[1, 2, 3], 4, &[]);
        check("one token is too little", &[1, 2, 3, 1], 4, &[]);
        check("two", &[1, 2, 3, 4, 1, 2], 2, &[3, 4]);
        check("into itself", &[1, 2, 3, 1, 2], 7, &[3, 1, 2, 3, 1, 2, 3]);
        check("one token again and again", &[9, 9, 9], 3, &[9, 9, 9]);
        check("the latest", &[1, 2, 5, 1, 2, 6, 1, 2], 1, &[6]);
        let longer = [7, 1, 2, 5, 8, 1, 2, 6, 7, 1, 2];
        check("the longest", &longer, 1, &[5]);
        check("none wanted", &[1, 2, 1, 2], 0, &[]);
    }

    #[test]
    fn too_far_back_is_not_seen() {
        let mut tokens = vec![1, 2, 3];
        tokens.extend((0..LOOK_BACK as u32).map(|i| 10 + i));
        tokens.extend([1, 2]);
        assert!(guessed(&tokens, 3).is_empty());
        tokens.extend([3, 1, 2]);
        assert_eq!(guessed(&tokens, 3), [3, 1, 2]);
    }

    proptest! {
        /// Beside a slow twin: each guess is what a plain search finds.
        #[test]
        fn guesses_are_those_of_a_plain_search(
            tokens in prop::collection::vec(0u32..4, 0..60),
            most in 0usize..12,
        ) {
            let ends = |at: usize, run: usize| tokens[..at].ends_with(&tokens[tokens.len() - run..]);
            let found = (RUN_MIN..=RUN_MAX.min(tokens.len())).rev().find_map(|run| {
                (run..tokens.len()).rev().find(|&at| ends(at, run))
            });
            let mut all = tokens.clone();
            if let Some(from) = found {
                (from..from + most).for_each(|at| all.push(all[at]));
            }
            prop_assert_eq!(guessed(&tokens, most), &all[tokens.len()..]);
        }
    }
}
