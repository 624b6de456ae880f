//! A file's tokenizer metadata (`tokenizer.*`), typed, checked and borrowed.
//!
//! Constructing a tokenizer is the task of another crate; the program copies the data over.

use super::{Elements, FromValue, Gguf, GgufError, Text};

/// Ids of the tokens of fill-in-the-middle prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfillMeta {
    /// Begins the text before the gap.
    pub prefix: Option<u32>,
    /// Begins the text after the gap.
    pub suffix: Option<u32>,
    /// Begins the text of the gap.
    pub middle: Option<u32>,
    /// Padding.
    pub padding: Option<u32>,
    /// Begins the name of a repository.
    pub repository: Option<u32>,
    /// Separates files.
    pub file: Option<u32>,
}

/// A file's tokenizer as plain data.
///
/// Texts need not be UTF-8 (see [`Text`]). Ids are below the number of tokens; a larger special id, which
/// some files use for "none", becomes `None`.
#[derive(Clone)]
pub struct TokenizerMeta<'a> {
    /// Encoding algorithm: `gpt2`, `llama`, ...
    pub model: &'a str,
    /// Name of the pre-tokenizer.
    pub pre: Option<&'a str>,
    /// Token texts, by id.
    pub tokens: Elements<'a, Text<'a>>,
    /// Token kinds, by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub kinds: Option<Elements<'a, i32>>,
    /// Scores, by id.
    pub scores: Option<Elements<'a, f32>>,
    /// Merges, `"left right"`, best first.
    pub merges: Option<Elements<'a, Text<'a>>>,
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message.
    pub eom: Option<u32>,
    /// Tokens of fill-in-the-middle prompts.
    pub infill: InfillMeta,
    /// Unknown token.
    pub unknown: Option<u32>,
    /// Classification: the first token of an encoder's text.
    pub cls: Option<u32>,
    /// Separator: the last token of an encoder's text.
    pub separator: Option<u32>,
    /// Padding.
    pub padding: Option<u32>,
    /// Whether a prompt begins with `bos`.
    pub add_bos: Option<bool>,
    /// Whether a prompt ends with `eos`.
    pub add_eos: Option<bool>,
    /// Whether a space is put before the first word.
    pub add_space_prefix: Option<bool>,
    /// Whether several spaces are one.
    pub merge_spaces: Option<bool>,
    /// SentencePiece's compiled map of characters.
    pub char_map: Option<Vec<u8>>,
    /// Whether text is put in lower case.
    pub lowercase: Option<bool>,
    /// Whether accents are removed.
    pub strip_accents: Option<bool>,
    /// The chat template.
    pub chat_template: Option<&'a str>,
}

impl Gguf {
    /// The file's tokenizer.
    ///
    /// # Errors
    /// A key that is missing (`tokenizer.ggml.model`, `tokenizer.ggml.tokens`) or of the wrong type, or a
    /// list whose length is not the number of tokens.
    pub fn tokenizer(&self) -> Result<TokenizerMeta<'_>, GgufError> {
        let tokens = self.array::<Text<'_>>("tokenizer.ggml.tokens")?;
        let count = tokens.len();
        let special = |key: &str| {
            let id = self.find::<i64>(&format!("tokenizer.ggml.{key}_token_id"))?;
            Ok::<_, GgufError>(
                id.and_then(|id| u32::try_from(id).ok())
                    .filter(|&id| (id as usize) < count),
            )
        };
        // A part under its name of today, or that of early files.
        let part = |new: &str, old: &str| Ok::<_, GgufError>(special(new)?.or(special(old)?));
        let infill = InfillMeta {
            prefix: part("fim_pre", "prefix")?,
            suffix: part("fim_suf", "suffix")?,
            middle: part("fim_mid", "middle")?,
            padding: special("fim_pad")?,
            repository: special("fim_rep")?,
            file: special("fim_sep")?,
        };
        Ok(TokenizerMeta {
            model: self.need("tokenizer.ggml.model")?,
            pre: self.find("tokenizer.ggml.pre")?,
            kinds: self.one_each("tokenizer.ggml.token_type", count)?,
            scores: self.one_each("tokenizer.ggml.scores", count)?,
            merges: self.find_array("tokenizer.ggml.merges")?,
            bos: special("bos")?,
            eos: special("eos")?,
            eot: special("eot")?,
            eom: special("eom")?,
            infill,
            unknown: special("unknown")?,
            cls: special("cls")?,
            // Spelled so by the format.
            separator: special("seperator")?,
            padding: special("padding")?,
            add_bos: self.find("tokenizer.ggml.add_bos_token")?,
            add_eos: self.find("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: self.find("tokenizer.ggml.add_space_prefix")?,
            merge_spaces: self.find("tokenizer.ggml.remove_extra_whitespaces")?,
            char_map: self.char_map()?,
            lowercase: self.find("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: self.find("tokenizer.ggml.normalizer.strip_accents")?,
            chat_template: self.find("tokenizer.chat_template")?,
            tokens,
        })
    }

    /// One of several named chat templates of a file, such as `tool_use`.
    ///
    /// # Errors
    /// The value is not text.
    pub fn chat_template(&self, name: &str) -> Result<Option<&str>, GgufError> {
        self.find(&format!("tokenizer.chat_template.{name}"))
    }

    /// Bytes that some files store as signed numbers.
    fn char_map(&self) -> Result<Option<Vec<u8>>, GgufError> {
        let bytes = self.find_array::<i64>("tokenizer.ggml.precompiled_charsmap")?;
        Ok(bytes.map(|bytes| bytes.map(|byte| byte as u8).collect()))
    }

    fn one_each<'a, T: FromValue<'a>>(
        &'a self,
        key: &str,
        count: usize,
    ) -> Result<Option<Elements<'a, T>>, GgufError> {
        match self.find_array(key)? {
            Some(list) if list.len() != count => Err(GgufError::OutOfRange {
                key: key.to_owned(),
                expected: "one entry for each token",
                found: format!("{} entries for {count} tokens", list.len()),
            }),
            list => Ok(list),
        }
    }
}
