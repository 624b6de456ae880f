//! Streams that do not continue: ended, rejected, lost, expired, of another model, or the reason of the deaths.
//!
//! Promise (Journal): ended streams are readable after a restart, with the same `completed_at` as a response; deleted
//! and expired ones are gone; missing records, another model, a passed deadline and workflow runs give their ends,
//! never different tokens.
//!
//! Promise (Journal): a stream that kills the process runs alone and then fails; one that advances never fails so.
//! Also held by `gateway/src/recovery/continuation.rs`.

use super::copies::{Copied, Journaled};
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, kept, send, stream_id, with};
use crate::support::{Rig, vocab, wait_until};
use journal::Record;
use serde_json::{Value, json};
use server::{ModelIdentity, ServerConfig, StreamLimits};
use std::path::PathBuf;
use std::time::Duration;

fn events(id: &str) -> String {
    format!("/v1/streams/{id}/events")
}

/// A stream that has ended.
fn ended() -> (Journaled, String) {
    let journaled = Journaled::gated("ended", fake(), kept());
    journaled.rig.gate.open();
    let body = chat(&json!({"n": 2, "max_tokens": 5}));
    let reply = call(&journaled.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&reply.head);
    (journaled, id)
}

/// Whether a journal has the stream.
fn has_stream(journaled: &Journaled, id: &str) -> bool {
    let streams = journaled.read().streams;
    streams
        .iter()
        .any(|stream| format!("{:032x}", stream.id) == id)
}

