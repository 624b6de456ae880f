//! Log-probabilities: chat's list of objects, and completions' four parallel lists.

use crate::wire::json;
use bytes::BytesMut;
use generate::output::event::Logprobs;
use text::Tokenizer;

/// Chat: `{"content":[{token, logprob, bytes, top_logprobs:[..]}]}`.
pub(crate) fn write_chat(logprobs: Logprobs<'_>, out: &mut BytesMut) {
    json::raw(out, "{\"content\":");
    write_tokens(logprobs, out);
    json::raw(out, ",\"refusal\":null}");
}

/// `[{token, logprob, bytes, top_logprobs:[..]}]`.
pub(crate) fn write_tokens(logprobs: Logprobs<'_>, out: &mut BytesMut) {
    json::raw(out, "[");
    for (i, (entry, top)) in logprobs.iter().enumerate() {
        separate(i, out);
        open_chat_token(logprobs.tokenizer, entry.token.id, entry.token.logprob, out);
        json::raw(out, ",\"top_logprobs\":[");
        for (j, alternative) in top.iter().enumerate() {
            separate(j, out);
            open_chat_token(logprobs.tokenizer, alternative.id, alternative.logprob, out);
            json::raw(out, "}");
        }
        json::raw(out, "]}");
    }
    json::raw(out, "]");
}

/// Completions: `{"tokens":[..],"token_logprobs":[..],"top_logprobs":[{..}]|null,"text_offset":[..]}`. Of a prompt's first
/// token nothing is known: null, as OpenAI has it.
pub(crate) fn write_legacy(logprobs: Logprobs<'_>, out: &mut BytesMut) {
    let tokenizer = logprobs.tokenizer;
    json::raw(out, "{\"tokens\":[");
    for (i, (entry, _)) in logprobs.iter().enumerate() {
        separate(i, out);
        legacy_token(tokenizer, entry.token.id, out);
    }
    json::raw(out, "],\"token_logprobs\":[");
    for (i, (entry, _)) in logprobs.iter().enumerate() {
        separate(i, out);
        match entry.token.logprob {
            odds if odds.is_nan() => json::raw(out, "null"),
            odds => json::logprob(out, odds),
        }
    }
    json::raw(out, "],\"top_logprobs\":");
    if logprobs.top_n == 0 {
        json::raw(out, "null");
    } else {
        write_legacy_top(logprobs, out);
    }
    json::raw(out, ",\"text_offset\":[");
    for (i, (entry, _)) in logprobs.iter().enumerate() {
        separate(i, out);
        json::integer(out, entry.start_chars);
    }
    json::raw(out, "]}");
}

/// One map per token; the chosen token is in it even when it is not among the likeliest.
fn write_legacy_top(logprobs: Logprobs<'_>, out: &mut BytesMut) {
    json::raw(out, "[");
    for (i, (entry, top)) in logprobs.iter().enumerate() {
        separate(i, out);
        if entry.token.logprob.is_nan() {
            json::raw(out, "null");
            continue;
        }
        json::raw(out, "{");
        let listed = top.iter().map(|t| (t.id, t.logprob));
        let chosen = (!top.iter().any(|t| t.id == entry.token.id))
            .then_some((entry.token.id, entry.token.logprob));
        for (j, (id, logprob)) in listed.chain(chosen).enumerate() {
            separate(j, out);
            legacy_token(logprobs.tokenizer, id, out);
            json::raw(out, ":");
            json::logprob(out, logprob);
        }
        json::raw(out, "}");
    }
    json::raw(out, "]");
}

fn separate(i: usize, out: &mut BytesMut) {
    if i > 0 {
        json::raw(out, ",");
    }
}

/// `{"token":..,"logprob":..,"bytes":[..]`, left open.
fn open_chat_token(tokenizer: &Tokenizer, id: u32, logprob: f32, out: &mut BytesMut) {
    let bytes = token_bytes(tokenizer, id);
    json::raw(out, "{\"token\":\"");
    json::escape_lossy(out, bytes);
    json::raw(out, "\",\"logprob\":");
    json::logprob(out, logprob);
    json::raw(out, ",\"bytes\":[");
    for (i, byte) in bytes.iter().enumerate() {
        separate(i, out);
        json::integer(out, u64::from(*byte));
    }
    json::raw(out, "]");
}

/// The token's text; one that is not UTF-8 by itself is written as `bytes:\xe2\x82`, as OpenAI does.
fn legacy_token(tokenizer: &Tokenizer, id: u32, out: &mut BytesMut) {
    let bytes = token_bytes(tokenizer, id);
    match std::str::from_utf8(bytes) {
        Ok(text) => json::string(out, text),
        Err(_) => {
            json::raw(out, "\"bytes:");
            for byte in bytes {
                json::raw(out, "\\\\x");
                for half in [byte >> 4, byte & 15] {
                    out.extend_from_slice(&[b"0123456789abcdef"[usize::from(half)]]);
                }
            }
            json::raw(out, "\"");
        }
    }
}

/// What the token stands for in text; a control token is named by its own text.
fn token_bytes(tokenizer: &Tokenizer, id: u32) -> &[u8] {
    match tokenizer.bytes(id) {
        Some(bytes) if !bytes.is_empty() => bytes,
        _ => tokenizer.piece(id).unwrap_or_default().as_bytes(),
    }
}
