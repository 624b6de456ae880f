//! Real vocabularies: ids of a reference implementation, and round trips.
//!
//! Promise (Text): token ids equal llama.cpp's on six real vocabularies, and on Gemma 4's; BPE over characters equals
//! the `tokenizers` crate.
//! Also held by `text/tests/it/pretokenizers.rs`, `text/src/tokenizer/char_bpe_tests.rs`.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use text::{Decoder, TokenKind, Tokenizer};

fn tokenizer(folder: &Path, name: &str) -> Tokenizer {
    Tokenizer::from_vocab(crate::support::spec(folder, name)).unwrap()
}

fn decode(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    let (mut decoder, mut out) = (Decoder::new(Arc::clone(tokenizer), true), String::new());
    ids.iter().for_each(|id| decoder.push(*id, &mut out));
    decoder.finish(&mut out);
    out
}

#[test]
fn ids_equal_reference() {
    let Some(folder) = crate::support::folder() else {
        return;
    };
    for name in crate::support::names(&folder) {
        let tokenizer = tokenizer(&folder, name);
        let read = |ending: &str| {
            std::fs::read_to_string(folder.join(format!("ggml-vocab-{name}.gguf.{ending}")))
                .unwrap()
        };
        let (texts, expected) = (read("inp"), read("out"));
        let texts: Vec<_> = texts.split("\n__ggml_vocab_test__\n").collect();
        let expected: Vec<_> = expected.lines().collect();
        assert!(
            expected.len() > 40 && texts.len() >= expected.len(),
            "{name}: {} texts",
            texts.len()
        );
        for (text, expected) in texts.iter().zip(expected) {
            let ids = tokenizer.encode(text, false).unwrap();
            let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            assert_eq!(ids, expected.trim(), "{name}: {text:?}");
        }
    }
}

#[test]
fn end_and_start_tokens_are_known() {
    let Some(folder) = crate::support::folder() else {
        return;
    };
    for (name, bos, ends) in [
        ("gpt-2", Some("<|endoftext|>"), &["<|endoftext|>"][..]),
        (
            "llama-bpe",
            Some("<|begin_of_text|>"),
            &["<|end_of_text|>", "<|eot_id|>"],
        ),
        ("llama-spm", Some("<s>"), &["</s>"]),
        ("phi-3", Some("<s>"), &["</s>", "<|endoftext|>", "<|end|>"]),
        (
            "qwen2",
            Some("<|endoftext|>"),
            &["<|endoftext|>", "<|im_end|>"],
        ),
        (
            "deepseek-llm",
            Some("<｜begin▁of▁sentence｜>"),
            &["<｜end▁of▁sentence｜>"],
        ),
        (
            "gemma-4",
            Some("<bos>"),
            &["<eos>", "<|tool_response>", "<turn|>"],
        ),
    ] {
        if !crate::support::names(&folder).contains(&name) {
            continue;
        }
        let tokenizer = tokenizer(&folder, name);
        let pieces: Vec<_> = tokenizer
            .eos_ids()
            .iter()
            .map(|id| tokenizer.piece(*id).unwrap())
            .collect();
        assert_eq!(pieces, ends, "{name}");
        assert_eq!(
            tokenizer.bos().and_then(|id| tokenizer.piece(id)),
            bos,
            "{name}"
        );
        assert_eq!(tokenizer.warnings(), &[] as &[String], "{name}");
    }
}

#[test]
fn special_tokens_are_found_in_text() {
    let Some(folder) = crate::support::folder() else {
        return;
    };
    let qwen = tokenizer(&folder, "qwen2");
    let text = "<|im_start|>user\nhi<|im_end|>";
    assert_eq!(
        qwen.encode(text, true).unwrap(),
        [151644, 872, 198, 6023, 151645]
    );
    assert!(
        qwen.encode(text, false)
            .unwrap()
            .iter()
            .all(|id| !qwen.is_control(*id))
    );
}

/// Texts round-trip in every vocabulary.
#[test]
fn texts_round_trip() {
    let Some(folder) = crate::support::folder() else {
        return;
    };
    for name in crate::support::names(&folder) {
        let tokenizer = Arc::new(tokenizer(&folder, name));
        let texts = prop_oneof![
            "\\PC{0,40}",
            "[ \n\r\t'a-zA-Z0-9.,!é你😀]{0,60}",
            any::<String>()
        ];
        let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
        runner
            .run(&texts, |text| {
                let ids = tokenizer.encode(&text, false).unwrap();
                // SPM writes a space as U+2581, so the two cannot be distinguished.
                let expected = if name.ends_with("spm") || ["phi-3", "gemma-4"].contains(&name) {
                    text.replace('▁', " ")
                } else {
                    text
                };
                prop_assert_eq!(decode(&tokenizer, &ids), expected, "{}", name);
                Ok(())
            })
            .unwrap();
    }
}

/// Regexes of the models' own `tokenizer.json` files, with look-around.
const WORDS: [(&str, &str); 3] = [
    (
        "gpt-2",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ),
    (
        "llama-bpe",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// An equal vocabulary as a `tokenizer.json`, encoded by the `tokenizers` crate.
#[test]
fn ids_equal_tokenizers_crate() {
    let Some(folder) = crate::support::folder() else {
        return;
    };
    for (name, words) in WORDS {
        let spec = crate::support::spec(&folder, name);
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let ids = spec
            .tokens
            .iter()
            .zip(0..)
            .filter(|(_, id)| spec.kinds[*id] == TokenKind::Normal);
        let vocab: serde_json::Map<_, _> =
            ids.map(|(token, id)| (token.clone(), json!(id))).collect();
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": false}, byte_level]},
            "post_processor": null, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": spec.merges, "ignore_merges": name == "llama-bpe"},
        });
        let other = Tokenizer::from_json(file.to_string().as_bytes()).unwrap();
        let ours = Tokenizer::from_vocab(spec).unwrap();
        let texts = prop_oneof![
            "\\PC{0,60}",
            "[ \n\r\t'a-zA-Z0-9.,!é你😀\u{3000}]{0,80}",
            "( ?[a-z']{1,12}){1,12}"
        ];
        TestRunner::new(ProptestConfig::with_cases(500))
            .run(&texts, |text| {
                prop_assert_eq!(
                    ours.encode(&text, false),
                    other.encode(&text, false),
                    "{}: {:?}",
                    name,
                    text
                );
                Ok(())
            })
            .unwrap();
    }
}

/// Expensive texts: each is encoded in linear time, or this test takes hours.
#[test]
fn hostile_texts_are_encoded_in_linear_time() {
    let Some(folder) = crate::support::folder() else {
        return;
    };
    let length = 1 << 17;
    for name in crate::support::names(&folder) {
        let tokenizer = Arc::new(tokenizer(&folder, name));
        for unit in [
            "a", " ", "1", "\n", "\u{301}", "'", " \n", "aA", "你", "\u{85}", "!",
        ] {
            let text = unit.repeat(length / unit.len());
            let ids = tokenizer.encode(&text, false).unwrap();
            assert_eq!(
                decode(&tokenizer, &ids).len(),
                text.len(),
                "{name}: {unit:?}"
            );
        }
    }
}
