//! Any bytes are a tower's keys or an error. `fuzz_inputs.rs` of the tests of `weights` describes the input.
#![no_main]

#[path = "../../crates/weights/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("mmproj-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the files of an input");
    folder
});

fuzz_target!(|input: &[u8]| fuzz_inputs::mmproj_config(input, &FOLDER));
