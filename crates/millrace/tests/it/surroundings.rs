//! What surrounds the process: a log that cannot be written, variables that are not UTF-8.
//!
//! Promise (Settings and operation): a log or a standard output that cannot be written ends no request and no server,
//! and the journal keeps up.

use crate::support::{Folder, Serving, command};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use testing::wait::wait_until;

/// A device on which every write fails, as on a full disk.
const FULL: &str = "/dev/full";

#[test]
fn log_that_cannot_be_written_ends_no_request_and_keeps_the_journal() {
    let folder = Folder::new("full-log");
    let journal = folder.0.display().to_string();
    let log = OpenOptions::new().write(true).open(FULL).unwrap();
    let args = ["serve", "--bind", "127.0.0.1:0", "--journal", &journal];
    // Every line of the journal's and of the requests' is one that fails.
    let vars = [("MILLRACE_LOG_FILTER", "trace")];
    let serving = Serving::start_with(&args, &vars, log);
    let ask = r#"{"prompt": "Once", "max_tokens": 9, "ignore_eos": true}"#;
    for _ in 0..3 {
        let reply = serving.post_with("x-stream-resumable: 1\r\n", "/v1/completions", ask);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert!(reply.contains("x-stream-durable: 1"), "{reply}");
    }
    wait_until("the journal has synced everything", || {
        serving.get("/health").contains("\"durable\":true")
    });
    assert!(serving.terminate().success());
}

#[test]
fn output_that_cannot_be_written_ends_no_server() {
    let mut probe = command(&["serve", "--bind", "127.0.0.1:0"]);
    probe.stdout(OpenOptions::new().write(true).open(FULL).unwrap());
    let mut child = probe.stderr(Stdio::piped()).spawn().unwrap();
    let log = std::io::BufReader::new(child.stderr.take().unwrap());
    let lines = std::io::BufRead::lines(log);
    let failed = lines
        .map_while(Result::ok)
        .filter(|line| line.contains("standard output"));
    // Once when it listens and once when it serves.
    assert_eq!(failed.take(2).count(), 2);
    assert!(child.try_wait().unwrap().is_none(), "it serves");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn variables_that_are_not_utf8_are_ignored_or_named() {
    let with = |name: &str| {
        let mut config = command(&["config"]);
        config.env(name, OsStr::from_bytes(b"caf\xe9"));
        config.output().unwrap()
    };
    assert!(with("FOO").status.success());
    let ours = with("MILLRACE_MODEL_NAME");
    let why = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert!(!ours.status.success(), "{why}");
    assert!(why.contains("MILLRACE_MODEL_NAME: must be UTF-8"), "{why}");
}
