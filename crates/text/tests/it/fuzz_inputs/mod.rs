//! The inputs of fuzz targets, and their seeds as a test.
//!
//! Promise (Text): a hostile `tokenizer.json` is an error, or encodes any text to ids of its vocabulary.

mod grammar;
mod tokenizer_json;

use std::path::Path;

#[test]
fn seeds_of_fuzz_targets_have_no_fault() {
    type Target = fn(&[u8]);
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let targets: [(&str, Target); 2] = [
        ("grammars", grammar::run),
        ("tokenizer_json", tokenizer_json::run),
    ];
    for (name, run) in targets {
        let folder = std::fs::read_dir(seeds.join(name)).expect("a folder of seeds");
        let mut count = 0;
        for seed in folder {
            let path = seed.expect("a seed").path();
            let bytes = std::fs::read(&path).expect("a readable seed");
            let outcome = std::panic::catch_unwind(|| run(&bytes));
            assert!(outcome.is_ok(), "{}", path.display());
            count += 1;
        }
        assert!(count > 0, "{name} has no seeds");
    }
}
