//! Responses that are kept: shown, gone on from, cancelled, forgotten; each its owner's alone.

use super::{RESPONSES, code, create, delete, ended, hello, path_of, text_of};
use crate::support::client::{get, post};
use crate::support::named::{call, fake as endless, send, with};
use crate::support::owners::{call_as, owners_rig};
use crate::support::{Rig, config, fake};
use serde_json::{Value, json};
use server::{ResponseLimits, ServerConfig, StreamLimits};

fn limited(stored_max: usize, stored_bytes: usize) -> ServerConfig {
    ServerConfig {
        responses: ResponseLimits {
            stored_max,
            stored_bytes,
        },
        ..config()
    }
}

#[test]
fn stored_response_is_returned_until_deleted() {
    let rig = Rig::start();
    for stream in [false, true] {
        let reply = create(&rig, &json!({"stream": stream}));
        let stream = reply.head.get("x-stream-id").expect("a name");
        let path = format!("{RESPONSES}/resp_{stream}");
        let shown = get(rig.addr, &path);
        assert_eq!(shown.head.status, 200);
        assert!(reply.body.contains(&shown.body), "{}", shown.body);
        let deleted = delete(&rig, &path);
        assert_eq!(deleted.head.status, 200);
        assert_eq!(deleted.json()["deleted"], true);
        for reply in [get(rig.addr, &path), delete(&rig, &path)] {
            assert_eq!(code(&reply), (404, "response_not_found".to_owned()));
        }
    }
    let unkept = create(&rig, &json!({"store": false})).json();
    assert_eq!(get(rig.addr, &path_of(&unkept)).head.status, 404);
    rig.wait_until_empty();
}

#[test]
fn counted_tokens_equal_the_usage_of_the_response() {
    let rig = Rig::start();
    let first = create(&rig, &json!({})).json();
    for (over, status) in [
        (json!({}), 200),
        (json!({"instructions": "be brief", "input": "abc"}), 200),
        (
            json!({"previous_response_id": first["id"], "input": "x"}),
            200,
        ),
        (json!({"previous_response_id": "resp_nobody's"}), 400),
        (json!({"input": 7}), 400),
    ] {
        let path = format!("{RESPONSES}/input_tokens");
        let counted = post(rig.addr, &path, &hello(&over));
        assert_eq!(counted.head.status, status, "{over}: {}", counted.body);
        if status == 200 {
            let want = create(&rig, &over).json()["usage"]["input_tokens"].clone();
            let told = json!({"object": "response.input_tokens", "input_tokens": want});
            assert_eq!(counted.json(), told, "{over}");
        } else {
            assert!(counted.json()["error"]["message"].is_string(), "{over}");
        }
    }
    // More than any answer could have.
    let long = hello(&json!({"input": "x".repeat(100_000)}));
    let counted = post(rig.addr, &format!("{RESPONSES}/input_tokens"), &long);
    assert_eq!(counted.json()["input_tokens"], 100_000);
}

#[test]
fn previous_response_is_continued() {
    let rig = Rig::start();
    let first = create(&rig, &json!({"instructions": "not carried on"})).json();
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "abc"}]},
        {"type": "message", "role": "developer", "content": "de"},
    ]);
    let over = json!({"previous_response_id": first["id"], "input": input, "stream": true});
    let second = create(&rig, &over);
    let id = format!("resp_{}", second.head.get("x-stream-id").expect("a name"));
    // hi, what was said, abc, de.
    let tokens = 2 + text_of(&first).len() + 3 + 2;
    assert!(
        second.body.contains(&format!("\"input_tokens\":{tokens},")),
        "{}",
        second.body
    );
    let third = create(&rig, &json!({"previous_response_id": id, "input": "x"})).json();
    let tokens = tokens + "hellohellohello".len() + 1;
    assert_eq!(third["usage"]["input_tokens"], tokens);
    assert_eq!(third["previous_response_id"], id);
    // A conversation is as long as all of its responses.
    delete(&rig, &path_of(&first));
    let over = hello(&json!({"previous_response_id": third["id"]}));
    let refused = post(rig.addr, RESPONSES, &over);
    let error = refused.json()["error"].clone();
    assert_eq!(
        code(&refused),
        (400, "previous_response_not_found".to_owned())
    );
    assert_eq!(error["param"], "previous_response_id");
}

