//! Any bytes are a grammar or a clear rejection; `grammar.rs` of the tests of `text` describes the inputs.
#![no_main]

#[path = "../../crates/text/tests/it/fuzz_inputs/grammar.rs"]
mod grammar;

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        // The library's panics are caught and become errors; a panic that is not caught still aborts.
        std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    },
    |input: &[u8]| grammar::run(input)
);
