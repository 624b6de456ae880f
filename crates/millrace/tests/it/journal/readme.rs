//! The README's commands that kill a server in the middle of an answer, run by a shell as a reader does.
//!
//! Promise (Journal): the README's six commands continue a killed answer, with the text of an uninterrupted one.

use crate::support::{Folder, command};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const README: &str = include_str!("../../../../../README.md");
/// The beginning of the commands, and of the header that makes the stream resumable.
const FIRST: &str = "millrace serve &";
const RESUMABLE: &str = "-H 'x-stream-resumable: 1' ";
/// The port in the README, and runs with other ports: a free port may be taken before the server binds the port.
const PORT: &str = "8420";
const RUNS_MAX: usize = 5;

/// The commands, one in a line.
fn commands() -> Vec<String> {
    let block = README.split("```\n").find(|block| block.starts_with(FIRST));
    let joined = block.expect("a block of commands").replace("\\\n", "");
    joined.lines().map(str::to_owned).collect()
}

/// The commands with a file for each output, and the request of a stream that is not interrupted.
fn script(port: u16) -> String {
    let mut lines = commands();
    let opening = lines
        .iter()
        .position(|line| line.contains(RESUMABLE))
        .expect("a request");
    let request = lines[opening]
        .split(" | ")
        .next()
        .expect("a request")
        .replace(RESUMABLE, "");
    lines[opening].push_str(" > /dev/null");
    lines
        .last_mut()
        .expect("a last command")
        .push_str(" > rest.txt");
    lines.push(format!("{request} > plain.txt"));
    // Only the servers of this shell are killed.
    lines.insert(0, "trap 'kill -9 $(jobs -p)' EXIT".to_owned());
    lines.join("\n").replace(PORT, &port.to_string())
}

fn run(folder: &Path) -> Output {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let binary = command(&[]);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    shell.args(["-c", &script(port)]).current_dir(folder);
    for (name, value) in binary.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("MILLRACE_SERVER_BIND", port.to_string())
        .env("MILLRACE_MODEL_DETERMINISTIC", "true")
        .env("NO_PROXY", "*")
        .output()
        .expect("bash")
}

/// The text of all events in a file.
fn text_of(folder: &Path, file: &str) -> String {
    let content = std::fs::read_to_string(folder.join(file)).unwrap();
    let events = content
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    let text = |event: &str| {
        let event: Value = serde_json::from_str(&format!("{{{event}")).expect("JSON");
        let text = event["choices"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{event}")).to_owned()
    };
    events.map(text).collect()
}

#[test]
fn commands_of_the_readme_continue_a_killed_answer() {
    for _ in 0..RUNS_MAX {
        let folder = Folder::new("journal-readme");
        symlink(env!("CARGO_BIN_EXE_millrace"), folder.0.join("millrace")).unwrap();
        let output = run(&folder.0);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        if log.contains("server.bind") {
            continue;
        }
        assert!(output.status.success(), "{log}");
        let [begun, rest, plain] =
            ["begun.txt", "rest.txt", "plain.txt"].map(|file| text_of(&folder.0, file));
        assert!(!begun.is_empty() && !rest.is_empty(), "{log}");
        assert_eq!(begun + &rest, plain, "{log}");
        return;
    }
    panic!("no port was free in {RUNS_MAX} runs");
}
