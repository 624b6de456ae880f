//! What changes which models there are.

use super::shelf::Rig;
use crate::support::client::{Client, get, post};
use crate::support::wait_until;
use serde_json::{Value, json};
use server::ModelLimits;

#[test]
fn pull_reports_progress() {
    let rig = Rig::start(ModelLimits::default());
    for _ in 0..3 {
        rig.pulls.send(()).unwrap();
    }
    let reply = post(rig.addr, "/api/pull", &json!({"model": "x"}));
    assert_eq!(reply.head.get("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = reply
        .body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let first = &lines[0];
    assert_eq!(
        (&first["status"], &first["total"], &first["completed"]),
        (&json!("pulling abababababab"), &json!(100), &json!(0))
    );
    assert_eq!(first["digest"], format!("sha256:{}", "ab".repeat(32)));
    let statuses: Vec<_> = lines
        .iter()
        .rev()
        .take(3)
        .map(|line| &line["status"])
        .collect();
    assert_eq!(
        statuses,
        ["success", "verifying sha256 digest", "pulling abababababab"]
    );
    let last = post(rig.addr, "/api/pull", &json!({"model": "nobody"}));
    assert_eq!(last.body.lines().count(), 1);
    assert_eq!(last.json()["error"], "model 'nobody' not found");
    let whole = post(
        rig.addr,
        "/api/pull",
        &json!({"model": "nobody", "stream": false}),
    );
    assert_eq!(whole.head.status, 404);
}

#[test]
fn unwatched_pull_is_abandoned_and_pulls_are_limited_to_two() {
    let rig = Rig::start(ModelLimits::default());
    let mut clients: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = Client::connect(rig.addr);
            client.post("/api/pull", &json!({"model": "x"}));
            assert_eq!(client.head().status, 200);
            client
        })
        .collect();
    let refused = post(rig.addr, "/api/pull", &json!({"model": "x"}));
    assert_eq!(
        (refused.head.status, &refused.json()["code"]),
        (503, &json!("overloaded"))
    );
    clients.clear();
    let only_ours = "\nmillrace_connections_open 1\n";
    wait_until("they are seen to have left", || {
        get(rig.addr, "/metrics").body.contains(only_ours)
    });
    wait_until("both are abandoned", || {
        let _ = rig.pulls.try_send(());
        rig.log() == ["abandoned", "abandoned"]
    });
}

#[test]
fn models_are_created_copied_and_deleted() {
    let rig = Rig::start(ModelLimits::default());
    let made = json!({
        "model": "short", "from": "a", "system": "Be brief.", "parameters": {"temperature": 0.5, "stop": ["x"]},
    });
    let reply = post(rig.addr, "/api/create", &made);
    assert_eq!(
        reply.body,
        "{\"status\":\"writing manifest\"}\n{\"status\":\"success\"}\n"
    );
    let copied = post(
        rig.addr,
        "/api/copy",
        &json!({"source": "a", "destination": "c"}),
    );
    assert_eq!(copied.head.status, 200);
    let mut client = Client::connect(rig.addr);
    let body = json!({"model": "b"}).to_string();
    let head = format!(
        "DELETE /api/delete HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send((head + &body).as_bytes());
    assert_eq!(client.reply().head.status, 200);
    let want = [
        "make short of a: Be brief. {\"temperature\":0.5,\"stop\":[\"x\"]}",
        "copy a c",
        "delete b",
    ];
    assert_eq!(rig.log(), want);
    for (body, words) in [
        (json!({"model": "x"}), "from: is required"),
        (json!({"from": "a"}), "model: is required"),
        (
            json!({"model": "x", "from": "a", "parameters": {"temperature": 9}}),
            "parameters.temperature",
        ),
        (
            json!({"model": "x", "from": "a", "parameters": []}),
            "parameters: must be an object",
        ),
        (
            json!({"model": "x", "from": "a", "template": "{{ range .Messages }}"}),
            "template",
        ),
        (
            json!({"model": "x", "files": {"a.gguf": "sha256:00"}}),
            "files: `from` must name a local model",
        ),
    ] {
        let refused = post(rig.addr, "/api/create", &body);
        assert_eq!(refused.head.status, 400, "{}", refused.body);
        assert!(refused.body.contains(words), "{words}: {}", refused.body);
    }
}

#[test]
fn defaults_of_a_derived_model_apply() {
    let rig = Rig::start(ModelLimits::default());
    rig.allow();
    let count = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}],
                          "stream": false, "options": {"num_predict": 1}});
        let told = post(rig.addr, "/api/chat", &body).json();
        assert_eq!(told["model"], model);
        told["prompt_eval_count"].as_u64().unwrap()
    };
    assert!(count("made") > count("a"), "it says more than was typed");
    assert_eq!(rig.log(), ["loading a"], "of the same weights");
    let shown = post(rig.addr, "/api/show", &json!({"model": "made"})).json();
    assert_eq!(shown["system"], "You are made.");
    assert_eq!(shown["details"]["parent_model"], "a");
    let file = shown["modelfile"].as_str().unwrap();
    assert!(
        file.contains("FROM a:latest\nSYSTEM \"\"\"You are made.\"\"\""),
        "{file}"
    );
}
