//! Which words of `millrace run` are the model, which the prompt, and what is said where there is no such model.
//!
//! Promise (Models): an unknown model is answered with the local ones and the command that downloads it; an invalid
//! model file fails before the socket is bound.
//! Also held by `millrace/tests/it/command_line/serving.rs`.
//!
//! Promise (Engine): a model whose logits are NaN or infinite is named as the cause, on the terminal and in every
//! API; other requests are not affected.
//! Also held by `engine/tests/it/failures.rs`, `server/tests/it/endings/faults.rs`.

use super::refusal;
use crate::support::{Folder, millrace, millrace_with, stdout};
use serde_json::json;
use std::io::Write;
use std::process::{Output, Stdio};

/// The likeliest tokens of a model, so that spellings can be compared.
const PLAIN: [&str; 6] = ["-n", "6", "--temp", "0", "--log", "error"];

fn one_model(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let path = folder.0.join("one.gguf").display().to_string();
    stdout(&millrace(&["synth", &path]));
    let directories = json!([folder.0]).to_string();
    (folder, directories)
}

/// With something on standard input.
pub(crate) fn piped(args: &[&str], vars: &[(&str, &str)], input: &str) -> Output {
    let mut child = crate::support::command(args)
        .envs(vars.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn prompt_is_the_same_in_every_spelling() {
    let (folder, directories) = one_model("words");
    let vars = [("MILLRACE_MODELS_DIRECTORIES", directories.as_str())];
    let path = folder.0.join("one.gguf").display().to_string();
    let run = |words: &[&str]| stdout(&millrace_with(&[&["run"], words, &PLAIN].concat(), &vars));
    let want = run(&["one", "Say a word"]);
    let rows: [&[&str]; 8] = [
        &[&path, "Say a word"],
        &["one", "Say", "a", "word"],
        &["--model", "one", "Say a word"],
        &["-m", "one", "Say", "a", "word"],
        &["-m", &path, "-p", "Say a word"],
        &["one", "--prompt", "Say a word"],
        &["-m", "one", "-c", "128", "-t", "1", "Say a word"],
        &["one", "--ctx-size", "128", "Say a word"],
    ];
    for words in rows {
        assert_eq!(run(words), want, "{words:?}");
    }
    for words in [
        &["one"][..],
        &["-m", "one"],
        &["one", "-"],
        &["one", "-p", "-"],
    ] {
        let args = [&["run"], words, &PLAIN].concat();
        assert_eq!(
            stdout(&piped(&args, &vars, "Say a word")),
            want,
            "{words:?}"
        );
    }
    let built_in = stdout(&millrace(&[&["run", "Hello"], &PLAIN[..]].concat()));
    let args = [&["run"], &PLAIN[..]].concat();
    assert_eq!(
        stdout(&piped(&args, &[], "Hello")),
        built_in,
        "of the built-in model"
    );
}

#[test]
fn unknown_model_error_lists_the_local_models() {
    let (_folder, directories) = one_model("absent");
    let vars = [("MILLRACE_MODELS_DIRECTORIES", directories.as_str())];
    let rows: [(&[&str], &[&str]); 6] = [
        (
            &["run", "hi", "there"],
            &[
                "hi: no such file",
                "millrace pull NAME",
                "millrace run \"hi there\"",
            ],
        ),
        (
            &["serve", "--model", "qwen3:0.6b"],
            &[
                "qwen3:0.6b: no such file",
                "`millrace pull qwen3:0.6b` fetches it",
            ],
        ),
        (
            &["show", "qwen3:0.6b"],
            &["`millrace pull qwen3:0.6b` fetches it"],
        ),
        (&["chat", "two"], &["two: no such file"]),
        (&["serve", "two", "--port", "0"], &["two: no such file"]),
        (&["show", "two"], &["two: no such file"]),
    ];
    for (args, words) in rows {
        let said = refusal(&millrace_with(args, &vars));
        assert!(
            said.contains("models of this machine: ") && said.contains(", one\n"),
            "{said}"
        );
        assert!(
            words.iter().all(|word| said.contains(word)),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn duplicate_and_missing_arguments_are_named() {
    let (folder, _) = one_model("twice");
    let path = folder.0.join("one.gguf").display().to_string();
    let rows: [(&[&str], &str); 6] = [
        (
            &["run", "-m", &path, &path, "hi"],
            "the model is given twice",
        ),
        (
            &["run", "-m", &path, &path, "-p", "hi"],
            "the model is given twice",
        ),
        (
            &["run", &path, "hi", "-p", "hi"],
            "the prompt is given twice",
        ),
        (&["run"], "no prompt: give one"),
        (&["run", &path], "no prompt: give one"),
        (&["run", "-p", "", "-m", &path], "no prompt: give one"),
    ];
    for (args, words) in rows {
        let said = refusal(&millrace(args));
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let workflow = ["run", "--workflow", "w.json", "-p", "hi"];
    let said = millrace(&workflow);
    assert_eq!(
        said.status.code(),
        Some(2),
        "a flag that does not go with it"
    );
}

/// A model in whose matrices nothing is a number.
fn not_a_number(folder: &Folder) -> String {
    let path = folder.0.join("nan.gguf").display().to_string();
    stdout(&millrace(&["synth", &path, "--quant", "F32"]));
    let json = stdout(&millrace(&["inspect", &path, "--json"]));
    let shown: serde_json::Value = serde_json::from_str(&json).unwrap();
    let tensors = shown["tensors"].as_array().unwrap();
    let named = |name: &str| tensors.iter().position(|tensor| tensor["name"] == name);
    let at = named("blk.0.ffn_up.weight").unwrap();
    let each = |tensor: &serde_json::Value| tensor["bytes"].as_u64().unwrap() as usize;
    let mut bytes = std::fs::read(&path).unwrap();
    // Tensors lie one after the other up to the end, each from a multiple of 32 on, as all sizes here are.
    let end = bytes.len() - tensors[at + 1..].iter().map(each).sum::<usize>();
    for number in bytes[end - each(&tensors[at])..end].chunks_exact_mut(4) {
        number.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn model_with_nan_logits_is_named() {
    let folder = Folder::new("nan");
    let path = not_a_number(&folder);
    let said = refusal(&millrace(&["run", &path, "hi"]));
    assert!(
        said.contains("nan: the model's logits are NaN or infinite"),
        "{said}"
    );
    let talked = piped(&["chat", &path], &[], "hi\n");
    assert!(talked.status.success(), "a conversation can go on");
    let said = String::from_utf8_lossy(&talked.stderr);
    assert!(
        said.contains("nan: the model's logits are NaN or infinite"),
        "{said}"
    );
    let serving = crate::support::Serving::start(&["serve", &path, "--port", "0"]);
    let ask = r#"{"messages":[{"role":"user","content":"hi"}],"stream":false}"#;
    let reply = serving.post("/v1/chat/completions", ask);
    assert!(reply.starts_with("HTTP/1.1 500"), "{reply}");
    assert!(
        reply.contains("\"inference_failed\"") && reply.contains("logits are NaN"),
        "{reply}"
    );
    assert!(serving.terminate().success());
}
