//! WordPiece: labelled texts, doubtful vocabularies, and the `tokenizers` crate as the reference.

use super::tests::{bpe_spec, check};
use super::*;
use crate::{VocabModel, VocabSpec};
use proptest::prelude::*;
use serde_json::json;

const SPECIALS: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
/// As published vocabularies write them.
const WORDS: [&str; 24] = [
    "hello",
    "he",
    "##llo",
    "##ing",
    "un",
    "##aff",
    "##able",
    "world",
    "##d",
    "ca",
    "##e",
    "ete",
    "你",
    "好",
    "##好",
    "「",
    "'",
    "!",
    "$",
    ",",
    "\u{1112}",
    "##\u{1161}",
    "##\u{11ab}",
    "#",
];

/// Published spelling: whole words, and `##` before later parts of words.
fn published() -> Vec<String> {
    let letters = ('a'..='z').chain('0'..='9').filter(|letter| *letter != 'q');
    let letters = letters.flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let words = SPECIALS.iter().chain(&WORDS).map(|word| (*word).to_owned());
    let mut tokens: Vec<String> = words.collect();
    let letters: Vec<_> = letters.filter(|letter| !tokens.contains(letter)).collect();
    tokens.extend(letters);
    tokens
}

/// The same vocabulary as GGUF writes it.
fn word_piece_spec() -> VocabSpec {
    let spell = |token: String| match token.strip_prefix("##") {
        _ if SPECIALS.contains(&token.as_str()) => token,
        Some(part) => part.to_owned(),
        None => format!("▁{token}"),
    };
    let tokens: Vec<_> = published().into_iter().map(spell).collect();
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    kinds[..SPECIALS.len()].fill(TokenKind::Control);
    kinds[1] = TokenKind::Unknown;
    VocabSpec {
        model: VocabModel::WordPiece,
        pre: None,
        tokens,
        kinds,
        scores: Vec::new(),
        merges: Vec::new(),
        bos: None,
        eos: None,
        ..bpe_spec()
    }
}

#[test]
fn word_piece_ids_are_expected() {
    let tokenizer = Tokenizer::from_vocab(word_piece_spec()).unwrap();
    let long = "a".repeat(101);
    for (label, text, special, expected) in [
        ("empty", "", true, ""),
        ("a word", "Hello", false, "▁hello"),
        ("parts", "unaffable", false, "▁un|aff|able"),
        ("longest first", "heing", false, "▁he|ing"),
        ("accents", "Ça été", false, "▁ca|▁ete"),
        ("ideographs", "你好", false, "▁你|▁好"),
        ("hangul", "한", false, "▁\u{1112}|\u{1161}|\u{11ab}"),
        (
            "an unknown letter makes the word unknown",
            "helloq he",
            false,
            "[UNK]|▁he",
        ),
        ("unknown punctuation", "he?", false, "▁he|[UNK]"),
        ("too long", &long, false, "[UNK]"),
        (
            "not too long",
            &long[..100],
            false,
            &format!("▁a{}", "|a".repeat(99)),
        ),
        ("control", "[CLS]he[SEP]", true, "[CLS]|▁he|[SEP]"),
        ("control is text", "[CLS]", false, "[UNK]|▁c|l|s|[UNK]"),
    ] {
        check(label, &tokenizer, text, special, expected);
    }
}

#[test]
fn word_piece_prompts_have_both_ends() {
    let ids = |spec: VocabSpec, text: &str| {
        Tokenizer::from_vocab(spec)
            .unwrap()
            .encode_prompt(text, true)
            .unwrap()
    };
    let (base, he) = (word_piece_spec(), 6);
    for (label, spec, text, expected) in [
        ("ends", base.clone(), "he", vec![2, he, 3]),
        ("nothing between", base.clone(), "", vec![2, 3]),
        (
            "never doubled",
            base.clone(),
            "[CLS]he[SEP]",
            vec![2, he, 3],
        ),
        (
            "other ends",
            VocabSpec {
                bos: Some(0),
                eos: Some(4),
                ..base.clone()
            },
            "he",
            vec![0, he, 4],
        ),
        (
            "without kinds",
            VocabSpec {
                kinds: Vec::new(),
                ..base
            },
            "he",
            vec![2, he, 3],
        ),
    ] {
        assert_eq!(ids(spec, text), expected, "{label}");
    }
}

#[test]
fn word_piece_pairs_have_separators() {
    let tokenizer = Tokenizer::from_vocab(word_piece_spec()).unwrap();
    let mut ids = tokenizer.join_pair(&[6], &[7, 8]).unwrap();
    assert_eq!(ids, [2, 6, 3, 7, 8, 3]);
    tokenizer.truncate_prompt(&mut ids, 5);
    assert_eq!(ids, [2, 6, 3, 7, 3], "the end stays");
    tokenizer.truncate_prompt(&mut ids, 5);
    assert_eq!(ids.len(), 5);
    let other = Tokenizer::from_vocab(bpe_spec()).unwrap();
    assert_eq!(other.join_pair(&[1], &[2]), None);
}

