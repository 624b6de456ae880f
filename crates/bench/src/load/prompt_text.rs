//! Prompt text: random words, so that prefix caches do not help.

use super::arrivals::Random;

/// Short common English words: one token each in most large vocabularies.
const WORDS: [&str; 32] = [
    "river", "stone", "light", "green", "house", "water", "north", "small", "paper", "seven",
    "table", "cloud", "early", "sound", "plain", "glass", "round", "field", "night", "horse",
    "music", "white", "train", "bread", "clear", "point", "earth", "voice", "short", "blue",
    "wheel", "quiet",
];

/// Estimate of the number of tokens of a prompt, from the server's counts of two probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenEstimate {
    /// Tokens besides the words: chat template, BOS.
    pub(super) fixed: f64,
    /// Tokens per word.
    pub(super) each: f64,
}

/// One token per word, until the server has counted the probes.
impl Default for TokenEstimate {
    fn default() -> Self {
        Self {
            fixed: 0.0,
            each: 1.0,
        }
    }
}

impl TokenEstimate {
    /// Fits the estimate to two probes of (words, tokens); the default if the fit is not increasing.
    pub(super) fn of(a: (usize, u64), b: (usize, u64)) -> Self {
        let each = (b.1 as f64 - a.1 as f64) / (b.0 as f64 - a.0 as f64);
        if !each.is_finite() || each <= 0.0 {
            return Self::default();
        }
        Self {
            fixed: a.1 as f64 - each * a.0 as f64,
            each,
        }
    }

    /// Number of words for about `tokens` tokens; at least one.
    pub(super) fn word_count(&self, tokens: usize) -> usize {
        let words = ((tokens as f64 - self.fixed) / self.each).round();
        (words.max(1.0) as usize).min(super::options::PROMPT_MAX)
    }
}

/// Random text of `count` words.
pub(super) fn random_prompt(count: usize, random: &mut Random) -> String {
    let mut text = String::with_capacity(count * 6);
    for i in 0..count {
        if i > 0 {
            text.push(' ');
        }
        text.push_str(WORDS[(random.next() >> 59) as usize]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_determine_the_number_of_words() {
        // Ten tokens of chat template, three tokens per word.
        let estimate = TokenEstimate::of((8, 34), (32, 106));
        assert_eq!(
            estimate,
            TokenEstimate {
                fixed: 10.0,
                each: 3.0
            }
        );
        assert_eq!(estimate.word_count(100), 30);
        assert_eq!(estimate.word_count(5), 1);
        assert_eq!(TokenEstimate::of((8, 0), (32, 0)), TokenEstimate::default());
        assert_eq!(TokenEstimate::default().word_count(7), 7);
    }

    #[test]
    fn prompts_have_the_requested_words_and_differ() {
        let mut random = Random::new(1);
        let (a, b) = (
            random_prompt(40, &mut random),
            random_prompt(40, &mut random),
        );
        assert_eq!(a.split(' ').count(), 40);
        assert_ne!(a, b);
    }
}
