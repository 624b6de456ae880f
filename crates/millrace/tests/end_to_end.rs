//! The binary as a user runs it: a synthetic model is written, inspected, run and served.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn millrace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn synth(folder: &Folder) -> String {
    let path = folder.0.join("tiny.gguf").display().to_string();
    stdout(&millrace(&[
        "synth",
        &path,
        "--preset",
        "tiny-qwen3",
        "--quant",
        "Q4_0",
    ]));
    path
}

#[test]
fn a_synthetic_model_can_be_inspected_and_run() {
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
fn what_cannot_be_loaded_is_named() {
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

/// A server on a free port, ended by its own pid.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().rsplit("http://").next().unwrap().to_owned();
        Self { child, address }
    }

    fn post(&self, path: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        reply
    }

    fn terminate(mut self) -> std::process::ExitStatus {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap()
    }
}

#[test]
fn a_stream_is_served_and_the_server_stops_when_told() {
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
fn without_a_model_a_synthetic_one_streams() {
    let serving = Serving::start(&["serve", "--bind", "127.0.0.1:0"]);
    let reply = serving.post("/v1/completions", r#"{"prompt":"A","max_tokens":4}"#);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(serving.terminate().success());
}

#[test]
fn an_open_address_without_keys_is_refused() {
    let output = millrace(&["serve", "--bind", "0.0.0.0:0"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-auth"));
}
