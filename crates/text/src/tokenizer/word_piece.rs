//! WordPiece (BERT): each word becomes the longest tokens from its start to its end, or the unknown token.
//!
//! GGUF writes the first token of a word behind `▁`, and the others without the `##` of the published vocabularies.
//!
//! Words of BERT's basic tokenization: cleaned, in lower case, without accents, cut at white space, punctuation and
//! ideographs.
//!
//! The rules are those of the published models' `tokenizer.json` (`BertNormalizer`, `BertPreTokenizer`). llama.cpp
//! differs in two rules: its decomposition keeps one character of several, so that Hangul loses its vowels, and some
//! control characters separate words there.

use super::error::TokenizerError;
use super::spm::SPACE;
use super::string_arena::StringArena;
use crate::{TokenKind, VocabSpec};
use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization_alignments::UnicodeNormalization;

/// Longer words become the unknown token, as in the published tokenizers.
const WORD_CHARACTERS_MAX: usize = 100;

/// Which tokens words may become.
pub(crate) struct WordPiece {
    words: BertWords,
    unknown: Option<u32>,
    /// By id: whether text may become this token.
    plain: Vec<bool>,
    /// Longer pieces of a word equal no token.
    token_bytes_max: usize,
}

impl WordPiece {
    /// `spec.kinds` has one entry for each token.
    pub(crate) fn new(spec: &VocabSpec) -> Self {
        let is_plain = |kind| matches!(kind, TokenKind::Normal | TokenKind::UserDefined);
        let plain: Vec<bool> = spec.kinds.iter().map(|kind| is_plain(*kind)).collect();
        let lengths = spec.tokens.iter().zip(&plain);
        Self {
            words: BertWords {
                lowercase: spec.lowercase,
                strip_accents: spec.strip_accents,
            },
            unknown: spec.unknown,
            token_bytes_max: lengths
                .filter(|(_, plain)| **plain)
                .map(|(token, _)| token.len())
                .max()
                .unwrap_or_default(),
            plain,
        }
    }

    /// Appends the ids of a text without special tokens.
    pub(crate) fn encode(
        &self,
        text: &str,
        pieces: &StringArena,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        self.words
            .split(text, SPACE, &mut |word| self.encode_word(word, pieces, out))
    }

    /// `word` begins with [`SPACE`].
    fn encode_word(
        &self,
        word: &str,
        pieces: &StringArena,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let first = out.len();
        // The first token has at least one character of the word.
        let mut least = SPACE.len_utf8() + 1;
        let mut rest = if word.chars().count() <= WORD_CHARACTERS_MAX + 1 {
            word
        } else {
            return self.push_unknown(word, out);
        };
        while !rest.is_empty() {
            let Some((id, len)) = self.longest(rest, least, pieces) else {
                out.truncate(first);
                return self.push_unknown(word, out);
            };
            out.push(id);
            (rest, least) = (&rest[len..], 1);
        }
        Ok(())
    }

    /// The longest token of at least `least` bytes that `text` begins with, and its length.
    fn longest(&self, text: &str, least: usize, pieces: &StringArena) -> Option<(u32, usize)> {
        let most = text.len().min(self.token_bytes_max);
        (least..=most)
            .rev()
            .filter(|len| text.is_char_boundary(*len))
            .find_map(|len| {
                let id = pieces.find(&text.as_bytes()[..len])?;
                self.plain[id as usize].then_some((id, len))
            })
    }

    fn push_unknown(&self, word: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let word = word.trim_start_matches(SPACE);
        let shown: String = word.chars().take(WORD_CHARACTERS_MAX).collect();
        let missing = || TokenizerError(format!("no tokens for {shown:?} and no unknown token"));
        out.push(self.unknown.ok_or_else(missing)?);
        Ok(())
    }
}

/// Changes of the characters before a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BertWords {
    pub(crate) lowercase: bool,
    pub(crate) strip_accents: bool,
}

/// What a character means for the cuts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordPart {
    Dropped,
    Blank,
    /// A word of its own: punctuation or an ideograph.
    Alone,
    Letter,
}

impl BertWords {
    /// Passes each word of `text` to `each`, in order, written behind `prefix`.
    pub(crate) fn split<E>(
        self,
        text: &str,
        prefix: char,
        each: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut words = WordBuffer::new(prefix);
        if text.is_ascii() || !self.strip_accents {
            for written in text.chars() {
                words.push(written, self.lowercase, each)?;
            }
        } else {
            let kept = text.chars().filter(|&written| !is_dropped(written));
            let plain = kept
                .nfd()
                .map(|(written, _)| written)
                .filter(|&written| !is_accent(written));
            for written in plain {
                words.push(written, self.lowercase, each)?;
            }
        }
        words.end(each)
    }
}

