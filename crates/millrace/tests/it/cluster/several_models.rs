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
pub(super) fn listed(gateway: &Serving) -> Vec<(String, Option<u64>)> {
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

/// Promise (Cluster): a gateway serves every model that an engine announces and whose files it has, on engines with
/// equal content; a model without an engine, with other content or without files is a 503 that names the model and
/// the reason, and other models continue.
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
    cluster.start_engine_of("millrace-mini");
    let gateway = cluster.start_gateway();
    assert_eq!(listed(&gateway), models(&[("millrace-mini", 1)]));

    expect_no_engine(&gateway, "", "\"a\"");

    cluster.start_engine_of(&a);
    let both = models(&[("millrace-mini", 1), ("a", 1)]);
    wait_until("both models are listed", || listed(&gateway) == both);
    for (model, name, file) in [
        ("a", "a", a.as_str()),
        ("millrace-mini", "millrace-mini", ""),
        ("a:latest", "a", &a),
    ] {
        let (status, answer) = complete(&gateway, model, "");
        assert_eq!(status, "200", "{answer}");
        assert_eq!(answer["model"], name, "{answer}");
        assert_eq!(answer["choices"][0]["text"], alone(file), "{answer}");
    }
    assert_eq!(complete(&gateway, "unused", "").0, "503");

    cluster.start_engine_of(&elsewhere);
    wait_until("missing files are told", || {
        complete(&gateway, "hidden", "").1["error"]["code"] == "model_files_missing"
    });
    assert_eq!(complete(&gateway, "nothing", "").0, "404");

    expect_rejections_until_the_engine_is_back(&mut cluster, &gateway, &changed, &a);
    assert!(gateway.terminate().success());
}

/// The engine of `a` dies, one with other content takes the name, and one with the right content comes back.
fn expect_rejections_until_the_engine_is_back(
    cluster: &mut Cluster,
    gateway: &Serving,
    changed: &str,
    a: &str,
) {
    // No engine with this content is left: requests wait, then are rejected at once. The other model goes on.
    cluster.kill_engine(1);
    cluster.start_engine_of(changed);
    wait_until("the model has no engine", || {
        let (status, error) = complete(gateway, "a", "");
        let message = error["error"]["message"].as_str().unwrap_or_default();
        status == "503" && message.contains("\"a\"")
    });
    let reason = "\"a\" with the content that this gateway has";
    expect_no_engine(gateway, r#", "stream": true"#, reason);
    let (status, answer) = complete(gateway, "millrace-mini", "");
    assert_eq!(status, "200", "{answer}");
    assert!(gateway.get("/health/readiness").starts_with("HTTP/1.1 200"));
    let report = json(&gateway.get("/v1/cluster")).to_string();
    let difference = r#"model \"a\" with other weights"#;
    assert!(report.contains(difference), "{report}");
    wait_until("the list says that there is no engine", || {
        listed(gateway).contains(&("a".to_owned(), Some(0)))
    });

    // An engine with the right content comes back.
    cluster.start_engine_of(a);
    wait_until("the model is computed again", || {
        complete(gateway, "a", "").0 == "200"
    });
}

/// A completion by `a` is rejected for want of an engine; the message has these words.
fn expect_no_engine(gateway: &Serving, more: &str, words: &str) {
    let (status, error) = complete(gateway, "a", more);
    let code = &error["error"]["code"];
    assert_eq!((status.as_str(), code), ("503", &"no_engine".into()));
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(words), "{message}");
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
