//! The log of a server: JSON throughout where it was chosen, and no reader is waited for.
//!
//! Promise (Settings and operation): a log that no process reads stops no request, and lines that are dropped are
//! counted; with a JSON log the error of a start is JSON, too.
//! Also held by `millrace/src/logging.rs`.

use crate::support::{Folder, Serving, command, millrace, millrace_with};
use serde_json::Value;
use std::net::TcpListener;
use std::process::Stdio;

/// More requests than a pipe has room for lines about them.
const REQUESTS: usize = 1200;

/// Arguments, variables, and what the last line names.
type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

const JSON: (&str, &str) = ("MILLRACE_LOG_JSON", "true");
const WRONG_TYPE: [(&str, &str); 2] = [JSON, ("MILLRACE_SERVER_IO_THREADS", "many")];
const FAILURES: [Row<'static>; 6] = [
    (&["serve"], &WRONG_TYPE, "server.io_threads"),
    (&["serve", "absent-model"], &[JSON], "absent-model"),
    (
        &["serve", "--keys", "/absent.yaml"],
        &[JSON],
        "/absent.yaml",
    ),
    (&["serve", "--portt", "0"], &[JSON], "--portt"),
    (&["sorve"], &[JSON], "sorve"),
    (&["run", "-m", "absent-model", "A"], &[JSON], "absent-model"),
];

/// Expects a failure whose log is JSON throughout, and whose last line is the error.
fn expect_json_error((args, vars, named): Row<'_>) {
    let output = millrace_with(args, vars);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?}: {log}");
    let parsed = log.lines().map(serde_json::from_str);
    let lines: Result<Vec<Value>, _> = parsed.collect();
    let lines = lines.unwrap_or_else(|why| panic!("{args:?}: {why}: {log}"));
    let last = lines.last().unwrap();
    let message = last["fields"]["message"].as_str().unwrap();
    assert!(
        last["level"] == "ERROR" && message.contains(named),
        "{args:?}: {log}"
    );
}

#[test]
fn error_of_a_start_is_one_line_of_json() {
    FAILURES.into_iter().for_each(expect_json_error);
    let folder = Folder::new("json-errors");
    let file = |name: &str, text: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let settings = file("settings.yaml", "log: {json: true}\nserver: {bond: 1}\n");
    let broken = file("broken.yaml", "server: [\n");
    expect_json_error((&["serve", "--config", &settings], &[], "server.bond"));
    expect_json_error((&["serve", "--config", &broken], &[JSON], "broken.yaml"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = listener.local_addr().unwrap().to_string();
    expect_json_error((&["serve", "--bind", &used], &[JSON], "server.bind"));
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
