//! What is told where there is no answer, or not yet.

use super::{CHAT, GENERATE, chat, lines};
use crate::support::client::{Client, get, post};
use crate::support::named::{call, send, stream_id};
use crate::support::{Rig, config, fake};
use engine::fake::{FakeConfig, Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::ServerConfig;
use std::time::Duration;

/// What is asked for, the status, and a word of the error.
fn refused() -> Vec<(&'static str, Value, u16, &'static str)> {
    let mut unknown = chat(&json!({}), &json!({}));
    unknown["model"] = json!("nobody");
    vec![
        (CHAT, unknown, 404, "model 'nobody' not found"),
        (
            CHAT,
            chat(&json!({}), &json!({"temperature": 9})),
            400,
            "options.temperature",
        ),
        (
            CHAT,
            chat(&json!({"format": "xml"}), &json!({})),
            400,
            "format: must be",
        ),
        (
            CHAT,
            chat(&json!({"tools": [{}]}), &json!({})),
            400,
            "tools[0].function: must be an object",
        ),
        (
            CHAT,
            chat(
                &json!({"messages": [{"role": "user", "content": "a", "attachments": ["AAAA"]}]}),
                &json!({}),
            ),
            400,
            "messages[0].attachments: is not read here: images are base64 in images",
        ),
        ("/api/show", json!({}), 400, "model: is required"),
        ("/api/show", json!({"model": "nobody"}), 404, "not found"),
        ("/api/pull", json!({"model": "x"}), 501, "not supported"),
        ("/api/embed", json!({"input": 3}), 400, "input: must be"),
        (
            "/api/embeddings",
            json!({"prompt": 3}),
            400,
            "prompt: must be",
        ),
        ("/api/create", json!({"model": "x"}), 501, "not supported"),
        (
            "/api/copy",
            json!({"source": "a", "destination": "b"}),
            501,
            "not supported",
        ),
        ("/api/nothing", json!({}), 404, "unknown path"),
    ]
}

#[test]
fn error_before_the_first_line() {
    let rig = Rig::start();
    for (path, body, status, words) in refused() {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, status, "{path}: {}", reply.body);
        assert_eq!(reply.head.get("content-type"), Some("application/json"));
        let told = reply.json();
        let error = told["error"].as_str().expect("a text");
        assert!(error.contains(words), "{path}: {error}");
    }
}

/// Promise (Images): agents send the images of results and earlier answers again, which does not end the conversation with a
/// model that reads text only: they are left out, and named; an image of the user is an error.
#[test]
fn images_of_results_are_left_out_and_named() {
    let rig = Rig::start();
    let ask = |role: &str| {
        let call = json!({"function": {"name": "f", "arguments": {}}});
        let messages = json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": role, "content": "b", "images": ["AAAA"]},
            {"role": "user", "content": "c"},
        ]);
        post(
            rig.addr,
            CHAT,
            &chat(&json!({"messages": messages}), &json!({})),
        )
    };
    for role in ["tool", "assistant"] {
        let reply = ask(role);
        assert_eq!(reply.head.status, 200, "{role}: {}", reply.body);
        let named = reply.head.get("x-millrace-ignored-fields");
        assert_eq!(named, Some("messages.image"), "{role}");
    }
    let reply = ask("user");
    assert_eq!(reply.head.status, 400, "{}", reply.body);
    assert!(
        reply.body.contains("messages[2].images[0]"),
        "{}",
        reply.body
    );
}

#[test]
fn error_after_the_first_line_is_the_last_line() {
    let faulty = FakeConfig {
        faults: vec![Fault {
            at: FaultAt::Call(4),
            kind: FaultKind::NotFinite,
        }],
        ..fake()
    };
    let rig = Rig::with(faulty, config());
    let reply = post(
        rig.addr,
        CHAT,
        &chat(&json!({}), &json!({"num_predict": 9})),
    );
    let told = lines(&reply);
    let last = told.last().unwrap();
    assert_eq!(last["code"], "inference_failed", "{}", reply.body);
    let error = last["error"].as_str().unwrap();
    assert!(
        error.starts_with("the model failed on this request: its logits are NaN"),
        "{error}"
    );
    assert!(last["eval_count"].as_u64().unwrap() > 0);
    assert!(
        told.iter().all(|line| line["done"] != true),
        "no second ending"
    );
}

