//! What people type in their first minute: words, flags and commands, and what is said where they do not fit.
//!
//! Promise (Settings and operation): arguments, flags and standard input of `millrace run` mean the same in every
//! spelling; a reader of the output that closes the pipe is no error.

mod answer_flags;
mod caches;
mod installed;
mod invalid_input;
mod library;
pub(crate) mod prompts;
mod serving;
mod streams;

use crate::support::{millrace, stdout};
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

/// What is said on standard error by a command that fails.
fn refusal(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        !said.contains("bug") && !said.contains("panicked"),
        "{said}"
    );
    said
}

#[test]
fn help_has_a_summary_and_three_examples() {
    let help = stdout(&millrace(&["--help"]));
    assert!(help.starts_with("Millrace runs language models"), "{help}");
    let examples = help.lines().filter(|line| line.starts_with("  millrace "));
    assert_eq!(examples.count(), 3, "{help}");
    for command in [
        "run", "pull", "serve", "ps", "stop", "streams", "cp", "rm", "health", "doctor", "version",
    ] {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command}: {help}"
        );
    }
    assert!(
        help.contains("[aliases: list, ls]") && help.contains("[alias: show]"),
        "{help}"
    );
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{help}"
    );
}

#[test]
fn version_is_a_command_and_a_flag() {
    let version = format!("millrace {}\n", env!("CARGO_PKG_VERSION"));
    for typed in ["version", "--version", "-V"] {
        assert_eq!(stdout(&millrace(&[typed])), version);
    }
}

/// The exit code of a shell's pipeline whose reader left.
const SIGPIPE: i32 = 128 + 13;

#[test]
fn closed_output_pipe_is_no_error() {
    let commands: [&[&str]; 4] = [
        &["config"],
        &["config", "schema"],
        &["run", "Tell me a story about a fox.", "-n", "200"],
        &["inspect", "millrace-mini", "--json"],
    ];
    for args in commands {
        // Its reader is gone before the first byte: a short text would fit into the pipe otherwise.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = crate::support::command(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(SIGPIPE), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn log_file_has_no_colors() {
    let mut child = crate::support::command(&["serve", "--port", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    log.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("INFO") && !line.contains('\x1b'), "{line:?}");
}
