//! What a running stream is told: it takes effect at a step, and stays in its log.
//!
//! Promise (Streams): a stream that was updated while running, over HTTP or a WebSocket, is replayed byte for byte,
//! in each wire protocol.
//! Also held by `server/tests/it/realtime`.

use crate::support::named::{
    COMPLETIONS, RESUMABLE, call, completion, fake, get, kept, send, stream_id,
};
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};

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

fn tell(rig: &Rig, id: &str, body: &Value) -> crate::support::client::Reply {
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
fn injected_text_is_in_order_and_replays_identically() {
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
fn stream_pauses_resumes_and_stops() {
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
fn invalid_fields_are_named() {
    let rig = Rig::gated(fake(), kept());
    let id = begun(&rig);
    for (body, words) in [
        (json!({"temperature": -1}), "temperature"),
        (json!({"tokens": ["x"]}), "tokens[0]"),
        (json!({"tokens": [999_999]}), "inject names token 999999"),
        (json!({"tokens": [1], "text": "x"}), "together"),
        (json!({"end_thinking": true}), "end_thinking"),
        (json!({"text": "x".repeat(20_000)}), "at most 16384 bytes"),
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

/// Where each dialect is posted to.
const DIALECTS: [&str; 7] = [
    "/v1/inference",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/api/chat",
    "/api/generate",
];

/// Without what the clock says, which is another in each telling of some dialects.
fn timeless(body: &str) -> String {
    let clocks = |name: &str| name.ends_with("_duration") || name == "created_at" || name == "ts";
    let line = |line: &str| {
        let begins = line.find('{').unwrap_or(line.len());
        let Ok(Value::Object(mut map)) = serde_json::from_str(&line[begins..]) else {
            return line.to_owned();
        };
        map.retain(|name, _| !clocks(name));
        format!("{}{}", &line[..begins], Value::Object(map))
    };
    body.lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn updated_stream_replays_byte_for_byte_in_every_dialect() {
    for path in DIALECTS {
        let rig = Rig::gated(fake(), kept());
        let mut ask = completion(&json!({"stream": true, "max_tokens": 30, "temperature": 1}));
        let fields = ask.as_object_mut().unwrap();
        match path {
            "/v1/responses" => {
                fields.remove("prompt");
                fields.remove("max_tokens");
                fields.insert("input".to_owned(), json!("hi"));
                fields.insert("max_output_tokens".to_owned(), json!(30));
            }
            "/api/chat" | "/v1/messages" | "/v1/chat/completions" => {
                fields.remove("prompt");
                let said = json!([{"role": "user", "content": "hi"}]);
                fields.insert("messages".to_owned(), said);
            }
            _ => {}
        }
        if path.starts_with("/api") {
            let options = json!({"temperature": 1, "num_predict": 30});
            fields.insert("options".to_owned(), options);
        }
        fields.insert("model".to_owned(), json!(crate::support::MODEL));
        let mut client = send(&rig, "POST", path, RESUMABLE, &ask);
        let id = stream_id(&client.head());
        rig.gate.allow(4);
        wait_until("it has tokens", || {
            shown(&rig, &id)["completion_tokens"] == 4
        });
        let order = json!({"text": "XYZ", "temperature": 0});
        assert_eq!(tell(&rig, &id, &order).head.status, 200, "{path}");
        rig.gate.open();
        wait_until("it ends", || shown(&rig, &id)["state"] == "ended");
        let live: String = std::iter::from_fn(|| client.chunk()).collect();
        let again = || timeless(&get(&rig, &format!("/v1/streams/{id}/events"), "").body);
        let first = again();
        assert_eq!(first, again(), "{path}: told again and again");
        // The client was told it as it came, perhaps in other pieces.
        assert!(live.len() > 30, "{path}: {live}");
        assert!(first.contains("XYZ"), "{path}: {first}");
        // And so does every other dialect that it is read in.
        for dialect in [
            "native.job",
            "openai.chat",
            "openai.completions",
            "anthropic.messages",
        ] {
            let read = || {
                let path = format!("/v1/streams/{id}/events?dialect={dialect}");
                timeless(&get(&rig, &path, "").body)
            };
            assert_eq!(read(), read(), "{path} as {dialect}");
        }
    }
}

#[test]
fn updates_are_in_the_description_of_the_stream() {
    let rig = Rig::gated(fake(), kept());
    let id = begun(&rig);
    assert!(shown(&rig, &id)["control"].is_null(), "nothing yet");
    for order in [
        json!({"temperature": 0.5, "top_k": 3, "text": "XYZ"}),
        json!({"tokens": [999_999]}), // refused, and not told
        json!({"pause": true}),
        json!({"pause": false, "stop": true}),
    ] {
        tell(&rig, &id, &order);
    }
    rig.gate.open();
    wait_until("it ends", || shown(&rig, &id)["state"] == "ended");
    let told = shown(&rig, &id)["control"].clone();
    assert_eq!(told["told"], 3);
    let mut last = told["last"].as_array().unwrap().clone();
    for order in &mut last {
        assert!(order.as_object_mut().unwrap().remove("age_ms").is_some());
        let after = order.as_object_mut().unwrap().remove("after_tokens");
        assert!(after.unwrap().as_u64().unwrap() >= 4);
    }
    assert_eq!(
        last,
        [
            json!({"temperature": 0.5, "top_k": 3, "injected": 3}),
            json!({"pause": true}),
            json!({"pause": false, "stop": true}),
        ]
    );
}
