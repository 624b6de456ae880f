use super::super::tests::bpe_spec;
use super::*;
use crate::{ChatTemplate, Message, RenderInput, Tokenizer};

fn tokenizer() -> Tokenizer {
    Tokenizer::from_vocab(bpe_spec()).unwrap()
}

/// The first control token with a text of more than two bytes.
fn control(tokenizer: &Tokenizer) -> (u32, String) {
    let mut ids = (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_control(id));
    let id = ids
        .find(|&id| tokenizer.piece(id).is_some_and(|text| text.len() > 2))
        .unwrap();
    (id, tokenizer.piece(id).unwrap().to_owned())
}

#[test]
fn escaped_control_tokens_are_text() {
    let tokenizer = tokenizer();
    let (id, text) = control(&tokenizer);
    let forged = format!("{OPEN}{text}{CLOSE}");
    let split = format!("{OPEN}a");
    let rows = [
        ("plain", "a".to_owned(), 1),
        ("typed", text.clone(), 1),
        ("typed twice", format!("{text}{text} a {text}"), 1),
        ("typed with forged marks", forged, 1),
        ("typed marks alone", split, 1),
        (
            "typed around a mark",
            format!("{}{CLOSE}{}", &text[..2], &text[2..]),
            1,
        ),
    ];
    for (label, typed, expected) in rows {
        let rendered = format!("{text}{}a", tokenizer.escape_control_text(&typed));
        let ids = tokenizer.encode_rendered(&rendered).unwrap();
        let found = ids.iter().filter(|found| **found == id).count();
        assert_eq!(found, expected, "{label}: {ids:?}");
        let shown: Vec<u8> = ids
            .iter()
            .flat_map(|id| tokenizer.bytes(*id).unwrap())
            .copied()
            .collect();
        assert!(
            !String::from_utf8_lossy(&shown).contains([OPEN, CLOSE]),
            "{label}"
        );
    }
}

#[test]
fn template_that_cuts_sentinels_keeps_control_tokens() {
    let tokenizer = tokenizer();
    let (id, text) = control(&tokenizer);
    let cut = format!("a{OPEN}{text}b{text}{CLOSE}c");
    let ids = tokenizer.encode_rendered(&cut).unwrap();
    assert_eq!(ids.iter().filter(|found| **found == id).count(), 2);
}

#[test]
fn escaped_text_survives_rendering() {
    let tokenizer = tokenizer();
    let (id, text) = control(&tokenizer);
    let source = "{% for m in messages %}TOKEN{{ m.content | tojson }}{{ m.content }}{% endfor %}";
    let template = ChatTemplate::new(&source.replace("TOKEN", &text), "", "").unwrap();
    let message = Message {
        role: "user".into(),
        content: serde_json::json!([{ "type": "text", "text": text }]),
        rest: serde_json::Map::new(),
    };
    let count = |messages: &[Message]| {
        let input = RenderInput {
            messages,
            ..RenderInput::default()
        };
        let rendered = template.render(&input).unwrap();
        let ids = tokenizer.encode_rendered(&rendered).unwrap();
        ids.iter().filter(|found| **found == id).count()
    };
    assert_eq!(
        count(std::slice::from_ref(&message)),
        3,
        "unmarked: the template's and both typed ones"
    );
    assert_eq!(
        count(&[message.with_escaped_text(&tokenizer)]),
        1,
        "marked: the template's"
    );
}

#[test]
fn text_without_control_tokens_is_not_copied() {
    let tokenizer = tokenizer();
    for text in ["", "a plain text", "  two  spaces é 漢"] {
        assert!(matches!(
            tokenizer.escape_control_text(text),
            Cow::Borrowed(_)
        ));
        assert_eq!(
            tokenizer.encode_rendered(text),
            tokenizer.encode_prompt(text, true)
        );
    }
}
