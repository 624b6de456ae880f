//! Control updates and pauses before a restart.
//!
//! Promise (Journal): control updates, injected text and pauses hold after a restart.

use super::copies::Journaled;
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, kept, send, stream_id};
use crate::support::wait_until;
use serde_json::{Value, json};

/// A stream with some tokens, on a gated server.
fn begun(name: &str, tokens: u64) -> (Journaled, String) {
    let journaled = Journaled::gated(name, fake(), kept());
    let body = chat(&json!({"n": 2, "max_tokens": 20}));
    let mut client = send(&journaled.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    pass(&journaled, &id, tokens);
    (journaled, id)
}

/// Lets the model run until readers see so many tokens.
fn pass(journaled: &Journaled, id: &str, tokens: u64) {
    while journaled.shown_tokens(id) < tokens {
        let before = journaled.shown_tokens(id);
        journaled.rig.gate.allow(1);
        wait_until("a token", || journaled.shown_tokens(id) > before);
    }
}

fn post(journaled: &Journaled, id: &str, action: &str, body: &Value) -> Value {
    let path = format!("/v1/streams/{id}/{action}");
    let reply = call(&journaled.rig, "POST", &path, "", body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    reply.json()
}

/// Both servers end the stream with the same bytes.
fn expect_equal_ends(original: &Journaled, restarted: &Journaled, id: &str, case: &str) {
    let uninterrupted = original.whole(id);
    assert!(uninterrupted.contains("[DONE]"), "{case}: {uninterrupted}");
    assert_eq!(restarted.whole(id), uninterrupted, "{case}");
}

#[test]
fn control_updates_hold_after_a_restart() {
    let update = json!({"temperature": 0.2, "top_k": 3, "frequency_penalty": 1.5});
    for (case, tokens_after) in [("waiting", 0), ("in effect", 6)] {
        let (original, id) = begun("steered", 6);
        post(&original, &id, "control", &update);
        pass(&original, &id, 6 + tokens_after);
        let restarted = original.copy().start(fake(), kept());
        wait_until("the control history is back", || {
            restarted.describe(&id)["control"]["told"] == 1
        });
        let (before, after) = (original.describe(&id), restarted.describe(&id));
        assert_eq!(
            before["control"]["last"][0]["temperature"], after["control"]["last"][0]["temperature"],
            "{case}"
        );
        expect_equal_ends(&original, &restarted, &id, case);
    }
}

#[test]
fn injected_text_appears_once_after_a_restart() {
    for (case, tokens_after) in [("waiting", 0), ("in effect", 8)] {
        let (original, id) = begun("injected", 6);
        post(&original, &id, "control", &json!({"text": "abc"}));
        pass(&original, &id, 6 + tokens_after);
        let restarted = original.copy().start(fake(), kept());
        expect_equal_ends(&original, &restarted, &id, case);
    }
}

#[test]
fn paused_stream_stays_paused_after_a_restart() {
    let (original, id) = begun("paused", 6);
    post(&original, &id, "pause", &json!({}));
    let restarted = original.copy().start(fake(), kept());
    restarted.rig.gate.open();
    wait_until("the stream is back", || {
        restarted.shown_tokens(&id) == original.shown_tokens(&id)
    });
    assert_eq!(restarted.describe(&id)["state"], "paused");
    let again = restarted.copy().start(fake(), kept());
    wait_until("the stream is back again", || {
        again.describe(&id)["state"] == "paused" && again.shown_tokens(&id) > 0
    });
    assert_eq!(again.describe(&id)["recovered"], 2);
    post(&original, &id, "resume", &json!({}));
    post(&again, &id, "resume", &json!({}));
    expect_equal_ends(&original, &again, &id, "paused");
}
