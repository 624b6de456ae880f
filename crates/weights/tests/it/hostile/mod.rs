//! Hostile GGUF files, which the fuzzer begins with as well.

pub(crate) mod cases;
pub(crate) mod raw;
pub(crate) mod walk;
