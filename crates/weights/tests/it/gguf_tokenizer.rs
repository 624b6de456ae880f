//! A file's tokenizer, as plain data.

use weights::gguf::{Gguf, GgufWriter, Value};

/// Three tokens, and what `more` adds.
fn gguf(more: impl FnOnce(&mut GgufWriter)) -> Gguf {
    let mut writer = GgufWriter::new();
    writer.str("tokenizer.ggml.model", "gpt2").strings(
        "tokenizer.ggml.tokens",
        &[b"a".as_slice(), b"\xf0\x9f", b"c"],
    );
    more(&mut writer);
    let mut bytes = Vec::new();
    writer.write(&mut bytes, |_, _| Ok(())).unwrap();
    Gguf::from_bytes(bytes).unwrap()
}

#[test]
fn tokenizer_needs_only_model_and_tokens() {
    let gguf = gguf(|_| {});
    let tokenizer = gguf.tokenizer().unwrap();
    let tokens: Vec<_> = tokenizer
        .tokens
        .map(|token| token.as_bytes().to_vec())
        .collect();
    assert_eq!(tokens, [b"a".to_vec(), b"\xf0\x9f".to_vec(), b"c".to_vec()]);
    assert_eq!(tokenizer.model, "gpt2");
    assert!(tokenizer.kinds.is_none() && tokenizer.scores.is_none() && tokenizer.merges.is_none());
    assert_eq!(
        (tokenizer.bos, tokenizer.add_bos, tokenizer.pre),
        (None, None, None)
    );
}

#[test]
fn complete_tokenizer_metadata_is_read() {
    let gguf = gguf(|writer| {
        writer
            .str("tokenizer.ggml.pre", "qwen2")
            .i32s("tokenizer.ggml.token_type", &[1, 3, 4])
            .f32s("tokenizer.ggml.scores", &[0.0, -1.0, -2.0])
            .strings("tokenizer.ggml.merges", &["a c"])
            .u32("tokenizer.ggml.bos_token_id", 1)
            .u32("tokenizer.ggml.eot_token_id", 2)
            .u32("tokenizer.ggml.fim_pre_token_id", 1)
            .u32("tokenizer.ggml.suffix_token_id", 2)
            .u32("tokenizer.ggml.fim_mid_token_id", 3)
            .bool("tokenizer.ggml.add_bos_token", true)
            .str("tokenizer.chat_template", "{{ messages }}")
            .str("tokenizer.chat_template.tool_use", "{{ tools }}");
    });
    let tokenizer = gguf.tokenizer().unwrap();
    assert_eq!(tokenizer.pre, Some("qwen2"));
    assert_eq!(tokenizer.kinds.unwrap().collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(
        tokenizer.scores.unwrap().collect::<Vec<_>>(),
        [0.0, -1.0, -2.0]
    );
    assert_eq!(
        tokenizer.merges.unwrap().next().unwrap().as_str(),
        Some("a c")
    );
    assert_eq!(
        (tokenizer.bos, tokenizer.eos, tokenizer.eot),
        (Some(1), None, Some(2))
    );
    assert_eq!(tokenizer.add_bos, Some(true));
    let infill = tokenizer.infill;
    // There are three tokens: the id of the middle names none.
    assert_eq!(
        (infill.prefix, infill.suffix, infill.middle),
        (Some(1), Some(2), None)
    );
    assert_eq!(tokenizer.chat_template, Some("{{ messages }}"));
    assert_eq!(gguf.chat_template("tool_use").unwrap(), Some("{{ tools }}"));
    assert_eq!(gguf.chat_template("rag").unwrap(), None);
}

#[test]
fn out_of_range_special_ids_are_none() {
    for (label, id) in [
        ("minus one", Value::I32(-1)),
        ("all bits", Value::U32(u32::MAX)),
        ("beyond", Value::U32(3)),
    ] {
        let gguf = gguf(|writer| _ = writer.value("tokenizer.ggml.eos_token_id", id));
        assert_eq!(gguf.tokenizer().unwrap().eos, None, "{label}");
    }
}

#[test]
fn lists_of_wrong_length_are_rejected() {
    let kinds = gguf(|writer| _ = writer.i32s("tokenizer.ggml.token_type", &[1]));
    let scores = gguf(|writer| _ = writer.f32s("tokenizer.ggml.scores", &[0.0; 4]));
    let model = gguf(|writer| _ = writer.u32("tokenizer.chat_template", 1));
    let rows = [
        (
            "kinds",
            kinds,
            "`tokenizer.ggml.token_type`: 1 entries for 3 tokens",
        ),
        (
            "scores",
            scores,
            "`tokenizer.ggml.scores`: 4 entries for 3 tokens",
        ),
        (
            "template",
            model,
            "`tokenizer.chat_template`: expected string, found u32",
        ),
    ];
    for (label, gguf, expected) in rows {
        let error = gguf.tokenizer().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{label}: {error}");
    }
}
