//! Any bytes are a GGUF or a clear error. The seeds are the hostile files of `model`:
//!
//! ```sh
//! cargo +nightly fuzz run gguf_parse fuzz/corpus/gguf_parse crates/weights/tests/hostile -- -rss_limit_mb=256
//! ```
#![no_main]

#[path = "../../crates/weights/tests/it/hostile/walk.rs"]
mod walk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    _ = walk::walk(bytes.to_vec());
});
