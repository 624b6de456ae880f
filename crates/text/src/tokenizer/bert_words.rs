//! Words of BERT's basic tokenization: cleaned, in lower case, without accents, cut at white space, punctuation and
//! ideographs.
//!
//! The rules are those of the published models' `tokenizer.json` (`BertNormalizer`, `BertPreTokenizer`). llama.cpp
//! differs in two rules: its decomposition keeps one character of several, so that Hangul loses its vowels, and some
//! control characters separate words there.

use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization_alignments::UnicodeNormalization;

/// Changes of the characters before a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BertWords {
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
