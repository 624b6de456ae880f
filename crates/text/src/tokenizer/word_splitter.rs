//! Pre-tokenization for BPE, in time linear in the text.
//!
//! Published pre-tokenizers are lists of regexes for backtracking engines; each regex divides the pieces of
//! the previous one. Their only look-around is the tail `\s+(?!\S)|\s+`, which leaves the last white space
//! character to the following word. The tail is implemented by hand here, so that the rest runs on an
//! automaton and no text is expensive.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input, Match};

/// One cut. Every cut keeps all bytes: matches are pieces, and the text between matches is too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Pieces are matches of the regex, or else of `\s+(?!\S)|\s+`.
    Words(&'static str),
    /// Like `Words` with the tail `\s{512}(?!\S)|\s{256}(?!\S)|..|\s{4}(?!\S)|\s{1,2}(?!\S)|\s`.
    WordsAndBlanks(&'static str),
    /// Pieces are matches of the regex.
    Isolate(&'static str),
    /// Runs of digits, divided into groups of three from the right.
    Thousands,
}

/// A compiled list of cuts.
pub(crate) struct Splitter(Vec<Step>);

struct Step {
    cut: Cut,
    regex: Regex,
}

/// Second pattern of the regex of `Cut::Words`; matches only where the first pattern does not.
const BLANKS: &str = r"\s+";

impl Splitter {
    /// Compiles `cuts`; a test compiles all cuts of the table.
    pub(crate) fn new(cuts: &[Cut]) -> Self {
        let step = |cut: &Cut| {
            let regex = match *cut {
                Cut::Words(words) | Cut::WordsAndBlanks(words) => Regex::new_many(&[words, BLANKS]),
                Cut::Isolate(pattern) => Regex::new(pattern),
                Cut::Thousands => Regex::new(r"\p{N}+"),
            };
            Step {
                cut: *cut,
                regex: regex.expect("the table's regexes compile"),
            }
        };
        Self(cuts.iter().map(step).collect())
    }

    /// Passes the words of `text` to `each` in order; the words concatenate to the text.
    pub(crate) fn split<'t, E>(&self, text: &'t str, each: Each<'_, 't, E>) -> Result<(), E> {
        split_from(&self.0, text, each)
    }
}

/// Receiver of pieces; an error stops the cutting.
type Each<'e, 't, E> = &'e mut dyn FnMut(&'t str) -> Result<(), E>;

fn split_from<'t, E>(steps: &[Step], text: &'t str, each: Each<'_, 't, E>) -> Result<(), E> {
    match steps.split_first() {
        None => each(text),
        Some((last, [])) => last.pieces(text, each),
        Some((step, rest)) => step.pieces(text, &mut |piece| split_from(rest, piece, each)),
    }
}

impl Step {
    fn pieces<'t, E>(&self, text: &'t str, each: Each<'_, 't, E>) -> Result<(), E> {
        let mut start = 0;
        while start < text.len() {
            let Some(found) = self.next(text, start) else {
                return each(&text[start..]);
            };
            if found.start() > start {
                each(&text[start..found.start()])?;
            }
            let (from, to) = (found.start(), found.end());
            let is_blank = found.pattern().as_usize() == 1;
            start = match self.cut {
                Cut::Words(_) if is_blank => give(text, from, words_tail(text, from, to), each)?,
                Cut::WordsAndBlanks(_) if is_blank => blanks(text, from, to, each)?,
                Cut::Thousands => thousands(text, from, to, each)?,
                _ => give(text, from, to, each)?,
            };
        }
        Ok(())
    }

    /// The next match. Words are usually adjacent, and an anchored search is cheaper.
    fn next(&self, text: &str, start: usize) -> Option<Match> {
        let input = Input::new(text).range(start..);
        match self.cut {
            Cut::Words(_) | Cut::WordsAndBlanks(_) => {
                let here = input.clone().anchored(Anchored::Yes);
                self.regex
                    .search(&here)
                    .or_else(|| self.regex.search(&input))
            }
            Cut::Isolate(_) | Cut::Thousands => self.regex.search(&input),
        }
    }
}

fn give<'t, E>(text: &'t str, start: usize, end: usize, each: Each<'_, 't, E>) -> Result<usize, E> {
    each(&text[start..end])?;
    Ok(end)
}

/// The end of `\s+(?!\S)|\s+` over the white space `start..end`.
fn words_tail(text: &str, start: usize, end: usize) -> usize {
    let last = text[start..end]
        .chars()
        .next_back()
        .map_or(0, char::len_utf8);
    if end == text.len() || end - last == start {
        end
    } else {
        end - last
    }
}

/// Divides the white space `start..end` by the powers of two of `Cut::WordsAndBlanks`; leaves the last
/// character to the next word.
fn blanks<'t, E>(
    text: &'t str,
    start: usize,
    end: usize,
    each: Each<'_, 't, E>,
) -> Result<usize, E> {
    const PIECE_CHARS_MAX: usize = 512;
    let stop = words_tail(text, start, end);
    let mut left = text[start..stop].chars().count();
    let mut chars = text[start..stop].chars();
    let mut from = start;
    while left > 0 {
        let taken = (1 << left.ilog2()).min(PIECE_CHARS_MAX);
        let bytes = chars
            .by_ref()
            .take(taken)
            .map(char::len_utf8)
            .sum::<usize>();
        from = give(text, from, from + bytes, each)?;
        left -= taken;
    }
    Ok(from)
}