/// The word that is being read, behind its prefix.
struct WordBuffer {
    word: String,
    prefix_bytes: usize,
}

impl WordBuffer {
    fn new(prefix: char) -> Self {
        Self {
            word: String::from(prefix),
            prefix_bytes: prefix.len_utf8(),
        }
    }

    fn push<E>(
        &mut self,
        written: char,
        lowercase: bool,
        each: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        match part_of(written) {
            WordPart::Dropped => {}
            WordPart::Blank => self.end(each)?,
            WordPart::Letter => self.append(written, lowercase),
            WordPart::Alone => {
                self.end(each)?;
                self.append(written, lowercase);
                self.end(each)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, written: char, lowercase: bool) {
        if lowercase {
            self.word.extend(written.to_lowercase());
        } else {
            self.word.push(written);
        }
    }

    /// Ends the word, if there is one.
    fn end<E>(&mut self, each: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        if self.word.len() > self.prefix_bytes {
            each(&self.word)?;
            self.word.truncate(self.prefix_bytes);
        }
        Ok(())
    }
}

fn part_of(written: char) -> WordPart {
    match written {
        'a'..='z' | 'A'..='Z' | '0'..='9' => WordPart::Letter,
        ' ' | '\t' | '\n' | '\r' => WordPart::Blank,
        _ if written.is_ascii_punctuation() => WordPart::Alone,
        _ if is_dropped(written) => WordPart::Dropped,
        _ if written.is_whitespace() => WordPart::Blank,
        _ if is_ideograph(written) || is_punctuation(written) => WordPart::Alone,
        _ => WordPart::Letter,
    }
}

/// Control, format and private characters, and the replacement character.
fn is_dropped(written: char) -> bool {
    use GeneralCategory::{Control, Format, PrivateUse};
    if matches!(written, '\t' | '\n' | '\r') {
        return false;
    }
    let category = get_general_category(written);
    written == char::REPLACEMENT_CHARACTER || matches!(category, Control | Format | PrivateUse)
}

fn is_accent(written: char) -> bool {
    get_general_category(written) == GeneralCategory::NonspacingMark
}

fn is_punctuation(written: char) -> bool {
    use GeneralCategory as Category;
    matches!(
        get_general_category(written),
        Category::ConnectorPunctuation
            | Category::DashPunctuation
            | Category::OpenPunctuation
            | Category::ClosePunctuation
            | Category::InitialPunctuation
            | Category::FinalPunctuation
            | Category::OtherPunctuation
    )
}

/// The blocks that BERT calls Chinese. One begins at U+2B920 in the published tokenizers, not at U+2B820.
fn is_ideograph(written: char) -> bool {
    matches!(
        u32::from(written),
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x2_0000..=0x2_A6DF
            | 0x2_A700..=0x2_B73F
            | 0x2_B740..=0x2_B81F
            | 0x2_B920..=0x2_CEAF
            | 0xF900..=0xFAFF
            | 0x2_F800..=0x2_FA1F
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, words: BertWords) -> String {
        let mut found = Vec::new();
        let result: Result<(), ()> = words.split(text, '_', &mut |word| {
            found.push(word.to_owned());
            Ok(())
        });
        result.unwrap();
        found.join("|")
    }

    #[test]
    fn words_are_expected() {
        let uncased = BertWords {
            lowercase: true,
            strip_accents: true,
        };
        let cased = BertWords {
            lowercase: false,
            strip_accents: false,
        };
        for (label, rules, text, expected) in [
            ("nothing", uncased, "", ""),
            ("blanks", uncased, " \t\n\u{3000} ", ""),
            ("lower case", uncased, "Hello WORLD", "_hello|_world"),
            ("punctuation", uncased, "it's $5!", "_it|_'|_s|_$|_5|_!"),
            ("accents", uncased, "Ça été", "_ca|_ete"),
            ("accents apart", uncased, "e\u{301}a", "_ea"),
            ("ideographs", uncased, "x你好y", "_x|_你|_好|_y"),
            ("hangul", uncased, "한", "_\u{1112}\u{1161}\u{11ab}"),
            ("controls", uncased, "a\u{0}b\u{200b}c\u{fffd}", "_abc"),
            ("wide punctuation", uncased, "a「b」", "_a|_「|_b|_」"),
            ("cased", cased, "Ça Été", "_Ça|_Été"),
        ] {
            assert_eq!(words(text, rules), expected, "{label}");
        }
    }
}
