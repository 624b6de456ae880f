//! Synthetic models: real GGUF files of any shape with random weights, for benchmarks and tests.
//!
//! A [`SynthSpec`] says what the model is; [`SynthSpec::write`] writes it. The file has every key
//! and tensor that the architecture needs, so any GGUF implementation loads it. The weights
//! are noise, but noise with manners: activations stay near one through the layers, attention
//! looks at some positions more than at others, and logits are spread widely enough that the best
//! token is rarely a close call. Quantised weights are drawn as blocks, not quantised from
//! floats: all of a block's bits, scales and minima included, take all values they can have.
//!
//! The same spec gives the same bytes on every machine: each row has a generator of its own,
//! seeded by seed, tensor name and row, and no sum depends on an order of threads. (The divisors in
//! `rope_freqs.weight` come from the platform's `powf` and are as exact as that.)

mod blocks;
mod error;
mod keys;
mod mix;
mod plan;
mod presets;
mod rng;
mod spec;
mod vocab;
mod write;

pub use error::SynthError;
pub use mix::Mix;
pub use presets::PRESETS;
pub use spec::{RopeScaling, RopeSynth, SynthSpec};
pub use vocab::VOCAB_MIN;
