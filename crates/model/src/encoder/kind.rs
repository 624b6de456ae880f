//! Families of encoders, by name.

/// A family of encoders, by its name in `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncoderKind {
    /// BERT with learned positions: BGE, MiniLM, E5, mxbai; XLM-R as bge-m3.
    Bert,
    /// BERT with rope and a gated feed-forward part: nomic-embed-text 1 and 1.5.
    NomicBert,
}

impl EncoderKind {
    /// All supported families.
    pub const ALL: [Self; 2] = [Self::Bert, Self::NomicBert];

    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::NomicBert => "nomic-bert",
        }
    }
}
