//! Vocabularies that can be checked by eye: the id of a byte is the byte; longer tokens follow.

use std::sync::Arc;
use text::{InfillIds, TokenKind, Tokenizer, VocabModel, VocabSpec};

/// The first id after the bytes.
pub const BYTES: u32 = 256;

/// A byte-level vocabulary under construction.
#[derive(Debug)]
pub struct Vocabulary {
    tokens: Vec<String>,
    kinds: Vec<TokenKind>,
    merges: Vec<String>,
    bos: Option<u32>,
    eos: Option<u32>,
    infill: InfillIds,
}

impl Vocabulary {
    /// The 256 bytes.
    pub fn of_bytes() -> Self {
        Self {
            tokens: (0..=255).map(|byte| spell(&[byte])).collect(),
            kinds: vec![TokenKind::Normal; BYTES as usize],
            merges: Vec::new(),
            bos: None,
            eos: None,
            infill: InfillIds::default(),
        }
    }

    /// Appends a control token that ends an answer.
    #[must_use]
    pub fn with_eos(mut self, text: &str) -> Self {
        self.eos = Some(self.next_id());
        self.with_control_tokens(&[text])
    }

    /// Appends a control token that begins a prompt.
    #[must_use]
    pub fn with_bos(mut self, text: &str) -> Self {
        self.bos = Some(self.next_id());
        self.with_control_tokens(&[text])
    }

    /// Names the tokens of fill-in-the-middle prompts, as a file may do: any tokens of the vocabulary.
    #[must_use]
    pub fn with_infill(mut self, infill: InfillIds) -> Self {
        self.infill = infill;
        self
    }

    /// Appends control tokens.
    #[must_use]
    pub fn with_control_tokens(mut self, texts: &[impl AsRef<str>]) -> Self {
        let texts = texts.iter().map(|text| text.as_ref().to_owned());
        self.tokens.extend(texts);
        self.kinds.resize(self.tokens.len(), TokenKind::Control);
        self
    }

    /// Appends normal tokens, which no merge makes.
    #[must_use]
    pub fn with_tokens(mut self, tokens: &[impl AsRef<[u8]>]) -> Self {
        let tokens = tokens.iter().map(|token| spell(token.as_ref()));
        self.tokens.extend(tokens);
        self.kinds.resize(self.tokens.len(), TokenKind::Normal);
        self
    }

    /// Appends the tokens that these merges make, best first. Both sides are spelled as in a tokenizer's file.
    #[must_use]
    pub fn with_merges(mut self, merges: &[&str]) -> Self {
        self.tokens
            .extend(merges.iter().map(|merge| merge.replace(' ', "")));
        self.kinds.resize(self.tokens.len(), TokenKind::Normal);
        self.merges.extend(merges.iter().map(|&merge| merge.into()));
        self
    }

    /// The tokenizer of this vocabulary.
    ///
    /// # Panics
    /// When two tokens are equal.
    pub fn into_tokenizer(self) -> Arc<Tokenizer> {
        let spec = VocabSpec {
            model: VocabModel::Bpe,
            pre: Some("gpt-2".to_owned()),
            tokens: self.tokens,
            kinds: self.kinds,
            scores: Vec::new(),
            merges: self.merges,
            bos: self.bos,
            eos: self.eos,
            eot: None,
            infill: self.infill,
            unknown: None,
            add_bos: Some(false),
            add_eos: Some(false),
            add_space_prefix: Some(false),
            merge_spaces: false,
            char_map: Vec::new(),
            lowercase: false,
            strip_accents: false,
        };
        Arc::new(Tokenizer::from_vocab(spec).expect("a vocabulary of bytes"))
    }

    fn next_id(&self) -> u32 {
        u32::try_from(self.tokens.len()).expect("a small vocabulary")
    }
}

/// GPT-2's printable spelling of bytes.
fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| spell_byte(byte)).collect()
}

fn spell_byte(byte: u8) -> char {
    let is_printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !is_printable(b)).count();
    let code = u32::try_from(before).map(|before| 0x100 + before);
    code.ok().and_then(char::from_u32).unwrap_or_default()
}
