//! Rows of a prompt that are vectors: what an encoder makes of an image, later of sound.
//!
//! A request names the rows of each input ([`MediaInput`]), and the engine has the encoder compute them when the sequence
//! gets there. In the sequence's tokens, such a row is a number of the input's key, so that the prefix index tells images apart exactly, by comparing tokens.

mod media_input;

pub(crate) use media_input::MediaAbilities;
pub use media_input::{MEDIA_INPUTS_MAX, MediaInput};
