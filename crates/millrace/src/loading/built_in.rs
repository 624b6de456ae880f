//! The model that is there when no other is named: Millrace's own, in the binary, or, in a build without it, one of
//! random weights.

use crate::failure::Failure;
use model::gguf::Gguf;

/// What clients call it.
pub(crate) const NAME: &str = if cfg!(feature = "mini") {
    "millrace-mini"
} else {
    "synthetic"
};

/// Opens it where it lies in the binary.
#[cfg(feature = "mini")]
pub(super) fn open() -> Result<Gguf, Failure> {
    static MINI: &[u8] = include_bytes!("../../mini/millrace-mini.gguf");
    Gguf::from_bytes(MINI).map_err(Failure::bug)
}

/// Makes one of random weights, so that a new user sees a stream at once.
#[cfg(not(feature = "mini"))]
pub(super) fn open() -> Result<Gguf, Failure> {
    let bytes = crate::commands::synth::in_memory("tiny-llama", "Q8_0")?;
    Gguf::from_bytes(bytes).map_err(Failure::bug)
}