#[test]
fn cancelled_chat() {
    let rig = Rig::gated(fake(), config());
    let mut client = send(
        &rig,
        "POST",
        CHAT,
        "",
        &chat(&json!({}), &json!({"num_predict": 99})),
    );
    rig.gate.allow(2);
    let head = client.head();
    assert!(client.chunk().unwrap().contains("hello"));
    let path = format!("/v1/streams/{}", stream_id(&head));
    assert_eq!(
        call(&rig, "DELETE", &path, "", &Value::Null).head.status,
        202
    );
    rig.gate.open();
    let rest = client.body();
    let last = rest.lines().last().unwrap();
    assert!(
        last.starts_with(r#"{"error":"the request was cancelled","code":"cancelled""#),
        "{rest}"
    );
}

#[test]
fn queued_request_gets_keep_alive_lines() {
    let brief = ServerConfig {
        keep_alive: Duration::from_millis(20),
        ..config()
    };
    let rig = Rig::gated(fake(), brief);
    let mut client = send(&rig, "POST", CHAT, "", &chat(&json!({}), &json!({})));
    rig.gate.allow(1);
    client.head();
    let mut told = String::new();
    while !told.contains("\"content\":\"\"") {
        told += &client.chunk().expect("it waits");
    }
    rig.gate.open();
    told += &client.body();
    let said: String = told
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["message"]["content"].clone()
        })
        .map(|piece| piece.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, "hellohellohello");
}

#[test]
fn tags_show_and_version_routes() {
    let rig = Rig::start();
    let root = get(rig.addr, "/");
    assert!(root.body.starts_with("Ollama is running"), "{}", root.body);
    assert_eq!(send(&rig, "HEAD", "/", "", &Value::Null).head().status, 200);
    let version = get(rig.addr, "/api/version").json();
    assert_eq!(version["version"].as_str().unwrap().split('.').count(), 3);
    let tags = get(rig.addr, "/api/tags").json();
    assert_eq!(tags["models"].as_array().unwrap().len(), 1);
    let tag = &tags["models"][0];
    assert_eq!(
        (&tag["name"], &tag["model"]),
        (&json!("fake:latest"), &json!("fake:latest"))
    );
    assert_eq!(tag["digest"].as_str().unwrap().len(), 64);
    let ps = get(rig.addr, "/api/ps").json();
    let running = &ps["models"][0];
    assert_eq!(
        (&running["name"], &running["context_length"]),
        (&json!("fake:latest"), &json!(512))
    );
    for name in ["fake", "fake:latest"] {
        let shown = post(rig.addr, "/api/show", &json!({"model": name})).json();
        assert_eq!(
            shown["capabilities"],
            json!(["completion", "tools", "thinking"])
        );
        assert_eq!(shown["details"]["format"], "gguf");
        let mut body = chat(&json!({"stream": false}), &json!({}));
        body["model"] = json!(name);
        assert_eq!(post(rig.addr, CHAT, &body).head.status, 200);
    }
}

#[test]
fn empty_prompt_loads_and_unloads() {
    let rig = Rig::start();
    for (path, field) in [(CHAT, "message"), (GENERATE, "response")] {
        let told = post(
            rig.addr,
            path,
            &json!({"model": "fake", "keep_alive": "5m"}),
        )
        .json();
        assert_eq!(
            (&told["done"], &told["done_reason"]),
            (&json!(true), &json!("load"))
        );
        assert!(told.get(field).is_some());
        let go = post(rig.addr, path, &json!({"model": "fake", "keep_alive": 0}));
        assert_eq!(go.head.status, 501, "{}", go.body);
        let unknown = post(rig.addr, path, &json!({"model": "nobody"}));
        assert_eq!(unknown.head.status, 404);
    }
}

/// As curl posts, and as pages post without asking.
#[test]
fn content_type_is_required_from_browsers_only() {
    let rig = Rig::start();
    let body = chat(&json!({"stream": false}), &json!({})).to_string();
    let posted = |fields: &str| {
        let mut client = Client::connect(rig.addr);
        let length = body.len();
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\r\n"
        );
        client.send((head + &body).as_bytes());
        client.reply().head.status
    };
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let json = "content-type: application/json\r\n";
    let origin = "origin: http://example.com\r\n";
    assert_eq!(posted(form), 200);
    assert_eq!(posted(""), 200);
    assert_eq!(posted(&format!("{form}{origin}")), 403);
    assert_eq!(posted(&format!("{form}origin: http://localhost\r\n")), 415);
    assert_eq!(
        posted(&format!("{form}sec-fetch-site: cross-site\r\n")),
        415
    );
    assert_eq!(posted(&format!("{json}{origin}")), 200);
}
