//! Unigram: labelled texts, doubtful vocabularies, and the `tokenizers` crate as the reference.

use super::tests::{check, spm_spec};
use super::unigram::tests::compile;
use super::*;
use crate::{VocabModel, VocabSpec};
use proptest::prelude::*;
use serde_json::json;

/// Tokens with scores, after `<s> <pad> </s> <unk>`.
const TOKENS: [(&str, f32); 20] = [
    ("▁", -3.0),
    ("▁hello", -4.0),
    ("hello", -7.5),
    ("he", -5.0),
    ("ll", -5.5),
    ("o", -4.5),
    ("▁he", -5.2),
    ("l", -6.0),
    ("h", -6.0),
    ("e", -5.9),
    ("▁wor", -6.5),
    ("ld", -6.6),
    ("w", -7.0),
    ("r", -7.1),
    ("d", -7.2),
    ("你", -8.0),
    ("你好", -8.5),
    ("好", -9.0),
    ("é", -8.8),
    (",", -4.0),
];

fn unigram_spec() -> VocabSpec {
    let mut tokens: Vec<String> = ["<s>", "<pad>", "</s>", "<unk>"].map(String::from).to_vec();
    let mut scores = vec![0.0; 4];
    let mut kinds = vec![TokenKind::Control; 4];
    kinds[3] = TokenKind::Unknown;
    for (token, score) in TOKENS {
        tokens.push(token.into());
        scores.push(score);
        kinds.push(TokenKind::Normal);
    }
    VocabSpec {
        model: VocabModel::Unigram,
        tokens,
        kinds,
        scores,
        bos: Some(0),
        eos: Some(2),
        unknown: Some(3),
        add_bos: Some(true),
        add_eos: Some(true),
        merge_spaces: true,
        ..spm_spec()
    }
}

#[test]
fn unigram_ids_are_expected() {
    let tokenizer = Tokenizer::from_vocab(unigram_spec()).unwrap();
    for (label, text, special, expected) in [
        ("empty", "", true, ""),
        ("spaces only", "   ", true, ""),
        ("the likeliest", "hello", false, "▁hello"),
        ("spaces are one", "  hello   hello ", false, "▁hello|▁hello"),
        ("parts", "hell", false, "▁he|ll"),
        ("sum of scores", "world", false, "▁wor|ld"),
        ("unknown characters are one", "hexyz", false, "▁he|<unk>"),
        ("unknown among known", "xhex", false, "▁|<unk>|he|<unk>"),
        ("ideographs", "你好", false, "▁|你好"),
        ("control", "<s>hello</s>", true, "<s>|▁hello|</s>"),
        ("control is text", "<s>", false, "▁|<unk>"),
    ] {
        check(label, &tokenizer, text, special, expected);
    }
    let ids = tokenizer.encode_prompt("hello", true).unwrap();
    assert_eq!(ids, [0, 5, 2]);
    let pair = tokenizer.join_pair(&[5], &[6]);
    assert_eq!(pair, Some(vec![0, 5, 2, 2, 6, 2]));
}

#[test]
fn unigram_characters_are_mapped_before() {
    let char_map = compile(&[("ﬁ", "he"), ("\u{3000}", " "), ("\u{200b}", "")]);
    let spec = VocabSpec {
        char_map,
        ..unigram_spec()
    };
    let tokenizer = Tokenizer::from_vocab(spec).unwrap();
    for (text, expected) in [
        ("ﬁ", "▁he"),
        ("hello\u{3000}hello", "▁hello|▁hello"),
        ("hel\u{200b}lo", "▁hello"),
    ] {
        check("mapped", &tokenizer, text, false, expected);
    }
}

#[test]
fn doubtful_unigram_vocabularies_are_errors() {
    type Change = fn(&mut VocabSpec);
    for (label, change, expected) in [
        (
            "scores",
            (|spec| _ = spec.scores.pop()) as Change,
            "scores for",
        ),
        ("nan", |spec| spec.scores[7] = f32::NAN, "score of token 7"),
        (
            "map",
            |spec| spec.char_map = vec![9],
            "precompiled_charsmap",
        ),
        (
            "duplicate",
            |spec| spec.tokens[7] = "▁he".into(),
            "are both \"▁he\"",
        ),
    ] {
        let mut spec = unigram_spec();
        change(&mut spec);
        let error = Tokenizer::from_vocab(spec).map(|_| ()).unwrap_err();
        assert!(error.0.contains(expected), "{label}: {error}");
    }
    let mut spec = unigram_spec();
    (spec.unknown, spec.kinds[3]) = (None, TokenKind::Control);
    let error = Tokenizer::from_vocab(spec)
        .unwrap()
        .encode("xyz", false)
        .unwrap_err();
    assert!(error.0.contains("no unknown token"), "{error}");
}

#[test]
fn long_texts_are_encoded_in_linear_time() {
    let tokenizer = Tokenizer::from_vocab(unigram_spec()).unwrap();
    for (unit, expected) in [("x", 2), ("l", 50_001), ("你", 100_001)] {
        let ids = tokenizer.encode(&unit.repeat(100_000), false).unwrap();
        assert_eq!(ids.len(), expected, "{unit}");
    }
}

fn reference() -> tokenizers::Tokenizer {
    let spec = unigram_spec();
    let vocab: Vec<_> = spec
        .tokens
        .iter()
        .zip(&spec.scores)
        .map(|(t, s)| json!([t, s]))
        .collect();
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": null, "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": false},
    });
    tokenizers::Tokenizer::from_bytes(file.to_string()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Words apart, so that no unknown characters of two words stand side by side.
    #[test]
    fn unigram_ids_equal_tokenizers_crate(
        text in prop_oneof![
            "[a-z ,]{0,60}",
            "(hello|he|ll|o| |world|你|好|é|x|,|h|e|d){0,30}",
        ],
    ) {
        let ours = Tokenizer::from_vocab(unigram_spec()).unwrap().encode(&text, false).unwrap();
        let theirs = reference().encode(text.as_str(), false).unwrap();
        prop_assert_eq!(&ours[..], theirs.get_ids(), "{:?}", text);
    }
}
