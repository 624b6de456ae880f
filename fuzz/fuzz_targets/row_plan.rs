//! Any size has a plan within the bounds of rows, or an error. `fuzz_inputs.rs` of the tests of `media` describes the input.
#![no_main]

#[path = "../../crates/media/tests/it/fuzz_inputs.rs"]
#[allow(dead_code, reason = "each target runs one of the functions")]
mod fuzz_inputs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| fuzz_inputs::row_plan(input));
