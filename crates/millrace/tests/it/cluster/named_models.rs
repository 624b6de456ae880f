//! Settings of single models (`models.named`) in a gateway: defaults of requests that an engine answers.
//!
//! Promise (Cluster): a gateway that was started without a model serves the models that engines have.

use super::conversation::SETTINGS;
use super::nats_server;
use super::processes::{Cluster, json};
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::{Value, json as value};

/// Tokens of an answer by `brief`.
const TOKENS: u64 = 3;

/// The usage of a chat completion with these fields more.
fn usage(gateway: &Serving, model: &str, more: &Value) -> Value {
    let mut body = value!({
        "model": model, "messages": [{"role": "user", "content": "A"}], "temperature": 0, "ignore_eos": true,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let reply = gateway.post("/v1/chat/completions", &body.to_string());
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    json(&reply)["usage"].clone()
}

#[test]
fn gateway_applies_the_settings_of_single_models() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-named");
    let model = folder.0.join("a.gguf").display().to_string();
    stdout(&millrace(&["synth", &model, "--preset", "tiny-qwen3"]));
    let named = value!({"brief": {
        "from": "a", "system": "Answer with few words.", "parameters": {"num_predict": TOKENS},
    }});
    let settings = value!({"models": {"directories": [folder.0.clone()], "named": named}});
    let config = folder.0.join("settings.yaml");
    std::fs::write(&config, settings.to_string()).unwrap();
    let mut cluster = Cluster::new(program, "cluster-named", "", &SETTINGS);
    cluster.start_engine_of(&model);
    let gateway = cluster.start_gateway_with(&["--config", &config.display().to_string()]);

    let two = value!({"max_tokens": 2});
    let (plain, brief) = (
        usage(&gateway, "a", &two),
        usage(&gateway, "brief", &value!({})),
    );
    assert_eq!(brief["completion_tokens"], TOKENS, "{brief}");
    let prompt_tokens = |usage: &Value| usage["prompt_tokens"].as_u64().unwrap();
    assert!(
        prompt_tokens(&brief) > prompt_tokens(&plain),
        "the system message is missing: {brief}, {plain}"
    );
    let asked = usage(&gateway, "brief", &two);
    assert_eq!(asked["completion_tokens"], 2, "the request comes first");
    assert!(gateway.terminate().success());
}
