//! The inputs of the fuzz targets, and their seeds as a test.

#[path = "fuzz_inputs.rs"]
pub(crate) mod inputs;

use crate::pattern::golden;
use std::path::{Path, PathBuf};

#[test]
fn seeds_of_fuzz_targets_have_no_fault() {
    type Target = fn(&[u8]);
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let targets: [(PathBuf, Target); 3] = [
        (golden().join("images"), inputs::image_decode),
        (seeds.join("data_url"), inputs::data_url),
        (seeds.join("row_plan"), inputs::row_plan),
    ];
    for (folder, run) in targets {
        let mut count = 0;
        for seed in std::fs::read_dir(&folder).expect("a folder of seeds") {
            let path = seed.expect("a seed").path();
            let bytes = std::fs::read(&path).expect("a readable seed");
            let outcome = std::panic::catch_unwind(|| run(&bytes));
            assert!(outcome.is_ok(), "{}", path.display());
            count += 1;
        }
        assert!(count > 0, "{} has no seeds", folder.display());
    }
}
