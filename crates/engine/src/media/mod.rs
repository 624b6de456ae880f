//! Rows of a prompt that are vectors: what an encoder makes of an image, later of sound.
//!
//! A request names the rows of each input ([`MediaInput`]), and the engine has the encoder compute them when the sequence
//! gets there. Among the sequence's tokens, a number of the input's name stands for each of its rows ([`media_ids`]), so that
//! the prefix index distinguishes images exactly, by comparing tokens. Everything that reads tokens as ids of the vocabulary
//! leaves such rows out: penalties, prompt lookup, the prompt cache on disk, the draft model.

mod encoding_cache;
mod layout;
mod media_ids;
mod media_input;
mod sequence_media;

pub(crate) use encoding_cache::EncodingCache;
pub(crate) use media_ids::{MediaIds, is_media};
pub(crate) use media_input::MediaAbilities;
pub use media_input::{MEDIA_INPUTS_MAX, MediaInput};
pub(crate) use sequence_media::SequenceMedia;
