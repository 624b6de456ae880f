//! The log of a server: JSON throughout where it was chosen, and no reader is waited for.

use crate::support::{Folder, Serving, command, millrace, millrace_with};
use serde_json::Value;
use std::net::TcpListener;
use std::process::Stdio;

/// More requests than a pipe has room for lines about them.
const REQUESTS: usize = 1200;

#[test]
fn error_of_a_start_is_one_line_of_json() {
    let folder = Folder::new("json-errors");
    let file = |name: &str, text: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let settings = file("settings.yaml", "log: {json: true}\nserver: {bond: 1}\n");
    let broken = file("broken.yaml", "server: [\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = listener.local_addr().unwrap().to_string();
    let rows: [(&str, &[&str], &[(&str, &str)], &str); 9] = [
        (
            "unknown key",
            &["serve", "--config", &settings],
            &[],
            "server.bond",
        ),
        (
            "broken file",
            &["serve", "--config", &broken],
            &[],
            "broken.yaml",
        ),
        (
            "wrong type",
            &["serve"],
            &[("MILLRACE_SERVER_IO_THREADS", "many")],
            "server.io_threads",
        ),
        ("used port", &["serve", "--bind", &used], &[], "server.bind"),
        (
            "absent model",
            &["serve", "absent-model", "--port", "0"],
            &[],
            "absent-model",
        ),
        (
            "absent keys",
            &["serve", "--port", "0", "--keys", "/absent.yaml"],
            &[],
            "/absent.yaml",
        ),
        ("unknown flag", &["serve", "--portt", "0"], &[], "--portt"),
        ("unknown command", &["sorve"], &[], "sorve"),
        (
            "another command",
            &["run", "--model", "absent-model", "A"],
            &[],
            "absent-model",
        ),
    ];
    for (label, args, vars, named) in rows {
        let is_of_file = label == "unknown key";
        let json = ("MILLRACE_LOG_JSON", if is_of_file { "" } else { "true" });
        let vars: Vec<_> = vars.iter().copied().chain([json]).collect();
        let output = millrace_with(args, &vars);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{label}: {log}");
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{label}: {log}")))
            .collect();
        let last = lines.last().unwrap();
        let message = last["fields"]["message"].as_str().unwrap();
        assert!(
            last["level"] == "ERROR" && message.contains(named),
            "{label}: {log}"
        );
    }
    let plain = millrace(&["serve", "absent-model", "--port", "0"]);
    let plain = String::from_utf8_lossy(&plain.stderr).into_owned();
    let last = plain.lines().find(|line| line.starts_with("millrace: "));
    assert!(
        last.is_some_and(|last| last.contains("absent-model: no such file")),
        "{plain}"
    );
}

#[test]
fn log_that_is_not_read_stops_no_request() {
    let mut server = command(&["serve", "--port", "0"]);
    server
        .env("MILLRACE_LOG_FILTER", "debug")
        .stderr(Stdio::piped());
    let mut serving = Serving::spawn(server);
    assert!(serving.line().contains(" serves "));
    for _ in 0..REQUESTS {
        assert!(serving.get("/v1/models").starts_with("HTTP/1.1 200"));
    }
    assert!(
        serving.terminate().success(),
        "the last lines have a bound, too"
    );
}
