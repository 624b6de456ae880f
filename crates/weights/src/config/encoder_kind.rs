//! Families of encoders, by name.

/// GGUF's key of the separator, as GGUF spells it.
pub(crate) const SEPARATOR_KEY: &str = "tokenizer.ggml.seperator_token_id";

/// A family of encoders, by its name in `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncoderKind {
    /// BERT with learned positions: BGE, MiniLM, E5, mxbai; XLM-R as bge-m3.
    Bert,
    /// BERT with rope and a gated feed-forward part: nomic-embed-text 1 and 1.5.
    NomicBert,
    /// BERT with rope, and with experts in every second layer: nomic-embed-text 2.
    NomicBertMoe,
}

impl EncoderKind {
    /// All supported families.
    pub const ALL: [Self; 3] = [Self::Bert, Self::NomicBert, Self::NomicBertMoe];

    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::NomicBert => "nomic-bert",
            Self::NomicBertMoe => "nomic-bert-moe",
        }
    }
}
