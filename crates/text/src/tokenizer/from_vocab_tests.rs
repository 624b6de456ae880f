//! Doubtful and invalid vocabularies.

use super::tests::{bpe_spec, check, spm_spec};
use super::*;
use crate::VocabSpec;

#[test]
#[rustfmt::skip]
fn doubtful_vocabularies_cause_warnings() {
    type Change = fn(&mut VocabSpec);
    for (label, change, expected) in [
        ("unknown name", (|spec| spec.pre = Some("nonsense".into())) as Change, "\"nonsense\" is not known"),
        ("no name", |spec| spec.pre = None, "no pre-tokenizer is named"),
        ("no merges", |spec| spec.merges.clear(), "no merges"),
        ("no bos", |spec| (spec.bos, spec.add_bos) = (None, Some(true)), "a bos token"),
        ("control by merging", |spec| spec.kinds[256] = TokenKind::Control, "1 merges would make control"),
    ] {
        let mut spec = bpe_spec();
        change(&mut spec);
        let tokenizer = Tokenizer::from_vocab(spec).unwrap();
        assert!(
            tokenizer.warnings().concat().contains(expected),
            "{label}: {:?}",
            tokenizer.warnings()
        );
    }
}

#[test]
#[rustfmt::skip]
fn invalid_vocabularies_are_rejected() {
    type Change = fn(&mut VocabSpec);
    for (label, base, change, expected) in [
        ("empty", bpe_spec(), (|spec| spec.tokens.clear()) as Change, "empty"),
        ("kinds", bpe_spec(), |spec| _ = spec.kinds.pop(), "269 token kinds for 270 tokens"),
        ("scores", spm_spec(), |spec| _ = spec.scores.pop(), "scores for"),
        ("nan", spm_spec(), |spec| spec.scores[7] = f32::NAN, "score of token 7"),
        ("bos", bpe_spec(), |spec| spec.bos = Some(270), "the bos token is 270"),
        ("unknown", bpe_spec(), |spec| spec.unknown = Some(u32::MAX), "the unknown token is"),
        ("duplicate", bpe_spec(), |spec| spec.tokens[9] = "h".into(), "tokens 9 and 104 are both \"h\""),
        ("merge", bpe_spec(), |spec| spec.merges[3] = "hello".into(), "merge 3 is not two tokens"),
        ("merge of unknown", bpe_spec(), |spec| spec.merges[3] = "h q".into(), "needs the token \"hq\""),
        ("long token", bpe_spec(), |spec| spec.tokens[0] = "x".repeat(1 << 17), "token 0 has 131072 bytes"),
        ("not byte-level", bpe_spec(), |spec| spec.pre = Some("gemma4".into()), "not byte-level"),
    ] {
        let mut spec = base;
        change(&mut spec);
        let error = Tokenizer::from_vocab(spec).map(|_| ()).unwrap_err();
        assert!(error.0.contains(expected), "{label}: {error}");
    }
}

#[test]
fn missing_byte_tokens_are_errors_or_unknown_tokens() {
    let mut spec = bpe_spec();
    spec.tokens[usize::from(b'q')] = "nothing".into();
    let error = Tokenizer::from_vocab(spec.clone())
        .unwrap()
        .encode("q", false)
        .unwrap_err();
    assert!(error.0.contains("71"), "{error}");
    spec.unknown = Some(0);
    assert_eq!(
        Tokenizer::from_vocab(spec).unwrap().encode("q", false),
        Ok(vec![0])
    );
}

#[test]
fn kinds_are_derived_when_missing() {
    let bpe = Tokenizer::from_vocab(VocabSpec {
        kinds: Vec::new(),
        ..bpe_spec()
    })
    .unwrap();
    assert!(bpe.is_control(bpe.bos().unwrap()));
    let spm = VocabSpec {
        kinds: Vec::new(),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        ..spm_spec()
    };
    check(
        "bytes by name",
        &Tokenizer::from_vocab(spm).unwrap(),
        "\n",
        false,
        "▁|<0x0A>",
    );
}
