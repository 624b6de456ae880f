//! Encoding with small handmade vocabularies.

use super::*;
use crate::{VocabModel, VocabSpec};

/// Bytes `a..z`, space, a few others, merges towards "hello" and " world", and special tokens.
pub(crate) fn bpe_spec() -> VocabSpec {
    let mut tokens: Vec<String> = (0..=255)
        .map(|byte| bpe::char_of(byte).to_string())
        .collect();
    let merges = [
        "h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "r l",
    ];
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    tokens.extend(["<s>", "</s>", "<|im_end|>", "<tool>"].map(String::from));
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    let specials = tokens.len() - 4;
    kinds[specials..specials + 3].fill(TokenKind::Control);
    kinds[specials + 3] = TokenKind::UserDefined;
    VocabSpec {
        model: VocabModel::Bpe,
        pre: Some("gpt-2".into()),
        kinds,
        scores: Vec::new(),
        merges: merges.map(String::from).to_vec(),
        bos: Some(specials as u32),
        eos: Some(specials as u32 + 1),
        eot: None,
        infill: crate::InfillIds::default(),
        unknown: None,
        add_bos: None,
        add_eos: None,
        add_space_prefix: None,
        merge_spaces: false,
        char_map: Vec::new(),
        lowercase: true,
        strip_accents: true,
        tokens,
    }
}

/// `<unk> <s> </s>`, the bytes, and pieces towards "▁hello".
pub(crate) fn spm_spec() -> VocabSpec {
    let mut tokens = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
    let mut kinds = vec![TokenKind::Unknown, TokenKind::Control, TokenKind::Control];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    kinds.resize(tokens.len(), TokenKind::Byte);
    let pieces = [
        "ll", "he", "hell", "hello", "▁hello", "▁", "h", "e", "l", "o", "▁▁", "ab", "bc", "a", "b",
        "c",
    ];
    let first = tokens.len();
    tokens.extend(pieces.map(String::from));
    kinds.resize(tokens.len(), TokenKind::Normal);
    tokens.push("[tool]".into());
    kinds.push(TokenKind::UserDefined);
    let scores = (0..tokens.len())
        .map(|id| first as f32 - id as f32)
        .collect();
    VocabSpec {
        model: VocabModel::Spm,
        pre: None,
        tokens,
        kinds,
        scores,
        merges: Vec::new(),
        bos: None,
        eos: None,
        ..bpe_spec()
    }
}

/// The ids in readable form: pieces between bars.
#[track_caller]
pub(crate) fn check(label: &str, tokenizer: &Tokenizer, text: &str, special: bool, expected: &str) {
    let ids = tokenizer.encode(text, special).unwrap();
    let pieces: Vec<_> = ids.iter().map(|id| tokenizer.piece(*id).unwrap()).collect();
    assert_eq!(pieces.join("|"), expected, "{label}: {text:?}");
}

#[test]
fn bpe_ids_are_expected() {
    let tokenizer = Tokenizer::from_vocab(bpe_spec()).unwrap();
    for (label, text, special, expected) in [
        ("empty", "", true, ""),
        ("one word", "hello", false, "hello"),
        ("two words", "hello world", false, "hello|Ġworld"),
        ("best rank first", "hellld", false, "hell|ld"),
        ("leftmost of equals", "lll", false, "ll|l"),
        ("bytes", "é", false, "Ã|©"),
        ("control", "hello<|im_end|>", true, "hello|<|im_end|>"),
        ("control is text", "x</s>", false, "x|<|/|s|>"),
        ("user-defined", "x<tool>hello", false, "x|<tool>|hello"),
        (
            "longer than the arrays",
            &"hello".repeat(9),
            false,
            &["hello"; 9].join("|"),
        ),
    ] {
        check(label, &tokenizer, text, special, expected);
    }
}

#[test]
fn whole_words_are_tokens_with_ignore_merges() {
    let mut spec = bpe_spec();
    spec.tokens.push("xyz".into());
    spec.kinds.push(TokenKind::Normal);
    check(
        "merged",
        &Tokenizer::from_vocab(spec.clone()).unwrap(),
        "xyz",
        false,
        "x|y|z",
    );
    spec.pre = Some("llama-bpe".into());
    check(
        "whole",
        &Tokenizer::from_vocab(spec).unwrap(),
        "xyz",
        false,
        "xyz",
    );
}

#[test]
fn spm_ids_are_expected() {
    let tokenizer = Tokenizer::from_vocab(spm_spec()).unwrap();
    for (label, text, special, expected) in [
        ("empty", "", true, ""),
        ("space is added", "hello", false, "▁hello"),
        ("two words", "hello hello", false, "▁hello|▁hello"),
        ("spaces", "  hello", false, "▁▁|▁hello"),
        ("best score first", "abc", false, "▁|ab|c"),
        ("byte fallback", "é\n", false, "▁|<0xC3>|<0xA9>|<0x0A>"),
        (
            "a byte's name is text",
            "<0x0A>",
            false,
            "▁|<0x3C>|<0x30>|<0x78>|<0x30>|<0x41>|<0x3E>",
        ),
        ("control", "<s>hello", true, "<s>|▁hello"),
        (
            "control is text",
            "</s>",
            false,
            "▁|<0x3C>|<0x2F>|<0x73>|<0x3E>",
        ),
        (
            "user-defined",
            "hello[tool]hello",
            false,
            "▁hello|[tool]|▁hello",
        ),
    ] {
        check(label, &tokenizer, text, special, expected);
    }
}

