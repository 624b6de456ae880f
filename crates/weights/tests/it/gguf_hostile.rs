//! Hostile files are refused, each for its own reason, whatever else is in them.
//!
//! The files lie in `tests/hostile/`, where the fuzzer finds them as well; `cases.rs` says how each
//! was made. `cargo test -p model --test it gguf_hostile -- --ignored` writes them anew.

use crate::hostile::{cases, walk};
use std::path::PathBuf;
use weights::gguf::Gguf;

fn path(label: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hostile/{label}.gguf"))
}

#[test]
fn hostile_files_are_rejected_with_reason() {
    for (label, bytes, expected) in cases::all() {
        match (walk::walk(bytes), expected) {
            (Ok(_), "") => {}
            (Err(error), expected) if !expected.is_empty() && error.contains(expected) => {}
            (outcome, _) => panic!("{label}: {outcome:?}, expected `{expected}`"),
        }
    }
}

#[test]
fn stored_files_equal_cases() {
    let cases = cases::all();
    for (label, bytes, _) in &cases {
        let file = std::fs::read(path(label)).unwrap_or_default();
        assert!(
            &file == bytes,
            "{label}: write the files anew (see this file's head)"
        );
    }
    let folder = path("x").with_file_name("").read_dir().unwrap();
    let files = folder.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|extension| extension == "gguf")
    });
    assert_eq!(files.count(), cases.len(), "a file without a case");
}

#[test]
fn mapped_files_are_rejected_by_name() {
    for (label, _, expected) in cases::all().into_iter().filter(|case| !case.2.is_empty()) {
        let path = path(label);
        let error = Gguf::open(&path).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{}: ", path.display())),
            "{label}: {error}"
        );
        // A file on disk has a name, so one part of two is rejected by name.
        let expected = if label == "part-of-two" {
            "but not named like one"
        } else {
            expected
        };
        assert!(error.contains(expected), "{label}: {error}");
    }
}

#[test]
#[ignore = "writes the files"]
fn hostile_files_are_written() {
    for (label, bytes, _) in cases::all() {
        std::fs::write(path(label), bytes).unwrap();
    }
}
