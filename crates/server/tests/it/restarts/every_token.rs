//! A restart after each token.
//!
//! Promise (Journal): a restart after any token: readers of both processes together have every token once, and a
//! reader from the beginning the bytes of the uninterrupted run (greedy, sampled, n = 2, stop strings, schema,
//! log-probabilities, echo, scored).

use super::copies::{Copied, Journaled};
use crate::support::named::{
    CHAT, COMPLETIONS, RESUMABLE, chat, completion, fake, get, kept, send, stream_id,
};
use crate::support::sse::{Heard, frames};
use crate::support::{vocab, wait_until};
use engine::fake::FakeConfig;
use serde_json::{Value, json};

/// A copy of the journal, and what a client had by then.
struct Cut {
    copied: Copied,
    got: String,
    tokens: u64,
}

/// Opens a stream, copies the journal after each pass of the model, and returns the copies with the whole answer.
fn cuts(journaled: &Journaled, path: &str, body: &Value) -> (String, Vec<Cut>, String) {
    let rig = &journaled.rig;
    let mut client = send(rig, "POST", path, RESUMABLE, body);
    let head = client.head();
    assert_eq!(head.get("x-stream-durable"), Some("1"));
    let id = stream_id(&head);
    let events = format!("/v1/streams/{id}/events");
    let mut cuts = Vec::new();
    loop {
        let tokens = journaled.shown_tokens(&id);
        let is_over = journaled.describe(&id)["state"] == "ended";
        // A reader that leaves has what was shown so far.
        let got = match tokens {
            0 => String::new(),
            _ => shown(journaled, &events),
        };
        cuts.push(Cut {
            copied: journaled.copy(),
            got,
            tokens,
        });
        if is_over {
            break;
        }
        rig.gate.allow(1);
        wait_until(&format!("a token after {tokens} of {id}"), || {
            if tokens == 0 && is_scored(body) {
                rig.gate.allow(1);
            }
            journaled.shown_tokens(&id) > tokens || journaled.describe(&id)["state"] == "ended"
        });
    }
    rig.gate.open();
    let whole = client.body();
    (id, cuts, whole)
}

/// Whether the prompt's tokens come first, which are no tokens of the answer.
fn is_scored(body: &Value) -> bool {
    body["echo"] == true && !body["logprobs"].is_null()
}

/// The frames that a reader gets at once.
fn shown(journaled: &Journaled, events: &str) -> String {
    let mut reader = send(&journaled.rig, "GET", events, "", &Value::Null);
    reader.head();
    reader.chunk().unwrap_or_default()
}

fn check(case: &str, fake: &FakeConfig, path: &str, body: &Value) {
    let journaled = Journaled::gated(case, fake.clone(), kept());
    let (id, cuts, whole) = cuts(&journaled, path, body);
    let heard = Heard::of(&frames(&whole));
    assert!(heard.is_over(), "{case}: {whole}");
    let events = format!("/v1/streams/{id}/events");
    let uninterrupted = get(&journaled.rig, &events, "").body;
    let least = if is_scored(body) { 1 } else { 4 };
    assert!(cuts.len() >= least, "{case}: {} cuts", cuts.len());
    for cut in cuts {
        let place = format!("{case}, {} tokens", cut.tokens);
        let restarted = cut.copied.start(fake.clone(), kept());
        restarted.rig.gate.open();
        let mut got = frames(&cut.got);
        let last = got.iter().rev().find_map(|frame| frame.id.clone());
        let field = last.map(|last| format!("last-event-id: {last}\r\n"));
        let rest = get(&restarted.rig, &events, &field.unwrap_or_default());
        got.extend(frames(&rest.body));
        assert_eq!(Heard::of(&got), heard, "{place}");
        let again = get(&restarted.rig, &events, "").body;
        assert_eq!(again, uninterrupted, "{place}");
        let described = restarted.describe(&id);
        assert_eq!(described["recovered"], 1, "{place}: {described}");
        assert_eq!(described["durable"], true, "{place}: {described}");
    }
}

#[test]
fn greedy_stream_continues_after_a_restart_at_every_token() {
    let body = chat(&json!({"temperature": 0, "max_tokens": 12}));
    check("greedy", &fake(), CHAT, &body);
}

#[test]
fn sampled_stream_with_every_kind_of_state_continues_after_a_restart_at_every_token() {
    let usage = json!({"include_usage": true});
    check(
        "chat",
        &fake(),
        CHAT,
        &chat(&json!({"stream_options": usage})),
    );
    check(
        "two choices",
        &fake(),
        CHAT,
        &chat(&json!({"n": 2, "stream_options": usage, "frequency_penalty": 0.5})),
    );
    let bias = json!({vocab::WORD.to_string(): 3, (vocab::WORD + 2).to_string(): 7, (vocab::WORD + 3).to_string(): 7,
        (vocab::WORD + 4).to_string(): 7, (vocab::WORD + 5).to_string(): 7});
    let stops = json!({"n": 2, "stop": ["STOP", "nothing says this"], "logit_bias": bias, "max_tokens": 40});
    check("stop strings", &fake(), CHAT, &chat(&stops));
    let logprobs = json!({"n": 2, "logprobs": true, "top_logprobs": 2, "max_tokens": 6});
    check("log-probabilities", &fake(), CHAT, &chat(&logprobs));
    let echo = json!({"echo": true, "n": 2, "max_tokens": 5});
    check("echo", &fake(), COMPLETIONS, &completion(&echo));
    let scored = json!({"echo": true, "logprobs": 2, "max_tokens": 4});
    check("scored prompt", &fake(), COMPLETIONS, &completion(&scored));
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": {
        "type": "object", "properties": {"ab": {"type": "string", "maxLength": 6}},
        "required": ["ab"], "additionalProperties": false}}});
    check(
        "schema",
        &any_text(),
        CHAT,
        &chat(&json!({"response_format": format, "max_tokens": 60})),
    );
}

/// A model that may say every token, as a grammar needs.
fn any_text() -> FakeConfig {
    FakeConfig {
        tokens: 0..256,
        eos_probability: 0.02,
        ..fake()
    }
}
