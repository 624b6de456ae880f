//! Vocabularies of synthetic encoders: letters and a few words, as WordPiece or as XLM-R's Unigram.

use weights::gguf::GgufWriter;

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
/// Whole words beside the letters, as GGUF writes them.
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
