//! Encoding algorithms.

use super::bpe::Bpe;
use super::pipeline::Pipeline;
use super::special::Specials;
use super::split::Splitter;
use super::spm::Spm;

/// Encoding algorithm of a vocabulary.
pub(super) enum Encoder {
    Bpe {
        specials: Specials,
        splitter: Splitter,
        bpe: Bpe,
    },
    Spm {
        specials: Specials,
        spm: Spm,
    },
    Json(Box<Pipeline>),
}
