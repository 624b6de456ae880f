//! Towers: encoders of images, in files of their own (`mmproj-*.gguf`, `general.architecture` `clip`), inside of a model's
//! GGUF (`embedded.rs`), or in its folder of safetensors.
//!
//! One pass computes all towers. Their differences are data: a row of the table in `projector.rs`, by the name that the file
//! gives to what lies between the tower and the text, and the sizes of [`VisionConfig`]. The tensors are
//! [`crate::parameters::TowerWeights`]; what a tower wants of an image is a [`media::Recipe`].
//!
//! Source of keys and names: llama.cpp, `tools/mtmd/clip-impl.h` and `clip.cpp`; of the arithmetic: transformers, where the
//! two differ.

mod config;
mod embedded;
mod halved_rows;
mod minicpm;
mod projector;
mod recipe;
#[cfg(test)]
mod tests;

pub use config::{NEIGHBORS, VisionConfig, Windows, is_tower};
pub use embedded::EmbeddedTower;
pub(crate) use embedded::{is_of_images, is_tower_tensor};
pub use minicpm::{RESAMPLER_HEAD, ResamplerConfig};
pub use projector::{Activation, NormKind, Positions, Projector, TowerRopeKind, TowerTraits};