#[test]
fn doubtful_word_piece_vocabularies_are_errors_or_warnings() {
    let mut spec = word_piece_spec();
    spec.tokens[9] = "▁hello".into();
    let error = Tokenizer::from_vocab(spec).map(|_| ()).unwrap_err();
    assert!(error.0.contains("are both \"▁hello\""), "{error}");

    let mut spec = word_piece_spec();
    spec.tokens.clear();
    spec.kinds.clear();
    let error = Tokenizer::from_vocab(spec).map(|_| ()).unwrap_err();
    assert!(error.0.contains("empty"), "{error}");

    let mut spec = word_piece_spec();
    (spec.tokens[1], spec.tokens[2]) = ("no".into(), "such".into());
    let tokenizer = Tokenizer::from_vocab(spec).unwrap();
    let warnings = tokenizer.warnings().concat();
    assert!(warnings.contains("a bos token"), "{warnings}");
    let error = tokenizer.encode("he helloq", false).unwrap_err();
    assert!(error.0.contains("no tokens for \"helloq\""), "{error}");
}

#[test]
fn word_piece_decodes_to_words() {
    let tokenizer = std::sync::Arc::new(Tokenizer::from_vocab(word_piece_spec()).unwrap());
    let ids = tokenizer.encode_prompt("Unaffable, hello", true).unwrap();
    let (mut decoder, mut out) = (crate::Decoder::new(tokenizer, true), String::new());
    ids.iter().for_each(|id| decoder.push(*id, &mut out));
    decoder.finish(&mut out);
    assert_eq!(out, "unaffable , hello");
}

/// The published vocabulary's `tokenizer.json`.
fn published_json(lowercase: bool) -> serde_json::Value {
    let ids = published().into_iter().zip(0..);
    let vocab: serde_json::Map<_, _> = ids.map(|(token, id)| (token, json!(id))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    })
}

fn reference(lowercase: bool) -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_bytes(published_json(lowercase).to_string()).unwrap()
}

#[test]
fn published_file_gives_the_prompts_pairs_and_texts_of_gguf() {
    let mut file = published_json(true);
    let special = |id: usize| {
        json!({"id": id, "content": SPECIALS[id], "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    file["added_tokens"] = (0..SPECIALS.len()).map(special).collect();
    let template = |parts: &[(&str, usize)]| -> serde_json::Value {
        let part = |(id, kind): &(&str, usize)| {
            if SPECIALS.contains(id) {
                json!({"SpecialToken": {"id": id, "type_id": kind}})
            } else {
                json!({"Sequence": {"id": id, "type_id": kind}})
            }
        };
        parts.iter().map(part).collect()
    };
    let (first, last) = ("[CLS]", "[SEP]");
    file["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": template(&[(first, 0), ("A", 0), (last, 0)]),
        "pair": template(&[(first, 0), ("A", 0), (last, 0), ("B", 1), (last, 1)]),
        "special_tokens": {
            first: {"id": first, "ids": [2], "tokens": [first]},
            last: {"id": last, "ids": [3], "tokens": [last]},
        },
    });
    file["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    let theirs = std::sync::Arc::new(Tokenizer::from_json(file.to_string().as_bytes()).unwrap());
    let ours = Tokenizer::from_vocab(word_piece_spec()).unwrap();
    for text in ["Unaffable, hello", "[SEP]", "", "你好 hello"] {
        for special in [false, true] {
            let ids = theirs.encode_prompt(text, special).unwrap();
            assert_eq!(ids, ours.encode_prompt(text, special).unwrap(), "{text}");
        }
    }
    let pair = theirs.join_pair(&[7, 8], &[9]);
    assert_eq!(pair, ours.join_pair(&[7, 8], &[9]));
    assert_eq!(pair, Some(vec![2, 7, 8, 3, 9, 3]));
    let mut cut = vec![2, 7, 8, 9, 3];
    theirs.truncate_prompt(&mut cut, 4);
    assert_eq!(cut, [2, 7, 8, 3]);
    assert_eq!(theirs.bytes_per_token_max(), ours.bytes_per_token_max());
    let ids = theirs.encode_prompt("Unaffable, hello", true).unwrap();
    let (mut decoder, mut out) = (crate::Decoder::new(theirs, true), String::new());
    ids.iter().for_each(|id| decoder.push(*id, &mut out));
    decoder.finish(&mut out);
    assert_eq!(out, "unaffable , hello");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn word_piece_ids_equal_tokenizers_crate(
        text in prop_oneof![
            "[a-zA-Z0-9 .,!'$]{0,80}",
            "(hello|un|aff|able|ing| |\n|你|好|한|é|e\u{301}|Ç|İ|ß|Σ|\u{3000}|\u{a0}|「|\u{200b}|\u{85}|\u{b}|\u{2028}|\u{2b820}|q|#|_){0,30}",
            "[\u{20}-\u{24f}\u{370}-\u{58f}\u{ac00}-\u{ac40}\u{4e00}-\u{4e20}\u{f900}-\u{f910}]{0,60}",
        ],
        lowercase in any::<bool>(),
    ) {
        let spec = VocabSpec { lowercase, strip_accents: lowercase, ..word_piece_spec() };
        let ours = Tokenizer::from_vocab(spec).unwrap().encode(&text, false).unwrap();
        let theirs = reference(lowercase).encode(text.as_str(), false).unwrap();
        prop_assert_eq!(&ours[..], theirs.get_ids(), "{:?}", text);
    }
}
