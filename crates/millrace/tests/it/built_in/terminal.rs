//! `millrace run` and `millrace chat` with the built-in model: reasoning, tool calls, structured output, stop strings.
//!
//! Promise (Settings and operation): on the terminal reasoning, tool calls and content are separate; an answer under
//! `--schema` is valid, and ends before a stop string.
//! Also held by `millrace/src/generation/printer.rs`.
//!
//! Promise (Settings and operation): `millrace chat` answers a pipe line by line, Ctrl-C ends the answer and not the
//! conversation, and the history file is bounded.
//! Also held by `millrace/src/commands/chat/input.rs`.

use crate::support::{Folder, command, millrace, stdout};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

/// The exit code after SIGINT.
const SIGINT: i32 = 128 + 2;

/// A file of a flag.
fn write_json(folder: &Folder, name: &str, value: &Value) -> String {
    let path = folder.0.join(name);
    std::fs::write(&path, value.to_string()).unwrap();
    path.display().to_string()
}

fn tools(folder: &Folder) -> String {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]});
    let function = json!({"name": "get_weather", "description": "Get the weather in a city", "parameters": parameters});
    let tools = json!([{"type": "function", "function": function}]);
    write_json(folder, "tools.json", &tools)
}

/// The likeliest answer.
fn run(args: &[&str]) -> Output {
    millrace(&[&["run", "--temp", "0"], args].concat())
}

fn call(line: &str) -> (Value, Value) {
    let call: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    (call["name"].clone(), call["arguments"].clone())
}

#[test]
fn reasoning_is_apart_from_content() {
    let output = run(&["What is 23 + 45?", "--think"]);
    assert_eq!(stdout(&output), "23 + 45 = 68\n");
    let reasoning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        reasoning.starts_with("[reasoning]\nOnes: 3 + 5")
            && reasoning.ends_with("\n[/reasoning]\n"),
        "{reasoning}"
    );
    let output = run(&["What is 23 + 45?", "--think=false"]);
    assert!(output.stderr.is_empty() && stdout(&output).contains("68"));
}

#[test]
fn tool_call_is_a_line_of_json() {
    let folder = Folder::new("run-tools");
    let tools = tools(&folder);
    let question = "What is the weather in Gremolux?";
    let shown = stdout(&run(&[question, "--tools", &tools]));
    let want = (json!("get_weather"), json!({"city": "Gremolux"}));
    assert_eq!(call(&shown), want, "{shown}");
    for choice in ["required", "get_weather"] {
        let shown = stdout(&run(&[
            question,
            "--tools",
            &tools,
            "--tool-choice",
            choice,
        ]));
        for line in shown.lines() {
            let (name, arguments) = call(line);
            assert_eq!(name, "get_weather", "{choice}");
            assert!(arguments["city"].is_string(), "{choice}: {line}");
        }
        assert!(!shown.is_empty(), "{choice}");
    }
    let shown = stdout(&run(&[
        question,
        "--tools",
        &tools,
        "--tool-choice",
        "none",
    ]));
    assert!(!shown.starts_with('{'), "{shown}");
}

#[test]
fn output_is_valid_under_the_schema() {
    let folder = Folder::new("run-schema");
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "colors": {"type": "array", "items": {"enum": ["red", "gray"]}, "maxItems": 2},
        },
        "required": ["name", "age", "colors"],
        "additionalProperties": false,
    });
    let path = write_json(&folder, "schema.json", &schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    for seed in ["1", "2", "3"] {
        let args = ["run", "Tell me about a fox.", "--schema", &path, "-s", seed];
        let shown = stdout(&millrace(&args));
        let value: Value =
            serde_json::from_str(&shown).unwrap_or_else(|why| panic!("{why}: {shown}"));
        assert!(validator.is_valid(&value), "{shown}");
    }
}

#[test]
fn output_ends_before_a_stop_string() {
    let args = [
        "Count from 1 to 9.",
        "--stop",
        "no such text",
        "--stop",
        "5",
    ];
    assert_eq!(stdout(&run(&args)), "1, 2, 3, 4, \n");
}

