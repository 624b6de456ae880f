//! What a running stream is told: it takes effect at a step, and stays in its log.

mod support;

use serde_json::{Value, json};
use support::named::{COMPLETIONS, RESUMABLE, call, completion, fake, get, kept, send, stream_id};
use support::{Rig, wait_until};

/// A stream that has a few tokens and waits at the gate for more.
fn begun(rig: &Rig) -> String {
    let ask = completion(&json!({"stream": true, "max_tokens": 30, "temperature": 1, "seed": 3}));
    let mut client = send(rig, "POST", COMPLETIONS, RESUMABLE, &ask);
    let id = stream_id(&client.head());
    rig.gate.allow(4);
    wait_until("it has tokens", || {
        shown(rig, &id)["completion_tokens"] == 4
    });
    id
}

fn shown(rig: &Rig, id: &str) -> Value {
    get(rig, &format!("/v1/streams/{id}"), "").json()
}

fn tell(rig: &Rig, id: &str, body: &Value) -> support::client::Reply {
    call(rig, "POST", &format!("/v1/streams/{id}/control"), "", body)
}

/// All its text, told again from the beginning.
fn text(rig: &Rig, id: &str) -> String {
    let whole = get(rig, &format!("/v1/streams/{id}/events"), "");
    let frames = whole
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let json = frames.filter_map(|frame| serde_json::from_str::<Value>(frame).ok());
    json.filter_map(|chunk| Some(chunk["choices"][0]["text"].as_str()?.to_owned()))
        .collect()
}

#[test]
fn text_is_put_in_in_order_and_told_the_same_again() {
    let rig = Rig::gated(fake(), kept());
    let id = begun(&rig);
    let told = tell(&rig, &id, &json!({"text": "XYZ", "temperature": 0}));
    assert_eq!(told.head.status, 200, "{}", told.body);
    assert_eq!(
        tell(&rig, &id, &json!({"tokens": [81, 82]})).head.status,
        200
    );
    rig.gate.open();
    wait_until("it ends", || shown(&rig, &id)["state"] == "ended");
    let first = text(&rig, &id);
    // A pass that was under way when it was told gives one token more before.
    let (text_at, tokens_at) = (first.find("XYZ"), first.find("QR"));
    assert!(matches!(text_at, Some(4 | 5)), "{first}");
    assert!(tokens_at > text_at, "{first}");
    assert_eq!(first.len(), 30);
    assert_eq!(text(&rig, &id), first, "told again");
    assert_eq!(tell(&rig, &id, &json!({"text": "late"})).head.status, 409);
}

#[test]
fn it_stands_still_goes_on_and_stops() {
    let rig = Rig::gated(fake(), kept());
    let id = begun(&rig);
    assert_eq!(
        tell(&rig, &id, &json!({"pause": true})).json()["state"],
        "paused"
    );
    assert_ne!(
        tell(&rig, &id, &json!({"pause": false})).json()["state"],
        "paused"
    );
    assert_eq!(tell(&rig, &id, &json!({"stop": true})).head.status, 200);
    rig.gate.open();
    wait_until("it ends", || shown(&rig, &id)["state"] == "ended");
    assert_eq!(shown(&rig, &id)["choices"][0]["end"], "cancelled");
}

#[test]
fn what_is_wrong_is_told_by_field() {
    let rig = Rig::gated(fake(), kept());
    let id = begun(&rig);
    for (body, words) in [
        (json!({"temperature": -1}), "temperature"),
        (json!({"tokens": ["x"]}), "tokens[0]"),
        (json!({"tokens": [999_999]}), "inject names token 999999"),
        (json!({"tokens": [1], "text": "x"}), "together"),
        (json!({"end_thinking": true}), "end_thinking"),
    ] {
        let reply = tell(&rig, &id, &body);
        assert_eq!(reply.head.status, 400, "{body}: {}", reply.body);
        assert!(reply.body.contains(words), "{body}: {}", reply.body);
    }
    assert_eq!(
        tell(&rig, "00000000000000000000000000000000", &json!({}))
            .head
            .status,
        404
    );
}
