//! Any text is an image within its bound, a remote URL, or an error that names its field.
#![no_main]

#[path = "../../crates/media/tests/it/fuzz_inputs.rs"]
#[allow(dead_code, reason = "each target runs one of the functions")]
mod fuzz_inputs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_inputs::data_url(input));
