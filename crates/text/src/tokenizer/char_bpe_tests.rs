//! BPE over characters: ids by hand, and those of the `tokenizers` crate.

use super::tests::{bpe_spec, check, spm_spec};
use super::*;
use crate::{VocabModel, VocabSpec};
use proptest::prelude::*;
use serde_json::json;

const MERGES: [&str; 14] = [
    "l l",
    "h e",
    "he ll",
    "hell o",
    "▁ hello",
    "▁ ▁",
    "a b",
    "b c",
    "▁ a",
    "▁a b",
    "ab c",
    "é é",
    "▁▁ ▁▁",
    "o r",
];

/// The bytes, characters and pieces, and tokens of line breaks that no merge makes.
fn spec() -> VocabSpec {
    let mut spec = VocabSpec {
        model: VocabModel::CharBpe,
        scores: Vec::new(),
        merges: MERGES.map(String::from).to_vec(),
        add_bos: Some(false),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        ..spm_spec()
    };
    let specials = 3 + 256;
    spec.tokens.truncate(specials);
    let letters = [
        "h", "e", "l", "o", "r", "a", "b", "c", "é", "▁", "\n", "\n\n",
    ];
    let joined = MERGES.map(|merge| merge.replace(' ', ""));
    let pieces = letters.map(String::from).into_iter().chain(joined);
    spec.tokens.extend(pieces);
    spec.kinds.truncate(specials);
    spec.kinds.resize(spec.tokens.len(), TokenKind::Normal);
    for (token, kind) in [
        ("<|turn>", TokenKind::Control),
        ("</s>", TokenKind::UserDefined),
    ] {
        spec.tokens.push(token.into());
        spec.kinds.push(kind);
    }
    spec.tokens[2] = "<eos>".into();
    spec
}

#[test]
fn char_bpe_ids_are_expected() {
    let tokenizer = Tokenizer::from_vocab(spec()).unwrap();
    for (label, text, special, expected) in [
        ("empty", "", true, ""),
        ("no space is added", "hello", false, "hello"),
        ("two words", "hello hello", false, "hello|▁hello"),
        (
            "of three pieces the best first",
            "  hello",
            false,
            "▁|▁hello",
        ),
        ("a merge of a merge", "abc", false, "abc"),
        ("best rank first", "bbc", false, "b|bc"),
        ("leftmost of equals", "lll", false, "ll|l"),
        ("characters", "éé", false, "éé"),
        ("byte fallback", "ü", false, "<0xC3>|<0xBC>"),
        (
            "a byte's name is text",
            "<0x0A>",
            false,
            "<0x3C>|<0x30>|<0x78>|<0x30>|<0x41>|<0x3E>",
        ),
        ("a break", "a\nb", false, "a|\n|b"),
        ("breaks with a token", "a\n\nb", false, "a|\n\n|b"),
        ("breaks without", "\n\n\n", false, "\n|\n|\n"),
        (
            "spaces before a break",
            "hello  \n hello",
            false,
            "hello|▁▁|\n|▁hello",
        ),
        ("control", "hello<|turn>", true, "hello|<|turn>"),
        ("user-defined", "a</s>b", false, "a|</s>|b"),
    ] {
        check(label, &tokenizer, text, special, expected);
    }
    assert_eq!(tokenizer.encode_prompt("a", false).unwrap()[0], 1);
    assert_eq!(tokenizer.warnings(), &[] as &[String]);
}

#[test]
fn char_bpe_text_is_decoded() {
    let tokenizer = Tokenizer::from_vocab(spec()).unwrap();
    let text = "hello  ü\n\n</s> abc";
    let ids = tokenizer.encode(text, false).unwrap();
    let bytes = ids.iter().flat_map(|id| tokenizer.bytes(*id).unwrap());
    assert_eq!(bytes.copied().collect::<Vec<u8>>(), text.as_bytes());
}

#[test]
fn invalid_merges_of_characters_are_rejected() {
    let bad = VocabSpec {
        merges: vec!["a z".into()],
        ..spec()
    };
    let error = Tokenizer::from_vocab(bad).map(|_| ()).unwrap_err();
    assert!(error.0.contains("needs the token \"z\""), "{error}");
    let none = VocabSpec {
        merges: bpe_spec().merges[..0].to_vec(),
        ..spec()
    };
    let warned = Tokenizer::from_vocab(none).unwrap();
    assert!(warned.warnings().concat().contains("no merges"));
}

/// A vocabulary as a `tokenizer.json` of Gemma 4, without its line breaks.
fn by_crate(spec: &VocabSpec) -> Tokenizer {
    let vocab: serde_json::Map<_, _> = spec
        .tokens
        .iter()
        .zip(0..)
        .filter(|(_, id)| !matches!(spec.kinds[*id], TokenKind::Control | TokenKind::UserDefined))
        .map(|(token, id)| (token.clone(), json!(id)))
        .collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": spec.merges, "unk_token": "<unk>",
            "byte_fallback": true, "fuse_unk": true},
    });
    Tokenizer::from_json(file.to_string().as_bytes()).unwrap()
}

proptest! {
    #[test]
    fn char_bpe_ids_equal_tokenizers_crate(text in "[helorabcéü ]{0,40}") {
        let ours = Tokenizer::from_vocab(spec()).unwrap();
        let wanted = by_crate(&spec()).encode(&text, false);
        prop_assert_eq!(ours.encode(&text, false), wanted, "{:?}", text);
    }

    /// Words are encoded one by one only where no token has a space after another character.
    #[test]
    fn tokens_of_several_words_equal_tokenizers_crate(text in "[ab ]{0,24}") {
        let mut joined = spec();
        joined.tokens.push("a▁a".into());
        joined.kinds.push(TokenKind::Normal);
        joined.merges.insert(0, "a ▁a".into());
        let ours = Tokenizer::from_vocab(joined.clone()).unwrap();
        let wanted = by_crate(&joined).encode(&text, false);
        prop_assert_eq!(ours.encode(&text, false), wanted, "{:?}", text);
    }
}
