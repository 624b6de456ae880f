//! Encoding algorithms.

use super::bpe::Bpe;
use super::json_pipeline::JsonPipeline;
use super::special_tokens::SpecialTokens;
use super::spm::Spm;
use super::word_splitter::Splitter;

/// Encoding algorithm of a vocabulary.
pub(super) enum Encoder {
    Bpe {
        specials: SpecialTokens,
        splitter: Splitter,
        bpe: Bpe,
    },
    Spm {
        specials: SpecialTokens,
        spm: Spm,
    },
    Json(Box<JsonPipeline>),
}
