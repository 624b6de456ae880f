//! `millrace run --workflow`, as a user runs it, with the built-in model.
//!
//! Promise (Workflows): a workflow on the command line gives the output of `millrace run`.

use crate::support::{Folder, millrace, stdout};
use serde_json::Value as Json;

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows");

fn sample(name: &str) -> String {
    format!("{SAMPLES}/{name}.json")
}

fn json(sample_name: &str, kwargs: &[&str]) -> Json {
    let path = sample(sample_name);
    let mut args = vec!["run", "--workflow", &path, "--output", "json"];
    for kwarg in kwargs {
        args.extend(["--kwarg", kwarg]);
    }
    serde_json::from_str(&stdout(&millrace(&args))).unwrap()
}

#[test]
fn program_output_equals_that_of_run() {
    let prompt = "Who are you?";
    let plain = stdout(&millrace(&[
        "run",
        prompt,
        "-n",
        "24",
        "--temperature",
        "0",
    ]));
    let kwargs = ["prompt=Who are you?", "max_tokens=24"];
    for name in [
        "text_generation",
        "streamed_generation",
        "batched_generation",
    ] {
        let path = sample(name);
        let [first, second] = kwargs;
        let args = [
            "run",
            "--workflow",
            &path,
            "--kwarg",
            first,
            "--kwarg",
            second,
        ];
        assert_eq!(stdout(&millrace(&args)), plain, "{name}");
        let object = json(name, &kwargs);
        assert_eq!(object["end"], "stop");
        assert_eq!(
            object["value"].as_str().map(str::trim_end),
            Some(plain.trim_end()),
            "{name}"
        );
    }
}

#[test]
fn windows_and_turns_change_nothing() {
    let turns = [
        "first=My name is Nora.",
        "second=What is my name?",
        "max_tokens=24",
    ];
    let plain = json("multi_turn_chat", &[&turns[..], &["batch_size=1"]].concat());
    for window in [
        ["batch_size=5", "ahead=false"],
        ["batch_size=3", "ahead=true"],
    ] {
        assert_eq!(
            json("multi_turn_chat", &[&turns[..], &window].concat()),
            plain
        );
    }
    let best = json("best_of_n", &["prompt=Hello!", "n=3", "max_tokens=12"]);
    assert!(
        best["value"].as_str().is_some_and(|text| !text.is_empty()),
        "{best}"
    );
}

#[test]
fn invalid_document_is_rejected_with_its_path() {
    let folder = Folder::new("workflow");
    let path = folder.0.join("broken.json");
    std::fs::write(
        &path,
        r#"{"name": "b", "steps": [{"op": "if", "condition": true, "then": [{"op": "dance"}]}]}"#,
    )
    .unwrap();
    let path = path.display().to_string();
    let good = sample("text_generation");
    let outside = sample("external_sampling");
    let rows: [(&[&str], &str); 6] = [
        (&["run", "--workflow", &path], "steps[0].then[0].op"),
        (&["run", "--workflow", "nowhere.json"], "nowhere.json"),
        (&["run", "--workflow", &good], "prompt: is missing"),
        (
            &[
                "run",
                "--workflow",
                &good,
                "--kwarg",
                "prompt=x",
                "--kwarg",
                "max_tokens=0",
            ],
            "max_tokens: is 0; at least 1",
        ),
        (
            &["run", "--workflow", &good, "--kwarg", "colour=red"],
            "colour: is no input",
        ),
        (
            &["run", "--workflow", &outside, "--kwarg", "prompt=x"],
            "closed from outside",
        ),
    ];
    for (args, words) in rows {
        let output = millrace(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(
            said.contains(words) && !said.contains("panicked"),
            "{args:?}: {said}"
        );
    }
}
