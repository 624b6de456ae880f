//! Engines with different models behind one gateway.

use super::conversation::SETTINGS;
use super::nats_server;
use super::processes::{Cluster, json};
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::Value;
use testing::wait::wait_until;

/// Makes a small model; each seed has other weights.
fn synth(folder: &Folder, name: &str, seed: &str) -> String {
    let path = folder.0.join(name).display().to_string();
    let made = millrace(&["synth", &path, "--preset", "tiny-qwen3", "--seed", seed]);
    stdout(&made);
    path
}

/// Status, and the body of a completion by `model`.
fn complete(gateway: &Serving, model: &str, more: &str) -> (String, Value) {
    let body = format!(
        r#"{{"model": "{model}", "prompt": "A", "temperature": 0, "max_tokens": 4{more}}}"#
    );
    let reply = gateway.post("/v1/completions", &body);
    (reply[9..12].to_owned(), json(&reply))
}

/// Name and engines of all models of a list.
fn listed(gateway: &Serving) -> Vec<(String, Option<u64>)> {
    let list = json(&gateway.get("/v1/models"));
    let models = list["data"].as_array().cloned().unwrap_or_default();
    let of = |model: &Value| {
        let id = model["id"].as_str().unwrap_or_default().to_owned();
        (id, model["engines"].as_u64())
    };
    models.iter().map(of).collect()
}

fn models(expected: &[(&str, u64)]) -> Vec<(String, Option<u64>)> {
    let expected = expected.iter();
    expected
        .map(|(name, engines)| ((*name).to_owned(), Some(*engines)))
        .collect()
}

#[test]
fn gateway_serves_the_models_of_all_engines() {
    let Some(program) = nats_server::program() else {
        return;
    };
    // The gateway has the files of `a` and `unused`; `hidden` has another folder.
    let (folder, hidden) = (Folder::new("cluster-models"), Folder::new("cluster-hidden"));
    let a = synth(&folder, "a.gguf", "1");
    synth(&folder, "unused.gguf", "2");
    let elsewhere = synth(&hidden, "hidden.gguf", "3");
    // The name of a model of the gateway, with other content.
    let changed = synth(&hidden, "a.gguf", "4");
    let directory: &str = folder.0.display().to_string().leak();
    let mine = [
        ("MILLRACE_MODELS_DIRECTORIES", directory),
        ("MILLRACE_CLUSTER_ENGINE_WAIT_MS", "1000"),
    ];
    let settings = [&SETTINGS[..], &mine].concat();
    let mut cluster = Cluster::new(program, "cluster-models", "", &settings);
    cluster.start_engines(1);
    let gateway = cluster.start_gateway();
    assert_eq!(listed(&gateway), models(&[("millrace-mini", 1)]));

    let (status, error) = complete(&gateway, "a", "");
    assert_eq!(
        (status.as_str(), &error["error"]["code"]),
        ("503", &"no_engine".into())
    );
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("\"a\""), "{message}");

    cluster.start_engine_of(&a);
    let both = models(&[("millrace-mini", 1), ("a", 1)]);
    wait_until("both models are listed", || listed(&gateway) == both);
    for model in ["a", "millrace-mini", "a:latest"] {
        let (status, answer) = complete(&gateway, model, "");
        assert_eq!(status, "200", "{answer}");
        let name = model.strip_suffix(":latest").unwrap_or(model);
        assert_eq!(answer["model"], name, "{answer}");
        let alone = alone(if name == "a" { &a } else { "" });
        assert_eq!(answer["choices"][0]["text"], alone, "{answer}");
    }
    assert_eq!(complete(&gateway, "unused", "").0, "503");

    cluster.start_engine_of(&elsewhere);
    wait_until("missing files are told", || {
        complete(&gateway, "hidden", "").1["error"]["code"] == "model_files_missing"
    });
    assert_eq!(complete(&gateway, "nothing", "").0, "404");

    // No engine with this content is left: requests wait, then are rejected at once. The other model goes on.
    cluster.kill_engine(1);
    cluster.start_engine_of(&changed);
    wait_until("the model has no engine", || {
        let (status, error) = complete(&gateway, "a", "");
        let message = error["error"]["message"].as_str().unwrap_or_default();
        status == "503" && message.contains("\"a\"")
    });
    let (status, error) = complete(&gateway, "a", r#", "stream": true"#);
    assert_eq!(
        (status.as_str(), &error["error"]["code"]),
        ("503", &"no_engine".into())
    );
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("\"a\" with the content that this gateway has"),
        "{message}"
    );
    let (status, answer) = complete(&gateway, "millrace-mini", "");
    assert_eq!(status, "200", "{answer}");
    assert!(gateway.get("/health/readiness").starts_with("HTTP/1.1 200"));
    let report = json(&gateway.get("/v1/cluster")).to_string();
    assert!(
        report.contains(r#"model \"a\" with other weights"#),
        "{report}"
    );
    wait_until("the list says that there is no engine", || {
        listed(&gateway).contains(&("a".to_owned(), Some(0)))
    });

    // An engine with the right content comes back.
    cluster.start_engine_of(&a);
    wait_until("the model is computed again", || {
        complete(&gateway, "a", "").0 == "200"
    });
    assert!(gateway.terminate().success());
}

/// The text of a server without a cluster.
fn alone(model: &str) -> String {
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let model = Some(model).filter(|model| !model.is_empty());
    let args: Vec<_> = args.into_iter().chain(model).collect();
    let server = Serving::start_with(&args, &SETTINGS, std::process::Stdio::inherit());
    let (_, answer) = complete(&server, "", "");
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}
