//! Synthetic models: real GGUF files of any shape with random weights, for benchmarks and tests.
//!
//! A [`SynthSpec`] describes the model; [`SynthSpec::write`] writes the file. The file has every key and
//! tensor of the architecture, so any GGUF implementation loads the file. The random weights are
//! well-behaved: activations stay near one through the layers, attention is not uniform, and logits are
//! spread widely enough that the best token is rarely a close call. Quantized weights are drawn as blocks
//! instead of being quantized from floats: all bits of a block, including scales and minima, take all
//! possible values.
//!
//! A spec gives equal bytes on every machine: each row has its own generator, seeded by seed, tensor name and
//! row, and no sum depends on an order of threads. (The divisors in `rope_freqs.weight` come from the
//! platform's `powf` and are as exact as that function.)

#![deny(clippy::match_bool)]

mod blocks;
mod encoder;
mod error;
mod experts;
mod keys;
mod layers;
mod mix;
mod outline;
mod plan;
mod preset_names;
mod presets;
mod recurrent;
mod spec;
mod vision;
mod vision_marks;
mod vocab;
mod write;

pub use encoder::{ENCODER_PRESETS, EncoderSpec, PoolingSynth};
pub use error::SynthError;
pub use experts::{ExpertsSynth, LatentSynth};
pub use layers::LayersSynth;
pub use mix::Mix;
pub use outline::TaskSynth;
pub use preset_names::preset_names;
pub use recurrent::RecurrentSynth;
pub use spec::{RopeScaling, RopeSynth, SynthSpec};
pub use vision::{VISION_PRESETS, VisionSpec};
pub use vocab::{EncoderVocab, VOCAB_MIN};
pub use write::AdapterSynth;