#[test]
fn spm_without_byte_tokens_gives_unknown() {
    let mut spec = spm_spec();
    for kind in &mut spec.kinds {
        *kind = if *kind == TokenKind::Byte {
            TokenKind::Unused
        } else {
            *kind
        };
    }
    let tokenizer = Tokenizer::from_vocab(spec.clone()).unwrap();
    check("unknown", &tokenizer, "é", false, "▁|<unk>");
    spec.kinds[0] = TokenKind::Control;
    let error = Tokenizer::from_vocab(spec)
        .unwrap()
        .encode("é", false)
        .unwrap_err();
    assert!(error.0.contains("no unknown token"), "{error}");
}

#[test]
fn phi3_special_tokens_absorb_following_space() {
    let mut spec = spm_spec();
    for token in ["<|assistant|>", "<|placeholder1|>"] {
        spec.tokens.push(token.into());
        spec.kinds.push(TokenKind::Control);
        spec.scores.push(0.0);
    }
    let tokenizer = Tokenizer::from_vocab(spec).unwrap();
    check(
        "rstrip",
        &tokenizer,
        "<|assistant|> \nhello",
        true,
        "<|assistant|>|▁hello",
    );
    check("not these", &tokenizer, "<s> hello", true, "<s>|▁|▁hello");
}

#[test]
fn prompts() {
    let ids = |spec: VocabSpec, text| {
        Tokenizer::from_vocab(spec)
            .unwrap()
            .encode_prompt(text, true)
            .unwrap()
    };
    let (bpe, spm) = (bpe_spec(), spm_spec());
    let (bos, eos) = (bpe.bos.unwrap(), bpe.eos.unwrap());
    let h = u32::from(b'h');
    let add = |bos, eos| VocabSpec {
        add_bos: bos,
        add_eos: eos,
        ..bpe.clone()
    };
    for (label, spec, text, expected) in [
        ("bpe adds nothing", add(None, None), "h", vec![h]),
        (
            "as the file says",
            add(Some(true), Some(true)),
            "h",
            vec![bos, h, eos],
        ),
        (
            "never doubled",
            add(Some(true), Some(true)),
            "<s>h</s>",
            vec![bos, h, eos],
        ),
        ("empty", add(Some(true), Some(true)), "", vec![bos, eos]),
        (
            "llama 3's default",
            VocabSpec {
                pre: Some("llama3".into()),
                ..bpe.clone()
            },
            "h",
            vec![bos, h],
        ),
        ("spm's default, usual places", spm.clone(), "<s>", vec![1]),
        (
            "spm, told not to",
            VocabSpec {
                add_bos: Some(false),
                ..spm
            },
            "",
            vec![],
        ),
    ] {
        assert_eq!(ids(spec, text), expected, "{label}");
    }
}

#[test]
fn tables() {
    let tokenizer = Tokenizer::from_vocab(bpe_spec()).unwrap();
    let id = |piece: &str| tokenizer.id_of(piece).unwrap();
    assert_eq!(tokenizer.bytes(id("Ġworld")), Some(&b" world"[..]));
    assert_eq!(tokenizer.bytes(id("<s>")), Some(&b""[..]));
    assert_eq!(tokenizer.bytes(id("<tool>")), Some(&b"<tool>"[..]));
    assert_eq!(tokenizer.bytes(9999), None);
    assert_eq!(tokenizer.piece(9999), None);
    assert_eq!(tokenizer.id_of("no such"), None);
    assert!(
        tokenizer.is_control(id("<s>"))
            && !tokenizer.is_control(id("<tool>"))
            && !tokenizer.is_control(9999)
    );
    assert_eq!(tokenizer.eos_ids(), [id("</s>"), id("<|im_end|>")]);
    assert_eq!(tokenizer.vocab_size(), bpe_spec().tokens.len());
    assert!(tokenizer.warnings().is_empty());
}

#[test]
fn long_single_words_are_encoded_in_linear_time() {
    let bpe = Tokenizer::from_vocab(bpe_spec()).unwrap();
    assert_eq!(
        bpe.encode(&"l".repeat(100_001), false).unwrap().len(),
        50_001
    );
    let spm = Tokenizer::from_vocab(spm_spec()).unwrap();
    assert_eq!(
        spm.encode(&"l".repeat(100_001), false).unwrap().len(),
        50_002
    );
    let text = "x".repeat(TEXT_BYTES_MAX + 1);
    assert!(bpe.encode(&text, false).unwrap_err().0.contains("at most"));
}
