//! What no command can use: sizes out of bounds, files that are no models, answers of other programs. Each error is a
//! sentence that names the thing and the bound, without words of Rust or its libraries.
//!
//! Promise (Models): an answer of another program, a file that is not a model, and a size out of bounds are named in
//! sentences without terms of Rust.

use super::refusal;
use crate::support::{Folder, millrace, millrace_with, stdout};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

/// Words of Rust's parsers, which say nothing to a person.
const FOREIGN_WORDS: [&str; 8] = [
    "missing field",
    "invalid type",
    "expected value",
    "..=",
    "usize",
    "invalid digit",
    "EOF while",
    "panicked",
];

fn expect_plain(said: &str) {
    let found = FOREIGN_WORDS.iter().find(|words| said.contains(**words));
    assert_eq!(found, None, "{said}");
}

/// The URL of a server that gives this answer to every request.
fn other_program(status: &'static str, body: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // It ends with the process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head = lines.map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
            );
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    url
}

#[test]
fn answer_of_another_program_is_named() {
    let answers: [(&str, &[u8]); 6] = [
        ("200 OK", b"<html>hello</html>"),
        ("200 OK", b"{\"hello\": 1}"),
        ("200 OK", b"[1, 2]"),
        ("200 OK", b"\xff\xfe\0"),
        ("200 OK", b""),
        ("404 Not Found", b"<html>nothing here</html>"),
    ];
    let commands: [&[&str]; 6] = [
        &["ps"],
        &["stop", "x"],
        &["health"],
        &["streams", "list"],
        &["streams", "show", "ab"],
        &["streams", "cancel", "ab"],
    ];
    for (status, body) in answers {
        let url = other_program(status, body);
        for command in commands {
            let said = refusal(&millrace(&[command, &["--url", &url]].concat()));
            assert!(said.contains("another program"), "{command:?}: {said}");
            expect_plain(&said);
        }
    }
}

#[test]
fn size_of_a_synthetic_model_has_a_bound() {
    let folder = Folder::new("synth-bounds");
    let path = folder.0.join("model.gguf").display().to_string();
    for (flag, size, bound) in [
        ("--layers", "1000000000", "at most 1024"),
        ("--dim", "4294967295", "at most 65536"),
        ("--heads", "100000", "at most 1024"),
        ("--kv-heads", "100000", "at most 1024"),
        ("--head-dim", "100000", "at most 4096"),
        ("--ffn", "100000000", "at most 1048576"),
        ("--vocab", "100000000", "at most 2097152"),
        ("--train-context", "4000000000", "at most 268435456"),
    ] {
        let said = refusal(&millrace(&["synth", &path, flag, size]));
        assert!(said.contains(flag) && said.contains(bound), "{said}");
    }
    let large = [
        "--preset",
        "tiny-bert",
        "--dim",
        "65536",
        "--layers",
        "1024",
    ];
    let said = refusal(&millrace(&[&["synth", &path], &large[..]].concat()));
    assert!(said.contains("--dim, --layers and --ffn"), "{said}");
    // A device is no place for a model: a rename would replace it.
    let said = refusal(&millrace(&["synth", "/dev/null"]));
    assert!(said.contains("no regular file"), "{said}");
    assert!(!folder.0.join("model.gguf").exists());
}

#[test]
fn file_that_is_no_model_is_named() {
    let folder = Folder::new("no-models");
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let header = |entries: &[Vec<u8>]| {
        let counts = [0u64.to_le_bytes(), (entries.len() as u64).to_le_bytes()].concat();
        [
            b"GGUF".to_vec(),
            3u32.to_le_bytes().to_vec(),
            counts,
            entries.concat(),
            vec![0; 64],
        ]
        .concat()
    };
    let text_entry =
        |key: &str, value: &str| [string(key), 8u32.to_le_bytes().to_vec(), string(value)].concat();
    let rows = [
        ("empty.gguf", header(&[]), "general.architecture"),
        (
            "unknown.gguf",
            header(&[text_entry("general.architecture", "foo")]),
            "`foo`",
        ),
        (
            "text.gguf",
            header(&[
                text_entry("general.architecture", "llama"),
                text_entry("llama.block_count", "x"),
            ]),
            "must be a whole number",
        ),
        ("cut.gguf", b"GGUF".to_vec(), "truncated"),
    ];
    for (name, bytes, words) in rows {
        let path = folder.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        let path = path.display().to_string();
        for command in [
            &["serve", &path, "--port", "0"][..],
            &["run", "-m", &path, "A"],
        ] {
            let said = refusal(&millrace(command));
            assert!(said.contains(words), "{command:?}: {said}");
            let stem = name.trim_end_matches(".gguf");
            assert!(said.contains(stem), "{command:?}: {said}");
            expect_plain(&said);
        }
    }
}

#[test]
fn chat_template_that_fails_is_no_bug() {
    let folder = Folder::new("broken-template");
    let path = folder.0.join("broken.jinja");
    std::fs::write(&path, "{{ messages.none.at_all }}").unwrap();
    let path = path.display().to_string();
    let said = refusal(&millrace(&["run", "--chat-template", &path, "A"]));
    assert!(
        said.contains("--chat-template FILE") && !said.contains("bug"),
        "{said}"
    );
}

#[test]
fn variable_without_a_value_is_absent() {
    let empty = |name: &'static str| (name, "");
    let vars = ["MILLRACE_CONFIG", "MILLRACE_SERVER_BIND", "MILLRACE_PRESET"].map(empty);
    let shown = stdout(&millrace_with(&["config"], &vars));
    assert!(shown.contains("127.0.0.1:8420"), "{shown}");
    let shown = stdout(&millrace_with(&["config", "--config", ""], &[]));
    assert!(shown.contains("127.0.0.1:8420"), "{shown}");
    let said = refusal(&millrace(&["serve", "--name", "", "--port", "0"]));
    assert!(
        said.contains("model.name (flag): must not be empty"),
        "{said}"
    );
}

#[test]
fn unusual_temperature_has_one_warning_and_an_impossible_one_an_error() {
    let run = ["run", "A", "-n", "2", "--temperature", "9"];
    let said = String::from_utf8_lossy(&millrace(&run).stderr).into_owned();
    assert_eq!(said.matches("temperature 9: above 2").count(), 1, "{said}");
    let cold = refusal(&millrace(&["run", "A", "--temperature", "-1"]));
    assert!(cold.contains("temperature is -1; from 0 to 100"), "{cold}");
    let usual = millrace(&["run", "A", "-n", "2", "--temperature", "1"]);
    assert!(usual.stderr.is_empty(), "{usual:?}");
}
