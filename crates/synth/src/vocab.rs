//! Vocabularies: of a synthetic model (every byte, a few merges, and made-up words), and of synthetic encoders (letters
//! and a few words, as WordPiece or as XLM-R's Unigram).

use super::error::SynthError;
use weights::gguf::{Gguf, GgufWriter};

/// Entries that every byte-level vocabulary has: 256 bytes, four control tokens, one merge.
pub const VOCAB_MIN: u32 = 256 + CONTROL.len() as u32 + 1;

/// Control tokens; their ids follow the bytes'.
const CONTROL: [&str; 4] = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"];
const BOS: u32 = 256;
const EOS: u32 = 257;
const IM_END: u32 = 259;

/// Merges, best first, in GPT-2's alphabet (`Ġ` is the space). Each makes the token that follows.
const MERGES: &[&str] = &[
    "Ġ t", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ a", "Ġ s", "a t", "o r", "e n", "Ġ w",
    "Ġ o", "n d", "Ġa nd", "e s", "i s", "Ġo f", "Ġ in", "in g", "Ġt o", "o u", "l l",
];

const TYPE_NORMAL: i32 = 1;
const TYPE_CONTROL: i32 = 3;

/// ChatML, as published with Qwen's models, reduced to its turns.
const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' \
     + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Adds a byte-level vocabulary of `size` entries. The id of a byte is the byte. `adds_eos`: texts end with the token for