/// A journal with a stream of five tokens that goes on.
fn cut_after_five() -> (Copied, String) {
    let journaled = Journaled::gated("cut", fake(), kept());
    let body = chat(&json!({"max_tokens": 20}));
    let mut client = send(&journaled.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    for tokens in 1..=5 {
        journaled.rig.gate.allow(1);
        wait_until("a token", || journaled.shown_tokens(&id) == tokens);
    }
    (journaled.copy(), id)
}

#[test]
fn ended_stream_is_readable_in_every_protocol_after_a_restart() {
    let (original, id) = ended();
    let restarted = original.copy().start(fake(), kept());
    for dialect in [
        "openai.chat",
        "openai.completions",
        "native.job",
        "anthropic.messages",
    ] {
        let path = format!("{}?dialect={dialect}", events(&id));
        let again = get(&restarted.rig, &path, "");
        assert_eq!(again.head.status, 200, "{dialect}: {}", again.body);
        let uninterrupted = get(&original.rig, &path, "").body;
        let untimed = |body: &str| body.replace(|c: char| c.is_ascii_digit(), "");
        match dialect {
            // A job's end reports a duration.
            "native.job" => assert_eq!(untimed(&again.body), untimed(&uninterrupted)),
            _ => assert_eq!(again.body, uninterrupted, "{dialect}"),
        }
    }
    let described = restarted.describe(&id);
    assert_eq!(described["state"], "ended");
    assert_eq!(described["choices"][1]["end"], "length");
    let restarted_again = restarted.copy().start(fake(), kept());
    let again = get(&restarted_again.rig, &events(&id), "");
    assert_eq!(again.body, get(&original.rig, &events(&id), "").body);
}

#[test]
fn completed_response_has_the_same_time_of_completion_after_a_restart() {
    let original = Journaled::gated("completed", fake(), kept());
    original.rig.gate.open();
    let body = chat(&json!({"logit_bias": {vocab::WORD.to_string(): 100}, "stop": ["lohe"]}));
    let reply = call(&original.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&reply.head);
    let path = format!("{}?dialect=openai.responses", events(&id));
    // A time that is taken when the events are read differs from now on.
    let ended = wire::clock::unix_s();
    wait_until("a later second", || wire::clock::unix_s() > ended);
    let uninterrupted = get(&original.rig, &path, "").body;
    assert!(
        uninterrupted.contains(r#""completed_at":1"#),
        "{uninterrupted}"
    );
    let restarted = original.copy().start(fake(), kept());
    assert_eq!(get(&restarted.rig, &path, "").body, uninterrupted);
}

#[test]
fn deleted_stream_is_forgotten_in_the_journal() {
    let (original, id) = ended();
    let restarted = original.copy().start(fake(), kept());
    get(&restarted.rig, &events(&id), "");
    call(
        &restarted.rig,
        "DELETE",
        &format!("/v1/streams/{id}"),
        "",
        &Value::Null,
    );
    wait_until("the records are forgotten", || !has_stream(&restarted, &id));
    assert!(has_stream(&original, &id), "the other journal");
}

#[test]
fn stream_whose_retention_is_over_is_gone() {
    let (original, id) = ended();
    let expired = with(StreamLimits {
        retention: Duration::ZERO,
        ..StreamLimits::default()
    });
    let restarted = original.copy().start(fake(), expired);
    let gone = get(&restarted.rig, &format!("/v1/streams/{id}"), "");
    assert_eq!(gone.head.status, 410, "{}", gone.body);
    wait_until("the records are forgotten", || !has_stream(&restarted, &id));
}

/// Of a stream of five tokens, whose next index is 5.
fn token_after_a_missing_one() -> Record<'static> {
    Record::Tokens(journal::Tokens {
        first: 6,
        ids: &[97],
        ..journal::Tokens::default()
    })
}

#[test]
fn stream_with_missing_records_ends_lost_after_its_tokens() {
    let (copied, id) = cut_after_five();
    let copied = copied.append(|_| token_after_a_missing_one());
    let restarted = copied.start(fake(), kept());
    restarted.rig.gate.open();
    let reply = get(&restarted.rig, &events(&id), "");
    assert!(reply.body.contains("error"), "{}", reply.body);
    let described = restarted.describe(&id);
    assert_eq!(described["completion_tokens"], 5, "{described}");
    assert_eq!(described["choices"][0]["end"], "lost", "{described}");
    assert_eq!(described["state"], "ended");
}

#[test]
fn recorded_end_of_a_lost_stream_is_not_told() {
    let (copied, id) = cut_after_five();
    let copied = copied.append(|_| token_after_a_missing_one());
    let copied = copied.append(|_| Record::Ended {
        choice: 0,
        end: 1,
        at_unix_us: std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64,
    });
    let restarted = copied.start(fake(), kept());
    wait_until("the stream is recovered", || {
        restarted.describe(&id)["state"] == "ended"
    });
    let described = restarted.describe(&id);
    assert_eq!(described["choices"][0]["end"], "lost", "{described}");
    assert_eq!(described["completion_tokens"], 5, "{described}");
}

#[test]
fn stream_with_which_the_process_died_twice_fails_and_the_server_lives() {
    let (copied, id) = cut_after_five();
    let claim = |stream: &journal::RecoveredStream| Record::Claimed {
        generation: stream.claim.map_or(0, |claim| claim.generation) + 1,
        instance: 0,
        attempt: stream.claim.map_or(0, |claim| claim.attempt) + 1,
        why: 1,
        tokens: 5,
    };
    let copied = copied.append(claim).append(claim);
    let restarted = copied.start(fake(), kept());
    restarted.rig.gate.open();
    let reply = get(&restarted.rig, &events(&id), "");
    assert!(reply.body.contains("crashed_engines"), "{}", reply.body);
    let described = restarted.describe(&id);
    assert_eq!(described["completion_tokens"], 5, "{described}");
    assert_eq!(
        described["choices"][0]["detail"], "crashed_engines",
        "{described}"
    );
    let other = call(&restarted.rig, "POST", CHAT, "", &chat(&json!({})));
    assert_eq!(other.head.status, 200);
}

#[test]
fn stream_that_runs_alone_continues() {
    let (copied, id) = cut_after_five();
    let copied = copied.append(|_| Record::Claimed {
        generation: 2,
        instance: 0,
        attempt: 1,
        why: 1,
        tokens: 5,
    });
    let restarted = copied.start(fake(), kept());
    restarted.rig.gate.open();
    let reply = get(&restarted.rig, &events(&id), "");
    assert!(reply.body.contains("[DONE]"), "{}", reply.body);
    assert_eq!(restarted.describe(&id)["recovered"], 3);
}

#[test]
fn stream_of_another_model_fails_with_readable_tokens() {
    let identity = |weights: &str, tokenizer: &str| ModelIdentity {
        weights: weights.to_owned(),
        tokenizer: tokenizer.to_owned(),
        ..ModelIdentity::default()
    };
    let (copied, id) = cut_after_five();
    Rig::set_next_identity(identity("other", ""));
    let restarted = copied.start(fake(), kept());
    restarted.rig.gate.open();
    let reply = get(&restarted.rig, &events(&id), "");
    assert!(reply.body.contains("model_changed"), "{}", reply.body);
    assert_eq!(restarted.describe(&id)["completion_tokens"], 5);
    // The ending is recorded: the first model does not continue the stream.
    wait_until("the ending on disk", || {
        let again = restarted.copy().start(fake(), kept());
        again.rig.gate.open();
        get(&again.rig, &events(&id), "").body == reply.body
    });
    let (copied, id) = cut_after_five();
    Rig::set_next_identity(identity("other", "other"));
    let unreadable = copied.start(fake(), kept());
    let reply = get(&unreadable.rig, &events(&id), "");
    assert!(reply.body.contains("model_changed"), "{}", reply.body);
    assert_eq!(unreadable.describe(&id)["refused"], "model_changed");
}

#[test]
fn stream_with_another_arithmetic_continues_and_says_so() {
    let (copied, id) = cut_after_five();
    Rig::set_next_identity(ModelIdentity {
        arithmetic: "other".to_owned(),
        ..ModelIdentity::default()
    });
    let restarted = copied.start(fake(), kept());
    restarted.rig.gate.open();
    let reply = get(&restarted.rig, &events(&id), "");
    assert!(reply.body.contains("[DONE]"), "{}", reply.body);
    assert_eq!(restarted.describe(&id)["recomputed"], true);
}

#[test]
fn deadline_that_has_passed_meanwhile_ends_the_stream() {
    let original = Journaled::gated("deadline", fake(), kept());
    let body = chat(&json!({"max_tokens": 20}));
    let fields = format!("{RESUMABLE}request-timeout-ms: 300\r\n");
    let mut client = send(&original.rig, "POST", CHAT, &fields, &body);
    let id = stream_id(&client.head());
    original.rig.gate.allow(2);
    wait_until("tokens", || original.shown_tokens(&id) == 2);
    let copied = original.copy();
    original.rig.gate.open();
    wait_until("the end of the original", || {
        original.describe(&id)["state"] == "ended"
    });
    // The other server starts after the deadline.
    wait_until("the deadline", || {
        original.describe(&id)["timings_ms"]["age"].as_u64() > Some(300)
    });
    let restarted = copied.start(fake(), kept());
    restarted.rig.gate.open();
    let reply = get(&restarted.rig, &events(&id), "");
    assert!(reply.body.contains("timeout"), "{}", reply.body);
    let described = restarted.describe(&id);
    assert_eq!(described["choices"][0]["end"], "deadline", "{described}");
    assert_eq!(described["completion_tokens"], 2);
}

#[test]
fn workflow_run_is_lost() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../workflows");
    let config = ServerConfig {
        workflows: Some(folder),
        ..kept()
    };
    let original = Journaled::gated("workflow", fake(), config.clone());
    let path = "/v1/workflows/streamed_generation/runs";
    let body = json!({"kwargs": {"prompt": "hi", "max_tokens": 30}});
    let mut client = send(&original.rig, "POST", path, "", &body);
    let id = stream_id(&client.head());
    let restarted = original.copy().start(fake(), config);
    let reply = get(&restarted.rig, &events(&id), "");
    assert!(reply.body.contains("was lost when"), "{}", reply.body);
    assert_eq!(restarted.describe(&id)["refused"], "stream_lost");
}
