//! Several models on a device that has no memory for all of them.
//!
//! Promise (Models): where the driver has no memory for a model, the model that was idle longest is unloaded and the load is tried
//! once more; a model for which there is no memory then, either, is a 503 with the driver's numbers.

use super::faulty_driver::FaultyDriver;
use super::has_device;
use crate::support::{Folder, Serving};
use serde_json::{Value as Json, json};

/// A model whose KV cache may be large.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mini/millrace-mini.gguf");

/// Memory of the device: for one model with its keys and values, not for two.
const MEMORY_MIB: u64 = 220;
const KV_MIB: u64 = 96;

/// The status and the body of an answer of this model.
fn ask(serving: &Serving, model: &str) -> (u16, Json) {
    let body = json!({"model": model, "prompt": "A", "max_tokens": 4, "temperature": 0});
    let reply = serving.post("/v1/completions", &body.to_string());
    let (head, body) = reply.split_once("\r\n\r\n").expect("a response");
    let status = head.split(' ').nth(1).expect("a status");
    let json = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"));
    (status.parse().expect("a number"), json)
}

/// Names of the loaded models.
fn loaded(serving: &Serving) -> Vec<String> {
    let reply = serving.get("/api/ps");
    let (_, body) = reply.split_once("\r\n\r\n").expect("a response");
    let body: Json = serde_json::from_str(body).expect("JSON");
    let models = body["models"].as_array().expect("models").iter();
    models
        .map(|model| model["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// A server with the built-in model, and two models of the folder that are loaded when they are asked for.
fn serve(folder: &Folder, driver: &FaultyDriver) -> Serving {
    for name in ["one.gguf", "big.gguf"] {
        std::fs::copy(MODEL, folder.0.join(name)).expect("a copy");
    }
    let [directories, named] =
        [json!([folder.0]), json!({"big": {"kv_mib": 4 * KV_MIB}})].map(|json| json.to_string());
    let kv_mib = KV_MIB.to_string();
    let own = [
        ("MILLRACE_MODELS_DIRECTORIES", &directories),
        ("MILLRACE_MODELS_NAMED", &named),
        ("MILLRACE_MODEL_KV_MIB", &kv_mib),
    ]
    .map(|(name, value)| (name, value.as_str()));
    let variables = driver.variables();
    let variables = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()));
    let variables: Vec<_> = own.into_iter().chain(variables).collect();
    let args = [
        "serve",
        "millrace-mini",
        "--bind",
        "127.0.0.1:0",
        "--device",
        "vulkan",
    ];
    Serving::start_with(&args, &variables, std::process::Stdio::inherit())
}

#[test]
fn model_takes_the_memory_of_the_one_that_was_idle_longest() {
    if !has_device() {
        return;
    }
    let folder = Folder::new("device-memory");
    let driver = FaultyDriver::new("device-memory-driver", &format!("memory={MEMORY_MIB}"));
    let serving = serve(&folder, &driver);
    let (_, wanted) = ask(&serving, "millrace-mini");
    let (status, body) = ask(&serving, "one");
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        loaded(&serving),
        ["one:latest"],
        "in the place of the first"
    );
    let (status, body) = ask(&serving, "big");
    let error = &body["error"];
    assert_eq!(
        (status, &error["code"]),
        (503, &json!("model_failed")),
        "{body}"
    );
    let said = error["message"].as_str().expect("a message");
    for part in [
        "the driver has no memory for ",
        " bytes of ",
        " are allocated here",
        " MiB of keys and values",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(
        loaded(&serving),
        [""; 0],
        "tried once more without the other"
    );
    let (status, again) = ask(&serving, "millrace-mini");
    assert_eq!(status, 200, "{again}");
    assert_eq!(again["choices"], wanted["choices"]);
    assert!(serving.terminate().success());
}
