//! Any bytes are a tokenizer or a clear error; `tokenizer_json.rs` of the tests of `text` describes the inputs.
#![no_main]

#[path = "../../crates/text/tests/it/fuzz_inputs/tokenizer_json.rs"]
mod tokenizer_json;

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        // The library's panics are caught and become errors; a panic that is not caught still aborts.
        std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    },
    |input: &[u8]| tokenizer_json::run(input)
);
