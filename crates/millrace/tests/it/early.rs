//! The binary before its model is there.
//!
//! Promise (Hostile input and memory): a system that has no thread left ends the start with an error message, not a
//! bug report.
//!
//! Promise (Hostile input and memory): settings and keys are read from regular files only, outside the I/O threads.
//! Also held by `millrace/tests/it/reload.rs`.

use crate::support::{Folder, Serving, synth};
use std::process::{Command, Stdio};

#[test]
fn server_listens_before_its_model_is_loaded() {
    let folder = Folder::new("early");
    let args = ["serve", &synth(&folder), "--bind", "127.0.0.1:0"];
    let mut serving = Serving::early(&args, &[], Stdio::null());
    loop {
        let ready = serving.get("/v1/ready");
        if ready.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        assert!(ready.contains("\r\nretry-after: "), "{ready}");
        assert!(!ready.contains("failed"), "{ready}");
        assert!(serving.get("/health/liveness").starts_with("HTTP/1.1 200"));
    }
    assert!(serving.line().contains(" serves "));
    let asked = serving.post("/v1/completions", r#"{"prompt":"A","max_tokens":4}"#);
    assert!(asked.starts_with("HTTP/1.1 200"), "{asked}");
    assert!(serving.terminate().success());
}

#[test]
fn loading_server_stops_on_request() {
    let folder = Folder::new("told");
    let args = ["serve", &synth(&folder), "--bind", "127.0.0.1:0"];
    let serving = Serving::early(&args, &[], Stdio::null());
    assert!(serving.terminate().success(), "nobody waits for the model");
}

#[test]
fn model_path_must_be_a_regular_file() {
    let folder = Folder::new("pipe");
    let path = folder.0.join("pipe.gguf").display().to_string();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let output = crate::support::millrace(&["serve", &path, "--bind", "127.0.0.1:0"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("not a regular file"), "{said}");
}

#[test]
fn thread_creation_failure_is_reported_as_a_system_limit() {
    // No stack of this size can be had, so no thread that does not ask for another.
    let vars = [("RUST_MIN_STACK", "70368744177664")];
    let rows: [(&[&str], &str); 2] = [
        (&["serve", "--bind", "127.0.0.1:0"], "I/O threads"),
        (&["run", "--threads", "2", "hi"], "\"kernel-1\""),
    ];
    for (args, named) in rows {
        let output = crate::support::millrace_with(args, &vars);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(
            last.contains(named) && last.contains("ulimit -u"),
            "{args:?}: {said}"
        );
        assert!(
            !said.contains("panicked") && !said.contains("a bug"),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn settings_and_keys_must_be_regular_files() {
    let folder = Folder::new("settings-pipe");
    let pipe = folder.0.join("pipe").display().to_string();
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for (flag, path) in [
        ("--config", pipe.as_str()),
        ("--keys", &pipe),
        ("--config", "/dev/zero"),
        ("--keys", "/dev/zero"),
    ] {
        let output = crate::support::millrace(&["serve", "--bind", "127.0.0.1:0", flag, path]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flag} {path}: {said}");
        let named = said.contains(path) && said.contains("must be a regular file");
        assert!(named, "{flag} {path}: {said}");
    }
}

#[test]
fn failed_load_ends_the_server_with_its_reason() {
    let folder = Folder::new("broken");
    let cut = folder.0.join("cut.gguf");
    std::fs::write(&cut, &std::fs::read(synth(&folder)).unwrap()[..5000]).unwrap();
    let log = folder.0.join("log");
    let args = ["serve", &cut.display().to_string(), "--bind", "127.0.0.1:0"];
    let mut serving = Serving::early(&args, &[], std::fs::File::create(&log).unwrap());
    assert_eq!(serving.line(), "", "it never says that it serves");
    assert!(!serving.left().success());
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(
        said.contains("cut.gguf") && !said.contains("panicked"),
        "{said}"
    );
}

#[test]
fn missing_file_is_reported_before_binding() {
    let folder = Folder::new("absent");
    let path = folder.0.join("none.gguf").display().to_string();
    let output = crate::support::millrace(&["serve", &path, "--bind", "127.0.0.1:0"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("none.gguf"), "{said}");
}
