//! The algorithms that turn text into ids.

use super::bpe::Bpe;
use super::pipeline::Pipeline;
use super::special::Specials;
use super::split::Splitter;
use super::spm::Spm;

/// Algorithm from text to ids.
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
