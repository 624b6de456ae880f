//! The binary before its model is there.

mod support;

use std::process::{Command, Stdio};
use support::{Folder, Serving, synth};

/// A file that cannot be opened to its end: whoever reads it waits for somebody to write.
fn pipe(folder: &Folder) -> String {
    let path = folder.0.join("slow.gguf").display().to_string();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path
}

#[test]
fn it_listens_before_the_model_is_there_and_stops_when_told() {
    let folder = Folder::new("early");
    let args = ["serve", &pipe(&folder), "--bind", "127.0.0.1:0"];
    let serving = Serving::early(&args, &[], Stdio::null());
    let ready = serving.get("/v1/ready");
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.contains("\r\nretry-after: "), "{ready}");
    assert!(ready.contains("\"state\":\"loading\""), "{ready}");
    assert!(serving.get("/health/liveness").starts_with("HTTP/1.1 200"));
    let asked = serving.post("/v1/completions", r#"{"prompt":"A","max_tokens":4}"#);
    assert!(asked.starts_with("HTTP/1.1 503"), "{asked}");
    assert!(asked.contains("model_loading"), "{asked}");
    assert!(serving.terminate().success(), "nobody waits for the model");
}

#[test]
fn a_model_that_cannot_be_loaded_ends_it_and_says_why() {
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
fn what_is_not_there_is_said_before_anything_is_bound() {
    let folder = Folder::new("absent");
    let path = folder.0.join("none.gguf").display().to_string();
    let output = support::millrace(&["serve", &path, "--bind", "127.0.0.1:0"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("none.gguf"), "{said}");
}
