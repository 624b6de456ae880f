//! Small `tokenizer.json` files against equal vocabularies from GGUF.

use super::tests::{bpe_spec, check, spm_spec};
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The byte-level vocabulary in Hugging Face's format.
fn byte_level_json() -> Value {
    let spec = bpe_spec();
    let specials = spec.tokens.len() - 4;
    let added = (specials..spec.tokens.len()).map(|id| {
        json!({"id": id, "content": spec.tokens[id], "special": spec.kinds[id] == TokenKind::Control,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
    });
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [specials], "tokens": ["<s>"]}}},
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab(&spec.tokens[..specials]), "merges": spec.merges},
    })
}

/// The SPM vocabulary, with merges in the order of the scores.
fn meta_space_json() -> Value {
    let spec = spm_spec();
    let specials = spec.tokens.len() - 1;
    let added = [0, 1, 2, specials].map(|id| {
        json!({"id": id, "content": spec.tokens[id], "special": id < 3,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": vocab(&spec.tokens[..specials]),
            "merges": ["l l", "h e", "he ll", "hell o", "▁ hello", "▁ ▁", "a b", "b c"]},
    })
}

fn vocab(tokens: &[String]) -> Value {
    tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn from_json(json: &Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_json(json.to_string().as_bytes())
}

#[test]
fn ids() {
    let (bytes, spaces) = (
        from_json(&byte_level_json()).unwrap(),
        from_json(&meta_space_json()).unwrap(),
    );
    for (label, tokenizer, text, special, expected) in [
        ("words", &bytes, "hello world", false, "hello|Ġworld"),
        (
            "not cut at the file's length",
            &bytes,
            "hhhhh",
            false,
            "h|h|h|h|h",
        ),
        (
            "control",
            &bytes,
            "hello<|im_end|>",
            true,
            "hello|<|im_end|>",
        ),
        ("control is text", &bytes, "x</s>", false, "x|<|/|s|>"),
        ("user-defined", &bytes, "x<tool>", false, "x|<tool>"),
        ("words", &spaces, "hello hello", false, "▁hello|▁hello"),
        ("bytes", &spaces, "é", false, "▁|<0xC3>|<0xA9>"),
        ("control", &spaces, "<s>hello", true, "<s>|▁hello"),
    ] {
        check(label, tokenizer, text, special, expected);
    }
}

#[test]
fn tables() {
    let tokenizer = from_json(&byte_level_json()).unwrap();
    let id = |piece: &str| tokenizer.id_of(piece).unwrap();
    assert_eq!(tokenizer.bytes(id("Ġworld")), Some(&b" world"[..]));
    assert_eq!(tokenizer.bytes(id("</s>")), Some(&b""[..]));
    assert!(tokenizer.is_control(id("</s>")) && !tokenizer.is_control(id("<tool>")));
    assert_eq!(tokenizer.vocab_size(), bpe_spec().tokens.len());
    assert_eq!(
        tokenizer.eos_ids(),
        [id("</s>"), id("<|im_end|>")],
        "by their names"
    );
    let tokenizer = from_json(&meta_space_json()).unwrap();
    let id = |piece: &str| tokenizer.id_of(piece).unwrap();
    assert_eq!(tokenizer.bytes(id("▁hello")), Some(&b" hello"[..]));
    assert_eq!(tokenizer.bytes(id("<0x0A>")), Some(&b"\n"[..]));
    assert_eq!(tokenizer.bytes(id("<unk>")), Some(&b""[..]));
    assert!(tokenizer.adds_first_space());
}

#[test]
fn prompts() {
    let (file, spec) = (byte_level_json(), bpe_spec());
    let (bos, eos, h) = (spec.bos.unwrap(), spec.eos.unwrap(), u32::from(b'h'));
    for (label, config, text, expected) in [
        ("post-processor", None, "h", vec![bos, h]),
        ("never doubled", None, "<s>h", vec![bos, h]),
        (
            "config says no",
            Some(json!({"bos_token": "<s>", "add_bos_token": false})),
            "h",
            vec![h],
        ),
        (
            "config says eos",
            Some(json!({"eos_token": {"content": "</s>", "lstrip": false}, "add_eos_token": true})),
            "h",
            vec![bos, h, eos],
        ),
    ] {
        let file = file.to_string();
        let tokenizer = match config {
            Some(config) => {
                Tokenizer::from_json_with_config(file.as_bytes(), config.to_string().as_bytes())
            }
            None => Tokenizer::from_json(file.as_bytes()),
        };
        assert_eq!(
            tokenizer.unwrap().encode_prompt(text, true),
            Ok(expected),
            "{label}"
        );
    }
}

#[test]
fn end_tokens_come_from_config() {
    let config = json!({"eos_token": "hello", "bos_token": "nowhere"});
    let file = byte_level_json().to_string();
    let tokenizer =
        Tokenizer::from_json_with_config(file.as_bytes(), config.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.eos(), tokenizer.id_of("hello"));
    assert!(
        tokenizer
            .eos_ids()
            .contains(&tokenizer.id_of("hello").unwrap())
    );
    assert!(
        tokenizer
            .warnings()
            .concat()
            .contains("\"nowhere\" is not in the vocabulary")
    );
}

#[test]
fn vocabulary_is_resized_to_the_model() {
    let tokens = bpe_spec().tokens.len();
    let fitted = |embeddings, ends: &[u32]| {
        from_json(&byte_level_json())
            .unwrap()
            .fit_embeddings(embeddings, ends)
    };
    let more = fitted(tokens + 3, &[u32::from(b'z'), tokens as u32]).unwrap();
    assert_eq!(more.vocab_size(), tokens + 3);
    assert_eq!(more.bytes(tokens as u32 + 2), Some(&b""[..]));
    assert_eq!(more.piece(tokens as u32 + 3), None);
    assert_eq!(more.eos(), Some(u32::from(b'z')), "none was named");
    assert!(more.eos_ids().contains(&u32::from(b'z')));
    assert!(!more.eos_ids().contains(&(tokens as u32)), "no token");
    assert_eq!(
        more.id_of("hello"),
        fitted(tokens, &[]).unwrap().id_of("hello")
    );
    let fewer = fitted(tokens - 1, &[]).unwrap();
    assert_eq!(fewer.vocab_size(), tokens - 1);
    assert_eq!(fewer.id_of("hello"), more.id_of("hello"));
    assert!(fewer.warnings().concat().contains("left out"));
    let last = bpe_spec().tokens[tokens - 1].clone();
    assert_eq!(fewer.id_of(&last), None);
    let refused = fewer.encode(&last, true).unwrap_err();
    assert!(refused.0.contains("embeddings"), "{refused}");
    assert!(fitted(0, &[]).is_err());
}

#[test]
fn invalid_files_are_rejected() {
    let other = |field: &str, value: Value| {
        let mut file = byte_level_json();
        file[field] = value;
        file.to_string()
    };
    for (label, file, expected) in [
        ("not JSON", "{".to_owned(), "not usable"),
        ("not a tokenizer", "{}".to_owned(), ""),
        (
            "no decoder",
            other("decoder", Value::Null),
            "this decoder is not supported",
        ),
        (
            "other decoder",
            other(
                "decoder",
                json!({"type": "WordPiece", "prefix": "@@", "cleanup": true}),
            ),
            "WordPiece",
        ),
        (
            "bad model",
            other(
                "model",
                json!({"type": "BPE", "vocab": {"a": 0}, "merges": ["b c"]}),
            ),
            "not usable",
        ),
    ] {
        let error = Tokenizer::from_json(file.as_bytes())
            .map(|_| ())
            .unwrap_err();
        assert!(error.0.contains(expected), "{label}: {error}");
    }
    let error = Tokenizer::from_json_with_config(byte_level_json().to_string().as_bytes(), b"[")
        .map(|_| ())
        .unwrap_err();
    assert!(error.0.contains("tokenizer_config.json"), "{error}");
}

proptest! {
    #[test]
    fn ids_equal_those_of_gguf_vocabulary(text in "[helo wrd\n'sé<>/]{0,40}") {
        for (file, spec) in [(byte_level_json(), bpe_spec()), (meta_space_json(), spm_spec())] {
            let (file, vocab) = (from_json(&file).unwrap(), Tokenizer::from_vocab(spec).unwrap());
            prop_assert_eq!(file.encode(&text, false), vocab.encode(&text, false), "{:?}", text);
        }
    }
}