/// Divides the digits `start..end` into threes, a shorter group first.
fn thousands<'t, E>(
    text: &'t str,
    start: usize,
    end: usize,
    each: Each<'_, 't, E>,
) -> Result<usize, E> {
    let mut left = text[start..end].chars().count();
    let mut from = start;
    for (at, digit) in text[start..end].char_indices() {
        left -= 1;
        if left.is_multiple_of(3) {
            from = give(text, from, start + at + digit.len_utf8(), each)?;
        }
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::pretokenizers;
    use proptest::prelude::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let known = pretokenizers::by_name(name).expect("a known name");
        words_of(&Splitter::new(known.cuts), text)
    }

    fn words_of<'t>(splitter: &Splitter, text: &'t str) -> Vec<&'t str> {
        let mut words = Vec::new();
        let push: Each<'_, 't, ()> = &mut |word| {
            words.push(word);
            Ok(())
        };
        splitter.split(text, push).unwrap();
        words
    }

    #[test]
    #[rustfmt::skip]
    #[expect(clippy::too_many_lines, reason = "a row for each family")]
    fn each_pretokenizer_cuts_expected_words() {
        for (name, text, expected) in [
            (
                "gpt-2",
                "I'll  go, 1234!\n\n x",
                "I|'ll| | go|,| 1234|!|\n\n| x",
            ),
            ("gpt-2", "I'LL", "I|'|LL"),
            ("gpt-2", "a \n", "a| \n"),
            ("gpt-2", " ", " "),
            ("gpt-2", "\tx", "\t|x"),
            (
                "llama-bpe",
                "I'LL  go, 12345!\n\n x",
                "I|'LL| | go|,| |123|45|!\n\n| x",
            ),
            ("llama-bpe", "\tx   \n  \n   y", "\tx|   \n  \n|  | y"),
            ("llama-bpe", "$x (y)", "$x| (|y|)"),
            ("qwen2", "12 34", "1|2| |3|4"),
            ("qwen2", "नमस्ते", "नमस|\u{94d}त|\u{947}"),
            ("qwen35", "नमस्ते", "नमस्ते"),
            (
                "deepseek-llm",
                "Hi there\n\n12 你好!",
                "Hi| there|\n|\n|12| |你好|!",
            ),
            ("deepseek-coder", "x = 12;\n", "x| = |1|2|;|\n"),
            (
                "deepseek-v3",
                "x=1234 你好ab .foo",
                "x|=|123|4| |你好|ab| .|foo",
            ),
            ("starcoder", "x12 3", "x|1|2| |3"),
            ("falcon", "a+b 1234!", "a|+|b| |123|4|!"),
            ("default", "a+b 1234!", "a|+|b| |123|4|!"),
            ("bloom", "Hi there, (you)", "Hi| there|, (|you|)"),
            ("viking", "ab12 c", "ab|1|2| c"),
            ("tekken", "HelloWorld isn't 12", "Hello|World| isn|'t| |1|2"),
            (
                "gpt-4o",
                "HelloWorld isn't 1234 /x\n/",
                "Hello|World| isn't| |123|4| /|x|\n|/",
            ),
            ("kimi-k2", "你好abc isn't", "你好|abc| isn't"),
            ("superbpe", "by the 1234567 way", "by the |1|234|567| way"),
            ("tiny_aya", "a 12345", "a| |12|345"),
            ("afmoe", "a 12345", "a| |12|345"),
            ("bailingmoe", "a\n\nb", "a|\n\n|b"),
            ("seed-coder", "a!\nb", "a|!|\n|b"),
            ("spark2_5", "a!\nb", "a|!|\n|b"),
            ("chameleon", "a.. IMGIMGABZ", "a|.|.| |IMGIMGABZ"),
            ("jais-2", "a             b", "a|        |    | b"),
            ("jais-2", "a     ", "a|    | "),
            ("youtu", "안녕 abc", "안녕| abc"),
            ("laguna", "a  \nb", "a|  |\n|b"),
            ("ufakzeka", "Ali'yle", "Ali|'yle"),
            ("minicpm5", "a 12345", "a| |123|45"),
            ("exaone-moe", "a 12", "a| |1|2"),
            ("glm4", "x'S", "x|'S"),
        ] {
            assert_eq!(words(name, text).join("|"), expected, "{name}: {text:?}");
        }
    }

    #[test]
    fn white_space_is_cut_by_powers_of_two() {
        let lengths = |count: usize, after: &str| {
            let text = format!("{}{after}", " ".repeat(count));
            words("jais-2", &text)
                .iter()
                .map(|word| word.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(lengths(1100, ""), [512, 512, 64, 8, 4]);
        assert_eq!(lengths(8, "b"), [4, 2, 1, 2]);
        assert_eq!(lengths(1, ""), [1]);
        assert_eq!(lengths(1, "!"), [2]);
    }

    /// The hand-written look-around against a backtracking engine.
    #[test]
    fn white_space_tail_equals_backtracking_regex() {
        let splitter = Splitter::new(&[Cut::Words("[a-z]+")]);
        for (text, expected) in [
            ("a  b", "a| | |b"),
            ("a   b", "a|  | |b"),
            ("a \u{3000}b", "a| |\u{3000}|b"),
            ("  ", "  "),
            ("a  ", "a|  "),
        ] {
            assert_eq!(words_of(&splitter, text).join("|"), expected, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pretokenizers_keep_every_byte(texts in proptest::collection::vec("[ \n\t0-9a-zA-Z'é你ि.,¼\u{85}\u{3000}\u{1f9a}]{0,60}", 3)) {
            for name in pretokenizers::NAMES.iter().step_by(3) {
                let splitter = Splitter::new(pretokenizers::by_name(name).unwrap().cuts);
                for text in &texts {
                    let words = words_of(&splitter, text);
                    prop_assert!(words.iter().all(|word| !word.is_empty()));
                    prop_assert_eq!(words.concat(), text.as_str(), "{}", name);
                }
            }
        }
    }
}
