//! Which chat completions are stored, for how long, and for whom.

use super::{code, create, ids, path_of, stored, stored_stream};
use crate::support::client::{get, post};
use crate::support::named::{CHAT, RESUMABLE, fake as endless, send};
use crate::support::owners::{call_as, owners_rig};
use crate::support::{Rig, config, fake, wait_until};
use serde_json::{Map, Value, json};
use server::{ResponseLimits, ServerConfig};

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
fn only_completions_that_ended_well_are_visible() {
    let rig = Rig::gated(endless(), config());
    let mut client = send(
        &rig,
        "POST",
        CHAT,
        "",
        &stored_stream(&json!({"max_tokens": 60})),
    );
    let head = client.head();
    assert_eq!(head.status, 200);
    let first = client.chunk().expect("a chunk");
    let chunk: Value = serde_json::from_str(
        first
            .trim()
            .trim_start_matches("data: ")
            .split('\n')
            .next()
            .expect("a line"),
    )
    .expect("JSON");
    let path = path_of(&chunk);
    rig.gate.allow(3);
    assert_eq!(
        get(rig.addr, &path).head.status,
        404,
        "the completion is running"
    );
    assert_eq!(get(rig.addr, CHAT).json()["data"], json!([]));
    // A completion whose client disconnects is cancelled, and never stored.
    drop(client);
    let only_ours = "\nmillrace_connections_open 1\n";
    wait_until("the server notices the disconnect", || {
        get(rig.addr, "/metrics").body.contains(only_ours)
    });
    rig.gate.open();
    rig.wait_until_empty();
    assert_eq!(get(rig.addr, &path).head.status, 404);
    assert_eq!(get(rig.addr, CHAT).json()["data"], json!([]));
    let completed = create(&rig, &json!({}));
    assert_eq!(get(rig.addr, &path_of(&completed)).head.status, 200);
}

#[test]
fn least_recently_used_completion_is_evicted() {
    let rig = Rig::with(fake(), limited(3, 1 << 20));
    let made: Vec<Value> = (0..3).map(|_| create(&rig, &json!({}))).collect();
    let status = |completion: &Value| get(rig.addr, &path_of(completion)).head.status;
    for i in [1, 2, 0] {
        assert_eq!(status(&made[i]), 200);
    }
    // Responses and chat completions share the bounds.
    let body = json!({"input": "hi", "max_output_tokens": 2});
    assert_eq!(post(rig.addr, "/v1/responses", &body).head.status, 200);
    let statuses: Vec<u16> = made.iter().map(status).collect();
    assert_eq!(statuses, [200, 404, 200]);
    // Metadata counts, too.
    let rig = Rig::with(fake(), limited(100, 12_000));
    let made: Vec<Value> = (0..4).map(|_| create(&rig, &json!({}))).collect();
    let metadata: Map<String, Value> = (0..15)
        .map(|i| (i.to_string(), json!("x".repeat(500))))
        .collect();
    let last = path_of(&made[3]);
    assert_eq!(
        post(rig.addr, &last, &json!({"metadata": metadata}))
            .head
            .status,
        200
    );
    assert_eq!(get(rig.addr, &path_of(&made[0])).head.status, 404);
    assert_eq!(get(rig.addr, &last).head.status, 200);
}

#[test]
fn store_full_of_running_completions_is_full() {
    let rig = Rig::gated(endless(), limited(1, 1 << 20));
    let mut first = send(&rig, "POST", CHAT, RESUMABLE, &stored_stream(&json!({})));
    assert_eq!(first.head().status, 200);
    let refused = post(rig.addr, CHAT, &stored(&json!({})));
    assert_eq!(code(&refused), (503, "response_store_full".to_owned()));
    rig.gate.open();
    wait_until("the first one makes room", || {
        post(rig.addr, CHAT, &stored(&json!({}))).head.status == 200
    });
}

#[test]
fn completions_are_invisible_to_other_owners() {
    let rig = owners_rig();
    let ask = |owner: &str, method: &str, path: &str, body: &Value| {
        call_as(&rig, owner, method, path, body)
    };
    let path = path_of(&ask("one", "POST", CHAT, &stored(&json!({}))).json());
    let statuses = |owner: &str| {
        let messages = format!("{path}/messages");
        let update = json!({"metadata": {"by": owner}});
        let rows = [
            ("GET", &path, &Value::Null),
            ("GET", &messages, &Value::Null),
            ("POST", &path, &update),
        ];
        rows.map(|(method, path, body)| ask(owner, method, path, body).head.status)
    };
    assert_eq!(statuses("one"), [200; 3]);
    assert_eq!(statuses("two"), [404; 3]);
    assert_eq!(statuses("admin"), [200; 3]);
    let listed = |owner: &str| ids(&ask(owner, "GET", CHAT, &Value::Null).json()).len();
    assert_eq!(["one", "two", "admin"].map(listed), [1, 0, 1]);
    assert_eq!(ask("two", "DELETE", &path, &Value::Null).head.status, 404);
    assert_eq!(ask("one", "DELETE", &path, &Value::Null).head.status, 200);
}
