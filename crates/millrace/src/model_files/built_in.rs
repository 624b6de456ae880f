//! The default model: Millrace's own, in the binary, or, in a build without the feature `mini`, a model of random weights.

use crate::failure::Failure;
use weights::gguf::Gguf;

/// The name of the built-in model in the API.
pub(crate) const NAME: &str = if cfg!(feature = "mini") {
    "millrace-mini"
} else {
    "synthetic"
};

/// Opens the model in place, in the binary's own memory.
#[cfg(feature = "mini")]
pub(super) fn open() -> Result<Gguf, Failure> {
    static MINI: &[u8] = include_bytes!("../../mini/millrace-mini.gguf");
    Gguf::from_bytes(MINI).map_err(Failure::bug)
}

/// Makes a model of random weights, so that a new user sees a stream at once.
#[cfg(not(feature = "mini"))]
pub(super) fn open() -> Result<Gguf, Failure> {
    let bytes = crate::commands::synth::in_memory("tiny-llama", "Q8_0")?;
    Gguf::from_bytes(bytes).map_err(Failure::bug)
}
