//! Metadata of real tokenizers, if the test data is available.

use std::path::PathBuf;
use testing::program::note_skipped_test;
use weights::gguf::{Gguf, Text, Value};

fn vocabularies() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata/vocab");
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "gguf"))
        .collect()
}

#[test]
fn real_vocabulary_files_are_read() {
    let paths = vocabularies();
    if paths.is_empty() {
        note_skipped_test("there is no ../shared/testdata/vocab beside the project");
    }
    for path in paths {
        let label = path.display();
        let gguf = Gguf::open(&path).unwrap();
        let tokens = gguf.array::<Text>("tokenizer.ggml.tokens").unwrap();
        let kinds = gguf.array::<i32>("tokenizer.ggml.token_type").unwrap();
        assert!(tokens.len() >= 32_000, "{label}: {} tokens", tokens.len());
        assert_eq!(tokens.len(), kinds.len(), "{label}");
        assert_eq!(tokens.clone().count(), tokens.len(), "{label}");
        assert!(
            tokens.clone().all(|token| token.as_str().is_some()),
            "{label}"
        );
        assert_eq!(gguf.metadata().count(), gguf.metadata_len(), "{label}");
        let architecture = gguf.need::<&str>("general.architecture").unwrap();
        assert!(
            gguf.need::<u32>(&format!("{architecture}.block_count"))
                .is_ok(),
            "{label}"
        );
        assert!(
            matches!(gguf.get("tokenizer.ggml.model"), Some(Value::String(_))),
            "{label}"
        );
        assert_eq!(gguf.tensors_len(), 0, "{label}");
        let tokenizer = gguf.tokenizer().unwrap();
        let counts = [
            tokenizer.kinds.map(Iterator::count),
            tokenizer.scores.map(Iterator::count),
        ];
        assert!(
            counts.iter().flatten().all(|&count| count == tokens.len()),
            "{label}"
        );
        assert!(
            tokenizer.bos.is_some() || label.to_string().contains("qwen2"),
            "{label}"
        );
    }
}
