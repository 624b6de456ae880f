//! Prompts: words in an order that never repeats, so that no server's prefix cache helps.

use super::arrivals::Random;

/// Short words of everyday English: one token each in most large vocabularies.
const WORDS: [&str; 32] = [
    "river", "stone", "light", "green", "house", "water", "north", "small", "paper", "seven",
    "table", "cloud", "early", "sound", "plain", "glass", "round", "field", "night", "horse",
    "music", "white", "train", "bread", "clear", "point", "earth", "voice", "short", "blue",
    "wheel", "quiet",
];

/// How many words make how many tokens, from what the server said of two probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measure {
    /// Tokens besides the words: a template, a beginning.
    pub(super) fixed: f64,
    /// Tokens of one word.
    pub(super) each: f64,
}

/// A word is a token, until the server says otherwise.
impl Default for Measure {
    fn default() -> Self {
        Self {
            fixed: 0.0,
            each: 1.0,
        }
    }
}

impl Measure {
    /// From two probes of (words, tokens); the default if they make no line.
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

    /// Words for about `tokens` tokens; at least one.
    pub(super) fn words(&self, tokens: usize) -> usize {
        let words = ((tokens as f64 - self.fixed) / self.each).round();
        (words.max(1.0) as usize).min(super::options::PROMPT_MAX)
    }
}

/// Text of `count` words.
pub(super) fn prompt(count: usize, random: &mut Random) -> String {
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
    fn probes_say_how_many_words_to_send() {
        // Ten tokens of template, three for each word.
        let measure = Measure::of((8, 34), (32, 106));
        assert_eq!(
            measure,
            Measure {
                fixed: 10.0,
                each: 3.0
            }
        );
        assert_eq!(measure.words(100), 30);
        assert_eq!(measure.words(5), 1);
        assert_eq!(Measure::of((8, 0), (32, 0)), Measure::default());
        assert_eq!(Measure::default().words(7), 7);
    }

    #[test]
    fn prompts_have_their_words_and_differ() {
        let mut random = Random::new(1);
        let (a, b) = (prompt(40, &mut random), prompt(40, &mut random));
        assert_eq!(a.split(' ').count(), 40);
        assert_ne!(a, b);
    }
}
