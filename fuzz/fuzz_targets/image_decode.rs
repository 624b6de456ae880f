//! Any bytes are an image or an error that names its field, within the bounds of pixels and of looks at the clock. The seeds are the golden images of `media`:
#![no_main]

#[path = "../../crates/media/tests/it/fuzz_inputs.rs"]
#[allow(dead_code, reason = "each target runs one of the functions")]
mod fuzz_inputs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_inputs::image_decode(input));
