//! Encoding algorithms.

use super::bpe::Bpe;
use super::char_bpe::CharBpe;
use super::json_pipeline::JsonPipeline;
use super::special_tokens::SpecialTokens;
use super::spm::Spm;
use super::unigram::Unigram;
use super::word_piece::WordPiece;
use super::word_splitter::Splitter;

/// Encoding algorithm of a vocabulary.
pub(super) enum Encoder {
    Bpe {
        specials: SpecialTokens,
        splitter: Splitter,
        bpe: Bpe,
    },
    CharBpe {
        specials: SpecialTokens,
        bpe: CharBpe,
    },
    Spm {
        specials: SpecialTokens,
        spm: Spm,
    },
    Unigram {
        specials: SpecialTokens,
        unigram: Unigram,
    },
    WordPiece {
        specials: SpecialTokens,
        word_piece: WordPiece,
    },
    Json(Box<JsonPipeline>),
}
