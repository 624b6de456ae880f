//! Flags of `millrace run` and `millrace chat` that describe answers: each error names the flag and the bound.
//!
//! Promise (Settings and operation): an invalid file or value of a flag that describes answers is an error that names
//! the flag and the bound.

use super::refusal;
use crate::support::{Folder, millrace};

/// A file with this text.
fn write(folder: &Folder, name: &str, text: &str) -> String {
    let path = folder.0.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn invalid_file_of_a_flag_is_named() {
    let folder = Folder::new("answer-flags");
    let file = |name: &str, text: &str| write(&folder, name, text);
    let absent = folder.0.join("absent.json").display().to_string();
    let broken = file("broken.json", "{");
    let number = file("number.json", "1");
    let long = file("long.json", &" ".repeat((1 << 20) + 1));
    let look_ahead = file("pattern.json", r#"{"type": "string", "pattern": "(?=a)b"}"#);
    let tool = r#"{"type": "function", "function": {"name": "f"}}"#;
    let tools = file("tools.json", &format!("[{tool}]"));
    let two = format!("[{tool}, {tool}, {{\"type\": \"x\"}}]");
    let twice = file("twice.json", &two);
    let none = file("none.json", "[]");
    let rows: [(&[&str], &[&str]); 12] = [
        (
            &["--schema", &absent],
            &["--schema", "absent.json", "No such file"],
        ),
        (
            &["--schema", &broken],
            &["--schema", "broken.json: is not JSON"],
        ),
        (
            &["--schema", &number],
            &["--schema", "must be a JSON Schema (an object)"],
        ),
        (&["--schema", &long], &["--schema", "at most 1048576 bytes"]),
        (&["--schema", &look_ahead], &["--schema", "look-around"]),
        (
            &["--tools", &absent],
            &["--tools", "absent.json", "No such file"],
        ),
        (&["--tools", &broken], &["--tools", "is not JSON"]),
        (
            &["--tools", &number],
            &["--tools", "must be an array of tools"],
        ),
        (
            &["--tools", &none],
            &["--tools", "must be an array of tools"],
        ),
        (&["--tools", &long], &["--tools", "at most 1048576 bytes"]),
        (
            &["--tools", &twice],
            &["--tools", "tools[1].function.name", "tools[2].type"],
        ),
        (
            &["--tools", &tools, "--tool-choice", "g"],
            &["--tool-choice must be none, auto, required, or the name of a tool"],
        ),
    ];
    for (flags, words) in rows {
        expect_rejected(&["run", "hi"], flags, words);
        // `chat` compiles the schema with the first answer.
        if !flags.contains(&look_ahead.as_str()) {
            expect_rejected(&["chat"], flags, words);
        }
    }
}

/// Checks that the command fails with an error that has all these words.
fn expect_rejected(command: &[&str], flags: &[&str], words: &[&str]) {
    let why = refusal(&millrace(&[command, flags].concat()));
    let has_all = words.iter().all(|word| why.contains(word));
    assert!(has_all, "{flags:?}: {why}");
}

#[test]
fn stop_string_out_of_bounds_is_rejected() {
    let long = "x".repeat(257);
    for text in ["", &long] {
        let output = millrace(&["run", "hi", "--stop", text]);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{why}");
        assert!(
            why.contains("--stop") && why.contains("must have 1 to 256"),
            "{why}"
        );
    }
    let many = ["--stop", "x"].repeat(17);
    let why = refusal(&millrace(&[&["run", "hi"], &many[..]].concat()));
    assert!(why.contains("--stop: given 17 times; at most 16"), "{why}");
}

#[test]
fn flags_that_exclude_each_other_are_rejected() {
    for flags in [
        &["--tool-choice", "auto"][..],
        &["--raw", "--think"],
        &["--raw", "--tools", "tools.json"],
        &["--workflow", "w.json", "--schema", "s.json"],
        &["-n", "0"],
    ] {
        let output = millrace(&[&["run", "hi"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
    }
}

#[test]
fn reasoning_of_a_model_without_reasoning_is_rejected() {
    let folder = Folder::new("no-reasoning");
    let model = crate::support::synth(&folder);
    let why = refusal(&millrace(&["run", &model, "hi", "--think"]));
    assert!(why.contains("--think: the chat template of tiny"), "{why}");
}
