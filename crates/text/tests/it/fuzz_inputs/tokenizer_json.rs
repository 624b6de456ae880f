//! Any bytes are a tokenizer or a clear error, and a tokenizer encodes any text to ids of its vocabulary, or reports an error.
//!
//! The `tokenizer.json` goes up to the first zero byte, and the text up to the second; the rest is a `tokenizer_config.json`.

use text::Tokenizer;

/// Reads the files and encodes the text. Panics only for a fault.
pub(crate) fn run(input: &[u8]) {
    let mut parts = input.splitn(3, |&byte| byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (json, text, config) = (next(), next(), next());
    let text = String::from_utf8_lossy(text);
    let tokenizer = match config {
        [] => Tokenizer::from_json(json),
        config => Tokenizer::from_json_with_config(json, config),
    };
    let Ok(tokenizer) = tokenizer.map_err(|error| check_words(&error.to_string())) else {
        return;
    };
    let marked = tokenizer.escape_control_text(&text);
    for encoded in [
        tokenizer.encode(&text, false),
        tokenizer.encode(&text, true),
        tokenizer.encode_prompt(&text, false),
        tokenizer.encode_rendered(&marked),
        tokenizer.encode_rendered_continuation(&marked),
    ] {
        let Ok(ids) = encoded.map_err(|error| check_words(&error.to_string())) else {
            continue;
        };
        for id in ids {
            assert!(
                tokenizer.bytes(id).is_some(),
                "token {id} of {text:?} is not in the vocabulary"
            );
            assert!(
                tokenizer.piece(id).is_some(),
                "token {id} of {text:?} has no text"
            );
        }
    }
    let first = tokenizer.encode("a", false).unwrap_or_default();
    let pair = tokenizer.join_pair(&first, &first).unwrap_or_default();
    let ends = tokenizer.eos_ids().iter().chain(&pair);
    let mut named = ends.copied().chain(tokenizer.bos()).chain(tokenizer.eos());
    assert!(
        named.all(|id| tokenizer.bytes(id).is_some()),
        "a token that is not in the vocabulary"
    );
    let _ = tokenizer.bytes_per_token_max();
}

fn check_words(error: &str) {
    assert!(
        !error.is_empty() && error.chars().all(|c| c == '\n' || !c.is_control()),
        "{error:?}"
    );
}
