//! Cuts of all pre-tokenizers over one real vocabulary.
//!
//! `pretokenizers.json` was generated with llama-cpp-python 0.3.36: the vocabulary `llama-bpe` with another
//! name in `tokenizer.ggml.pre`, `tokenize(text, add_bos=False, special=False)`.

use serde::Deserialize;
use std::collections::BTreeMap;
use text::Tokenizer;

#[derive(Deserialize)]
struct Goldens {
    texts: Vec<String>,
    /// Ids of each text, separated by spaces, by name.
    ids: BTreeMap<String, Vec<String>>,
}

#[test]
fn pretokenizers_equal_reference() {
    let goldens: Goldens = serde_json::from_str(include_str!("../pretokenizers.json")).unwrap();
    assert!(goldens.ids.len() > 10);
    let Some(folder) = crate::support::folder() else {
        return;
    };
    let spec = crate::support::spec(&folder, "llama-bpe");
    for (name, expected) in &goldens.ids {
        let mut spec = spec.clone();
        spec.pre = Some(name.clone());
        let tokenizer = Tokenizer::from_vocab(spec).unwrap();
        assert_eq!(expected.len(), goldens.texts.len());
        for (text, expected) in goldens.texts.iter().zip(expected) {
            let ids = tokenizer.encode(text, false).unwrap();
            let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            assert_eq!(&ids, expected, "{name}: {text:?}");
        }
    }
}
