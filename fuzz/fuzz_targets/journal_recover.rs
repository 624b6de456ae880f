//! Any bytes are a segment of a journal, and any records in frames with right checksums: recovery keeps to its memory,
//! and a stream that is appended afterwards is found.
//!
//! ```sh
//! cargo +nightly fuzz run journal_recover -- -rss_limit_mb=256
//! ```
#![no_main]

#[path = "../../crates/journal/tests/it/arbitrary_segments.rs"]
mod arbitrary_segments;
#[allow(dead_code)]
#[path = "../../crates/journal/tests/it/model_disk.rs"]
mod model_disk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    arbitrary_segments::check_bytes(bytes);
});