/// A conversation over a pipe.
fn start_chat(args: &[&str]) -> Child {
    command(&[&["chat", "--temp", "0"], args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn chat(args: &[&str], typed: &str) -> Output {
    let mut child = start_chat(args);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn chat_over_a_pipe_answers_each_line() {
    let typed =
        "My name is Otto.\n\nWhat is my \\\nname?\n/clear\n\"\"\"\nWhat is\n2 + 3?\n\"\"\"\n";
    let output = chat(&[], typed);
    let shown = stdout(&output);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "no prompts in a pipe: {shown}");
    assert_eq!(lines[1], "Your name is Otto.");
    assert!(lines[2].contains('5'), "{shown}");
    assert!(output.stderr.is_empty());
}

#[test]
fn chat_commands_change_the_next_answers() {
    let typed = "/system\n/system Be brief.\n/system\n/set max-tokens 3\nCount from 1 to 9.\n\
                 /set max-tokens default\n/set\n/dance\n/set seed x\n/help\n/bye\nnot read\n";
    let output = chat(&["--stop", "7"], typed);
    let shown = stdout(&output);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[..2], ["(none)", "Be brief."], "{shown}");
    assert!(lines[2].len() < 9, "three tokens: {shown}");
    assert!(lines.contains(&"max-tokens default") && lines.contains(&"temperature 0"));
    assert!(shown.contains("/clear") && !shown.contains("not read"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for name in ["/dance", "/set seed x"] {
        assert!(errors.contains(&format!("millrace: {name}: ")), "{errors}");
    }
}

#[test]
fn line_after_a_tool_call_is_the_result() {
    let folder = Folder::new("chat-tools");
    let typed = "What is the weather in Gremolux?\n{\"temperature\": 17, \"sky\": \"sunny\"}\n";
    let shown = stdout(&chat(&["--tools", &tools(&folder)], typed));
    let (first, second) = shown.split_once('\n').unwrap();
    assert_eq!(call(first).0, "get_weather");
    assert_eq!(second, "It is 17 degrees and sunny in Gremolux.\n");
}

/// Arguments with which an answer takes seconds: the schema permits no end before the context is full.
fn endless_answer(folder: &Folder) -> [String; 3] {
    let path = |name: &str| folder.0.join(name).display().to_string();
    let (model, schema) = (path("endless.gguf"), path("endless.json"));
    stdout(&millrace(&["synth", &model, "--train-context", "16384"]));
    let list = r#"{"type": "array", "items": {"type": "integer"}, "minItems": 16000}"#;
    std::fs::write(&schema, list).unwrap();
    [model, "--schema".to_owned(), schema]
}

#[test]
fn schema_that_reaches_a_grammar_limit_is_an_error_of_the_user() {
    let folder = Folder::new("run-grammar-limit");
    let schema = write_json(
        &folder,
        "long.json",
        &json!({"type": "string", "minLength": 8000}),
    );
    let model = endless_answer(&folder)[0].clone();
    let output = millrace(&["run", "hi", "-m", &model, "--schema", &schema]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("the grammar of this answer reached a limit"),
        "{errors}"
    );
    assert!(!errors.contains("bug"), "{errors}");
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn interrupt_ends_the_answer_and_not_the_chat() {
    let folder = Folder::new("chat-interrupt");
    let arguments = endless_answer(&folder);
    let mut child = start_chat(&arguments.each_ref().map(String::as_str));
    let mut stdin = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(b"hi\n").unwrap();
    out.read_exact(&mut [0; 1]).unwrap();
    interrupt(&child);
    stdin.write_all(b"/system still here\n/system\n").unwrap();
    let mut rest = String::new();
    while !rest.ends_with("still here\n") {
        assert!(out.read_line(&mut rest).unwrap() > 0, "the chat goes on");
    }
    interrupt(&child);
    assert_eq!(
        child.wait().unwrap().code(),
        Some(SIGINT),
        "between answers"
    );
}