/// the end. The last entries are the control tokens `marks`.
pub(super) fn put_bytes(size: u32, adds_eos: bool, marks: &[&str], out: &mut GgufWriter) {
    let merges = &MERGES[..MERGES.len().min((size - VOCAB_MIN) as usize + 1)];
    let mut tokens: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
    tokens.extend(CONTROL.map(str::to_owned));
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    // No merges lead to these tokens, so text never encodes to them; but the model can sample them, and then
    // a stream has words instead of broken characters.
    let words = (size as usize - tokens.len()).saturating_sub(marks.len());
    tokens.extend((0..words as u32).map(word));
    let first_mark = tokens.len() as u32;
    tokens.extend(marks.iter().map(|&mark| mark.to_owned()));
    tokens.truncate(size as usize);
    let types: Vec<i32> = (0..size)
        .map(|id| {
            if (BOS..=IM_END).contains(&id) || id >= first_mark {
                TYPE_CONTROL
            } else {
                TYPE_NORMAL
            }
        })
        .collect();
    out.str("tokenizer.ggml.model", "gpt2")
        .str("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &types)
        .strings("tokenizer.ggml.merges", merges)
        .u32("tokenizer.ggml.bos_token_id", BOS)
        .u32("tokenizer.ggml.eos_token_id", EOS)
        .u32("tokenizer.ggml.eot_token_id", IM_END)
        .bool("tokenizer.ggml.add_bos_token", true)
        .bool("tokenizer.ggml.add_eos_token", adds_eos)
        .str("tokenizer.chat_template", CHAT_TEMPLATE);
}

/// Adds another file's tokenizer, including the chat template.
pub(super) fn put_from(other: &Gguf, out: &mut GgufWriter) {
    for (key, value) in other
        .metadata()
        .filter(|(key, _)| key.starts_with("tokenizer."))
    {
        out.value(key, value);
    }
    if other.get("tokenizer.chat_template").is_none() {
        out.str("tokenizer.chat_template", CHAT_TEMPLATE);
    }
}

/// Entries of another file's vocabulary.
pub(super) fn size_of(other: &Gguf) -> Result<u32, SynthError> {
    let tokens = other
        .tokenizer()
        .map_err(SynthError::Vocabulary)?
        .tokens
        .len();
    Ok(u32::try_from(tokens).unwrap_or(u32::MAX)) // an array that long fits in no file
}

/// GPT-2's letter for a byte: printable Latin-1 represents itself, other bytes are U+0100 and up.
fn letter(byte: u8) -> char {
    let itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if itself(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !itself(other)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// A made-up word of two or more syllables with a leading space; unique for each number.
fn word(mut number: u32) -> String {
    const CONSONANTS: &[u8] = b"bcdfghjklmnpqrstvwxz";
    const VOWELS: &[u8] = b"aeiou";
    let mut word = String::from("Ġ");
    for syllable in 0.. {
        if syllable >= 2 && number == 0 {
            break;
        }
        // From the third syllable on, digits count from 1, so that 0 never follows.
        let digit = if syllable < 2 {
            number % 100
        } else {
            (number - 1) % 100
        };
        number = if syllable < 2 {
            number / 100
        } else {
            (number - 1) / 100
        };
        word.push(char::from(CONSONANTS[digit as usize / 5]));
        word.push(char::from(VOWELS[digit as usize % 5]));
    }
    word
}

/// Special tokens of WordPiece, by id.
const SPECIALS: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
/// Kinds of WordPiece's special tokens: the second is the unknown token, the others are control tokens.
const SPECIAL_KINDS: [i32; 5] = [3, 2, 3, 3, 3];
/// Special tokens of XLM-R, by id.
const XLM_SPECIALS: [&str; 4] = ["<s>", "<pad>", "</s>", "<unk>"];
/// Kinds of XLM-R's special tokens: the last is the unknown token.
const XLM_SPECIAL_KINDS: [i32; 4] = [3, 3, 3, 2];
/// Scores of Unigram's letters and words: a word is likelier than its letters.
const SCORES: (f32, f32) = (-8.0, -4.0);
/// Whole words in addition to the letters, as GGUF writes them.
const WORDS: &[&str] = &[
    "▁the",
    "▁of",
    "▁and",
    "▁to",
    "▁in",
    "▁is",
    "▁cat",
    "▁dog",
    "▁river",
    "▁mill",
    "▁water",
    "▁wheel",
    "▁paris",
    "▁capital",
    "▁france",
    "ing",
    "ed",
    "er",
    "es",
    "▁search",
    "▁query",
    "▁document",
];

/// Kind of a synthetic encoder's vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderVocab {
    /// BERT's.
    WordPiece,
    /// XLM-R's.
    Unigram,
}

impl EncoderVocab {
    /// Token types of a model with such a vocabulary.
    pub(super) fn token_types(self) -> u32 {
        match self {
            Self::WordPiece => 2,
            Self::Unigram => 1,
        }
    }

    /// Number of tokens.
    pub(super) fn len(self) -> u32 {
        self.tokens().len() as u32
    }

    /// Special tokens, letters at the beginning and within words, and words.
    fn tokens(self) -> Vec<String> {
        let specials: &[&str] = match self {
            Self::WordPiece => &SPECIALS,
            Self::Unigram => &XLM_SPECIALS,
        };
        let mut tokens: Vec<String> = specials.iter().map(|token| (*token).to_owned()).collect();
        if self == Self::Unigram {
            tokens.push("▁".to_owned());
        }
        let letters = ('!'..='~').filter(|letter| !letter.is_ascii_uppercase());
        for letter in letters {
            tokens.push(format!("▁{letter}"));
            if letter.is_ascii_alphanumeric() || self == Self::Unigram {
                tokens.push(letter.to_string());
            }
        }
        tokens.extend(WORDS.iter().map(|word| (*word).to_owned()));
        tokens
    }

    /// Adds the keys of the tokenizer.
    pub(super) fn put(self, out: &mut GgufWriter) {
        let tokens = self.tokens();
        let special_kinds: &[i32] = match self {
            Self::WordPiece => &SPECIAL_KINDS,
            Self::Unigram => &XLM_SPECIAL_KINDS,
        };
        let special = |id: usize| special_kinds.get(id).copied().unwrap_or(1);
        let kinds: Vec<i32> = (0..tokens.len()).map(special).collect();
        out.str(
            "tokenizer.ggml.model",
            match self {
                Self::WordPiece => "bert",
                Self::Unigram => "t5",
            },
        )
        .str("tokenizer.ggml.pre", "default")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .u32("tokenizer.ggml.token_type_count", self.token_types());
        match self {
            Self::WordPiece => put_word_piece(out),
            Self::Unigram => put_unigram(&tokens, out),
        }
    }
}

fn put_word_piece(out: &mut GgufWriter) {
    out.u32("tokenizer.ggml.padding_token_id", 0)
        .u32("tokenizer.ggml.unknown_token_id", 1)
        .u32("tokenizer.ggml.cls_token_id", 2)
        .u32("tokenizer.ggml.seperator_token_id", 3)
        .u32("tokenizer.ggml.mask_token_id", 4);
}

fn put_unigram(tokens: &[String], out: &mut GgufWriter) {
    let (letter, word) = SCORES;
    let score = |(id, token): (usize, &String)| match token.trim_start_matches('▁').len() {
        _ if id < XLM_SPECIALS.len() => 0.0,
        0 | 1 => letter,
        _ => word,
    };
    let scores: Vec<f32> = tokens.iter().enumerate().map(score).collect();
    out.f32s("tokenizer.ggml.scores", &scores)
        .u32("tokenizer.ggml.bos_token_id", 0)
        .u32("tokenizer.ggml.padding_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("tokenizer.ggml.seperator_token_id", 2)
        .u32("tokenizer.ggml.unknown_token_id", 3)
        .bool("tokenizer.ggml.add_bos_token", true)
        .bool("tokenizer.ggml.add_eos_token", true)
        .bool("tokenizer.ggml.add_space_prefix", true)
        .bool("tokenizer.ggml.remove_extra_whitespaces", true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use weights::gguf::Text;

    #[test]
    fn byte_letters_equal_gpt2() {
        let rows = [
            (b'a', 'a'),
            (b' ', 'Ġ'),
            (b'\n', 'Ċ'),
            (0, 'Ā'),
            (0xad, 'Ń'),
            (0xff, 'ÿ'),
        ];
        for (byte, expected) in rows {
            assert_eq!(letter(byte), expected, "{byte}");
        }
    }

    #[test]
    fn vocabulary_entries_are_unique() {
        let mut out = GgufWriter::new();
        put_bytes(200_000, false, &[], &mut out);
        let mut bytes = Vec::new();
        out.write(&mut bytes, |_, _| Ok(())).unwrap();
        let gguf = Gguf::from_bytes(bytes).unwrap();
        let tokens: Vec<Text<'_>> = gguf.array("tokenizer.ggml.tokens").unwrap().collect();
        assert_eq!(tokens.len(), 200_000);
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len());
        assert_eq!(tokens[IM_END as usize].as_str(), Some("<|im_end|>"));
    }

    #[test]
    fn merges_join_existing_tokens() {
        let mut known: HashSet<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
        for merge in MERGES {
            let (left, right) = merge.split_once(' ').unwrap();
            assert!(known.contains(left) && known.contains(right), "{merge}");
            known.insert(format!("{left}{right}"));
        }
    }
}
