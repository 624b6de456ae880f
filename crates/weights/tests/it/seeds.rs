//! The seeds of the fuzz target of towers' keys as a test.

#[path = "fuzz_inputs.rs"]
mod inputs;

use std::path::Path;
use testing::folder::Folder;

/// Promise (Hostile input and memory): keys of a tower, in a GGUF of its own, inside of a text's, and in `config.json`, end with
/// an error or a tower.
#[test]
fn seeds_of_towers_keys_have_no_fault() {
    let folder = Folder::new("mmproj-config");
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/mmproj_config");
    let mut count = 0;
    for seed in std::fs::read_dir(&seeds).expect("a folder of seeds") {
        let path = seed.expect("a seed").path();
        let bytes = std::fs::read(&path).expect("a readable seed");
        // The seed, and with each byte of its first part changed.
        let changes = (0..bytes.len().min(2048)).step_by(7).map(Some);
        for change in std::iter::once(None).chain(changes) {
            let mut bytes = bytes.clone();
            if let Some(at) = change {
                bytes[at] = bytes[at].wrapping_add(1);
            }
            let run = || inputs::mmproj_config(&bytes, &folder.0);
            let outcome = std::panic::catch_unwind(run);
            assert!(outcome.is_ok(), "{}, byte {change:?}", path.display());
        }
        count += 1;
    }
    assert!(count > 5, "{count} seeds");
}
