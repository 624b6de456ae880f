use super::super::tests::bpe_spec;
use super::*;
use crate::{TokenKind, Tokenizer};
use TokenKind::{Control, Normal, UserDefined};

fn specials() -> SpecialTokens {
    let mut pieces = StringArena::with_capacity(0, 0);
    let tokens = ["<s>", "<s>x", "  ", "<r>", "<l>", "plain"];
    tokens
        .iter()
        .for_each(|token| pieces.push(token.as_bytes()));
    use TokenKind::{Control, Normal, UserDefined};
    let kinds = [Control, Control, UserDefined, Control, Control, Normal];
    SpecialTokens::new(&pieces, &kinds, |id| match id {
        3 => AbsorbedSpace::Right,
        4 => AbsorbedSpace::Left,
        _ => AbsorbedSpace::Nothing,
    })
    .unwrap()
}

#[test]
fn fragments() {
    for (label, text, special, expected) in [
        ("nothing", "", true, ""),
        ("plain text", "a plain b", true, "[a plain b]"),
        ("control", "a<s>b", true, "[a]0[b]"),
        ("control as text", "a<s>b", false, "[a<s>b]"),
        ("longest", "<s>x<s>y", true, "10[y]"),
        ("user-defined always", "a  b", false, "[a]2[b]"),
        ("takes what follows", "a<r> \n\tb", true, "[a]3[b]"),
        ("takes what stands before", "a \n<l>b", true, "[a]4[b]"),
        ("takes all before", "  <r>   <l>", true, "234"),
        ("overlap goes to the left one", "   ", true, "2[ ]"),
    ] {
        let mut given = String::new();
        let result: Result<(), ()> = specials().split(text, special, |fragment| {
            given += &match fragment {
                Fragment::Text(text) => format!("[{text}]"),
                Fragment::Token(id) => id.to_string(),
            };
            Ok(())
        });
        result.unwrap();
        assert_eq!(given, expected, "{label}");
    }
}

fn check(label: &str, tokens: &[(&str, TokenKind)], named: &[Option<u32>], expected: &[u32]) {
    let mut pieces = StringArena::with_capacity(0, 0);
    tokens
        .iter()
        .for_each(|(text, _)| pieces.push(text.as_bytes()));
    pieces.index(|_| true);
    let kinds: Vec<_> = tokens.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(find(&pieces, &kinds, named), expected, "{label}");
}

#[test]
fn end_tokens_are_named_or_well_known() {
    let x = ("x", Normal);
    check("none", &[x], &[None], &[]);
    check(
        "named",
        &[x, x],
        &[Some(1), None, Some(0), Some(1)],
        &[0, 1],
    );
    check(
        "known",
        &[x, ("<|im_end|>", Control), ("</s>", UserDefined)],
        &[None],
        &[1, 2],
    );
    check("ordinary text", &[("</s>", Normal), x], &[None], &[]);
    check(
        "phi",
        &[("<|end|>", Control), ("<|endoftext|>", Control)],
        &[Some(1)],
        &[0, 1],
    );
    check(
        "gemma 4 writes tags of HTML",
        &[
            ("</s>", UserDefined),
            ("<turn|>", Control),
            ("<|tool_response>", UserDefined),
        ],
        &[None],
        &[1, 2],
    );
    let harmony = [
        ("<|end|>", Control),
        ("<|return|>", Control),
        ("<|call|>", Control),
    ];
    check(
        "harmony goes on after a message",
        &harmony,
        &[Some(1)],
        &[1, 2],
    );
}

/// The vocabulary of tests with these control tokens behind its own.
fn tokenizer(texts: &[&str], named: InfillIds) -> (u32, Tokenizer) {
    let mut spec = bpe_spec();
    let first = u32::try_from(spec.tokens.len()).unwrap();
    spec.kinds.resize(spec.tokens.len(), TokenKind::Normal);
    spec.tokens
        .extend(texts.iter().map(|&text| text.to_owned()));
    spec.kinds.resize(spec.tokens.len(), TokenKind::Control);
    spec.infill = named;
    (first, Tokenizer::from_vocab(spec).unwrap())
}

#[test]
fn infill_tokens_are_named_or_well_known() {
    let none = InfillIds::default();
    for texts in [
        [
            "<|fim_prefix|>",
            "<|fim_suffix|>",
            "<|fim_middle|>",
            "<|repo_name|>",
            "<|file_sep|>",
        ],
        ["▁<PRE>", "▁<SUF>", "▁<MID>", "<REPO>", "<|file_sep|>"],
        [
            "<fim_prefix>",
            "<fim_suffix>",
            "<fim_middle>",
            "<reponame>",
            "<|file_sep|>",
        ],
        [
            "<｜fim▁begin｜>",
            "<｜fim▁hole｜>",
            "<｜fim▁end｜>",
            "<fim-repo>",
            "<|file_sep|>",
        ],
    ] {
        let (first, tokenizer) = tokenizer(&texts, none);
        let want = InfillTokens {
            prefix: first,
            suffix: first + 1,
            middle: first + 2,
            repository: Some(first + 3),
            file: Some(first + 4),
        };
        assert_eq!(tokenizer.infill_tokens(), Ok(want), "{texts:?}");
    }
    let (first, known) = tokenizer(&["<a>", "<b>", "<c>", "<PRE>"], none);
    assert_eq!(known.infill_tokens(), Err(vec!["suffix", "middle"]));
    let named = InfillIds {
        prefix: Some(first),
        suffix: Some(first + 1),
        middle: Some(first + 2),
        padding: Some(first + 3),
        ..none
    };
    let (_, named) = tokenizer(&["<a>", "<b>", "<c>", "<PRE>"], named);
    let tokens = named.infill_tokens().unwrap();
    assert_eq!(
        (tokens.prefix, tokens.repository),
        (first, None),
        "a name goes before a text"
    );
    assert!(
        named.eos_ids().contains(&(first + 3)),
        "padding ends an answer"
    );
}

#[test]
fn named_infill_token_outside_the_vocabulary_is_an_error() {
    let mut spec = bpe_spec();
    spec.infill.middle = Some(1 << 20);
    let error = Tokenizer::from_vocab(spec).err().unwrap();
    assert!(error.to_string().contains("fim_mid"), "{error}");
}
