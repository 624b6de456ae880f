//! The binary as a user runs it: a synthetic model is written, inspected, run and served.

use crate::support::{Folder, Serving, millrace, stdout, synth};
use std::path::Path;

#[test]
fn synthetic_model_is_inspected_and_run() {
    let folder = Folder::new("run");
    let model = synth(&folder);
    let shown = stdout(&millrace(&["inspect", &model, "--tensors"]));
    assert!(shown.contains("runs here: qwen3"), "{shown}");
    assert!(shown.contains("blk.0.attn_q_norm.weight"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&millrace(&["inspect", &model, "--json"]))).unwrap();
    assert_eq!(json["metadata"]["general.architecture"], "qwen3");
    let ask = |seed| {
        stdout(&millrace(&[
            "run", &model, "Hello", "-n", "12", "--seed", seed,
        ]))
    };
    assert_eq!(ask("1"), ask("1"));
    assert_ne!(ask("1"), ask("2"));
}

#[test]
fn invalid_model_file_is_named() {
    let folder = Folder::new("bad");
    let cut = folder.0.join("cut.gguf");
    std::fs::write(&cut, &std::fs::read(synth(&folder)).unwrap()[..5000]).unwrap();
    let two = folder.0.join("two");
    std::fs::create_dir_all(&two).unwrap();
    for name in ["a.gguf", "b.gguf"] {
        std::fs::write(two.join(name), b"GGUF").unwrap();
    }
    let rows: [(&str, &Path, &str); 4] = [
        ("no such file", &folder.0.join("none.gguf"), "none.gguf"),
        ("truncated", &cut, "cut.gguf"),
        ("which of two", &two, "a, b"),
        ("not a model", &folder.0.join("tiny.gguf/x"), "tiny.gguf"),
    ];
    for (label, path, named) in rows {
        let output = millrace(&["run", &path.display().to_string(), "Hello"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{label}");
        assert!(
            said.contains(named) && !said.contains("panicked"),
            "{label}: {said}"
        );
    }
}

#[test]
fn stream_is_served_and_the_server_stops_on_request() {
    let folder = Folder::new("serve");
    let serving = Serving::start(&["serve", &synth(&folder), "--bind", "127.0.0.1:0"]);
    let ask =
        r#"{"messages":[{"role":"user","content":"Hello"}],"max_tokens":8,"seed":1,"stream":true}"#;
    let reply = serving.post("/v1/chat/completions", ask);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(
        reply.contains("text/event-stream") && reply.contains("data: [DONE]"),
        "{reply}"
    );
    let refused = serving.post(
        "/v1/chat/completions",
        r#"{"messages":[],"temperature":-1}"#,
    );
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    assert!(
        refused.contains("messages") && refused.contains("temperature"),
        "{refused}"
    );
    assert!(serving.terminate().success());
}

#[test]
fn built_in_model_streams_without_a_model_argument() {
    let serving = Serving::start(&["serve", "--bind", "127.0.0.1:0"]);
    let reply = serving.post("/v1/completions", r#"{"prompt":"A","max_tokens":4}"#);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(serving.terminate().success());
}

#[test]
fn public_address_without_keys_is_rejected() {
    let output = millrace(&["serve", "--bind", "0.0.0.0:0"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-auth"));
}