#[test]
fn function_calls_and_their_outputs_are_parsed() {
    let rig = Rig::start();
    let input = json!([
        {"role": "user", "content": "a"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hidden"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
        {"type": "function_call_output", "call_id": "c1", "output": "bc"},
    ]);
    let told = create(&rig, &json!({"input": input})).json();
    let contents = "abc".len() as u64;
    let tokens = told["usage"]["input_tokens"].as_u64();
    assert!(
        tokens > Some(contents),
        "the call is in the prompt, though this template shows contents alone"
    );
    let page = get(
        rig.addr,
        &format!("{}/input_items?order=asc", path_of(&told)),
    )
    .json();
    let kinds: Vec<_> = page["data"]
        .as_array()
        .expect("items")
        .iter()
        .map(|i| &i["type"])
        .collect();
    assert_eq!(
        kinds,
        [
            "message",
            "reasoning",
            "function_call",
            "function_call_output"
        ]
    );
    assert_eq!(page["data"][1]["id"], "rs_1", "its own");
}

#[test]
fn input_items_are_paginated() {
    let rig = Rig::start();
    let input: Vec<Value> = (0..5)
        .map(|i| json!({"role": "user", "content": i.to_string()}))
        .collect();
    let told = create(&rig, &json!({"input": input})).json();
    let path = format!("{}/input_items", path_of(&told));
    let texts = |page: &Value| -> String {
        let data = page["data"].as_array().expect("items").iter();
        data.map(|item| item["content"][0]["text"].as_str().expect("text"))
            .collect()
    };
    let page = get(rig.addr, &path).json();
    assert_eq!(
        (texts(&page).as_str(), &page["has_more"]),
        ("43210", &json!(false))
    );
    let page = get(rig.addr, &format!("{path}?order=asc&limit=2")).json();
    assert_eq!(
        (texts(&page).as_str(), &page["has_more"]),
        ("01", &json!(true))
    );
    assert_eq!(page["data"][0]["id"], page["first_id"]);
    let last = page["last_id"].as_str().expect("an id");
    let page = get(rig.addr, &format!("{path}?order=asc&limit=9&after={last}")).json();
    assert_eq!(
        (texts(&page).as_str(), &page["has_more"]),
        ("234", &json!(false))
    );
    for query in ["limit=101", "order=up", "after=nobody"] {
        assert_eq!(
            get(rig.addr, &format!("{path}?{query}")).head.status,
            400,
            "{query}"
        );
    }
    let one = create(&rig, &json!({})).json();
    let page = get(rig.addr, &format!("{}/input_items", path_of(&one))).json();
    assert_eq!(texts(&page), "hi");
}

#[test]
fn background_response_returns_at_once() {
    let few = StreamLimits {
        detached_tokens: 0,
        ..StreamLimits::default()
    };
    let narrow = ServerConfig {
        credit_window: 4,
        ..with(few)
    };
    let rig = Rig::gated(endless(), narrow);
    let over = json!({"background": true, "max_output_tokens": 60});
    let told = create(&rig, &over).json();
    assert!(
        matches!(told["status"].as_str(), Some("queued" | "in_progress")),
        "{told}"
    );
    assert_eq!(
        (&told["background"], &told["usage"]),
        (&json!(true), &Value::Null)
    );
    let path = path_of(&told);
    rig.gate.allow(3);
    super::wait_until("some of it is there", || {
        let now = get(rig.addr, &path).json();
        now["status"] == "in_progress" && now["output"][0]["status"] == "in_progress"
    });
    let over = hello(&json!({"previous_response_id": told["id"]}));
    let early = post(rig.addr, RESPONSES, &over);
    assert_eq!(
        code(&early),
        (400, "previous_response_in_progress".to_owned())
    );
    rig.gate.open();
    let told = ended(&rig, &path);
    assert_eq!(told["status"], "incomplete");
    assert_eq!(
        text_of(&told),
        "hello".repeat(60),
        "further than any credit"
    );
}

#[test]
fn running_response_is_cancelled() {
    let rig = Rig::gated(endless(), config());
    let over = json!({"background": true, "max_output_tokens": 400});
    let told = create(&rig, &over).json();
    let path = path_of(&told);
    rig.gate.allow(3);
    super::wait_until("some of it is there", || {
        get(rig.addr, &path).json()["output"][0].is_object()
    });
    let mut cancels = send(&rig, "POST", &format!("{path}/cancel"), "", &json!({}));
    // It is answered when it has ended, which takes a step.
    super::wait_until("it ends", || {
        rig.gate.allow(1);
        get(rig.addr, &path).json()["status"] != "in_progress"
    });
    let cancelled = cancels.reply().json();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    assert!(cancelled["error"].is_null(), "{cancelled}");
    assert!(text_of(&cancelled).starts_with("hello"));
    let again = call(&rig, "POST", &format!("{path}/cancel"), "", &json!({})).json();
    assert_eq!(again, cancelled, "what has ended stays as it is");
    assert_eq!(get(rig.addr, &path).json(), cancelled);
    delete(&rig, &path);
    // One that is deleted is stopped, and nothing is left of it.
    let told = create(&rig, &over).json();
    rig.gate.open();
    delete(&rig, &path_of(&told));
    rig.wait_until_empty();
}

#[test]
fn response_of_a_disconnected_client_is_cancelled() {
    let rig = Rig::gated(endless(), config());
    let mut client = crate::support::client::Client::connect(rig.addr);
    client.post(
        RESPONSES,
        &hello(&json!({"stream": true, "max_output_tokens": 60})),
    );
    let stream = client.head().get("x-stream-id").expect("a name").to_owned();
    client.chunk().expect("it begins");
    drop(client);
    let only_ours = "\nmillrace_connections_open 1\n";
    let metrics = || get(rig.addr, "/metrics").body;
    super::wait_until("it is seen to have left", || metrics().contains(only_ours));
    rig.gate.open();
    let told = ended(&rig, &format!("{RESPONSES}/resp_{stream}"));
    assert_eq!(told["status"], "cancelled", "{told}");
}

#[test]
fn least_recently_used_response_is_evicted() {
    let rig = Rig::with(fake(), limited(3, 1 << 20));
    let ids: Vec<Value> = (0..3).map(|_| create(&rig, &json!({})).json()).collect();
    let there = |response: &Value| get(rig.addr, &path_of(response)).head.status;
    // Who asks uses it; the first is used last.
    for at in [1, 2, 0] {
        assert_eq!(there(&ids[at]), 200);
    }
    create(&rig, &json!({}));
    let there: Vec<u16> = ids.iter().map(there).collect();
    assert_eq!(there, [200, 404, 200]);
    let rig = Rig::with(fake(), limited(100, 12_000));
    for _ in 0..4 {
        let told = create(&rig, &json!({"input": "x".repeat(400)})).json();
        assert_eq!(get(rig.addr, &path_of(&told)).head.status, 200);
    }
}

#[test]
fn store_full_of_running_responses_is_full() {
    let rig = Rig::gated(endless(), limited(1, 1 << 20));
    let first = create(&rig, &json!({"background": true})).json();
    let refused = post(rig.addr, RESPONSES, &hello(&json!({"background": true})));
    assert_eq!(code(&refused), (503, "response_store_full".to_owned()));
    rig.gate.open();
    ended(&rig, &path_of(&first));
    let whole = create(&rig, &json!({}));
    assert_eq!(whole.json()["status"], "incomplete", "the other made room");
}

#[test]
fn responses_are_invisible_to_other_owners() {
    let rig = owners_rig();
    let ask = |owner: &str, method: &str, path: &str, body: &Value| {
        call_as(&rig, owner, method, path, body)
    };
    let told = ask("one", "POST", RESPONSES, &hello(&json!({}))).json();
    let path = path_of(&told);
    let statuses = |who: &str| {
        let cancel = format!("{path}/cancel");
        let items = format!("{path}/input_items");
        let rows = [("GET", &path), ("GET", &items), ("POST", &cancel)];
        rows.map(|(method, path)| ask(who, method, path, &Value::Null).head.status)
    };
    assert_eq!(statuses("one"), [200; 3]);
    assert_eq!(statuses("two"), [404; 3]);
    assert_eq!(statuses("admin"), [200; 3]);
    assert_eq!(ask("two", "DELETE", &path, &Value::Null).head.status, 404);
    let over = hello(&json!({"previous_response_id": told["id"]}));
    let refused = ask("two", "POST", RESPONSES, &over);
    assert_eq!(
        code(&refused),
        (400, "previous_response_not_found".to_owned())
    );
    assert_eq!(ask("one", "POST", RESPONSES, &over).head.status, 200);
}
