//! A model of the same server that describes images.

use super::{Live, OTHER, PICTURE, chat, serve_with, streamed};
use crate::encoders::body;
use crate::support::{Folder, Serving, command};
use serde_json::{Value, json};
use std::fs::File;
use std::path::PathBuf;
use synth::VisionSpec;
use testing::wait::wait_until;

pub(super) fn mini() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/mini"))
}

/// Promise (Images): a model of the same server describes images; the model that reads text is listed as one that takes
/// images, and the text of the user can be part of the prompt.
#[test]
#[expect(clippy::too_many_lines, reason = "one server for all of it")]
fn model_of_the_same_server_describes_images() {
    let folder = mini().display().to_string();
    let serving = serve_with(
        &["millrace-mini"],
        &[
            ("MILLRACE_VISION_PROXY_MODEL", "millrace-mini-vision"),
            ("MILLRACE_VISION_PROXY_PROMPT", "{question}"),
            ("MILLRACE_VISION_PROXY_MAX_TOKENS", "24"),
            ("MILLRACE_MODELS_DIRECTORIES", &folder),
        ],
    );
    let ask = |question: &str| {
        let mut request = chat(&[OTHER], &json!({"return_token_ids": true}));
        request["messages"][0]["content"][1]["text"] = json!(question);
        let answer = body(
            &serving.post("/v1/chat/completions", &request.to_string()),
            200,
        );
        let tokens = json!({"tokens": answer["prompt_token_ids"]}).to_string();
        let text = body(&serving.post("/detokenize", &tokens), 200);
        (answer, text["content"].as_str().unwrap().to_owned())
    };
    let (answer, text) = ask("Which colour is the square?");
    assert!(
        text.contains("[Image 1, described by millrace-mini-vision: ") && text.contains("red"),
        "{text}"
    );
    let usage = &answer["usage"]["vision_proxy"];
    let count = |usage: &Value, name: &str| usage[name].as_u64().unwrap();
    assert_eq!(usage["model"], "millrace-mini-vision");
    assert!(
        count(usage, "prompt_tokens") > 16 && count(usage, "completion_tokens") > 0,
        "{usage}"
    );
    assert!(
        count(usage, "completion_tokens") <= 24 && count(usage, "cached") == 0,
        "{usage}"
    );
    assert!(count(&answer["usage"], "prompt_tokens") > 10, "{answer}");
    let (again, same) = ask("Which colour is the square?");
    assert_eq!(
        (count(&again["usage"]["vision_proxy"], "cached"), &same),
        (1, &text)
    );
    let (other, _) = ask("What is in this image?");
    assert_eq!(
        count(&other["usage"]["vision_proxy"], "cached"),
        0,
        "another question"
    );
    let metrics = serving.get("/metrics");
    assert!(metrics.contains("millrace_image_descriptions_total{result=\"described\"} 2"));
    let props = body(&serving.get("/props"), 200);
    assert_eq!(
        (&props["modalities"]["vision"], &props["media_marker"]),
        (&json!(true), &json!("<__media__>"))
    );
    let sees = |value: &Value| value.as_array().unwrap().contains(&json!("vision"));
    for model in ["millrace-mini", "millrace-mini-vision"] {
        let shown = body(
            &serving.post("/api/show", &json!({"model": model}).to_string()),
            200,
        );
        assert!(sees(&shown["capabilities"]), "{shown}");
    }
    let listed = body(&serving.get("/v1/models"), 200);
    let cards = listed["data"].as_array().unwrap();
    let card = cards.iter().find(|card| card["id"] == "millrace-mini");
    assert!(sees(&card.unwrap()["capabilities"]), "{listed}");
    // A model with a tower sees for itself.
    let mut request = chat(&[OTHER], &json!({}));
    request["model"] = json!("millrace-mini-vision");
    let seen = body(
        &serving.post("/v1/chat/completions", &request.to_string()),
        200,
    );
    assert_eq!(seen["usage"]["vision_proxy"], Value::Null);
    assert!(
        seen["usage"]["prompt_tokens_details"]["image_tokens"]
            .as_u64()
            .unwrap()
            >= 16
    );
}

/// A folder with a random model that has a tower and does not stop by itself.
fn endless(name: &str) -> Folder {
    let folder = Folder::new(name);
    let spec = VisionSpec::preset("tiny-idefics3").unwrap();
    let mut text = spec.text().unwrap();
    text.context = 16_384;
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.0.join(name), bytes).unwrap();
    write("endless.gguf", text.to_bytes().unwrap());
    write("endless.mmproj.gguf", spec.to_bytes().unwrap());
    folder
}

/// Promise (Images): the slot of a description is free after its request has ended.
#[test]
fn slot_of_a_description_is_free_after_its_request() {
    let folder = endless("proxy-endless");
    let directory = folder.0.display().to_string();
    let serving = serve_with(
        &["millrace-mini"],
        &[
            ("MILLRACE_VISION_PROXY_MODEL", "endless"),
            ("MILLRACE_VISION_PROXY_MAX_TOKENS", "8192"),
            ("MILLRACE_MODELS_DIRECTORIES", &directory),
        ],
    );
    let request = streamed(chat(&[PICTURE], &json!({})));
    let running = || {
        let metrics = serving.get("/metrics");
        let lines = metrics.lines().filter(|line| {
            line.starts_with("millrace_admission_streams{") && line.contains("running")
        });
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum::<u64>()
    };
    for _ in 0..3 {
        let mut live = Live::open(&serving, "/v1/chat/completions", "", &request);
        live.until(": describing image 1 of 1");
        assert!(live.read.starts_with("HTTP/1.1 200"));
        live.close();
        wait_until("no slot is taken", || running() == 0);
    }
    let metrics = serving.get("/metrics");
    assert!(
        metrics.contains("millrace_image_descriptions_total{result=\"described\"} 0"),
        "{metrics}"
    );
    wait_until("no bytes are held", || {
        serving.get("/metrics").contains("millrace_image_bytes 0")
    });
}

/// Where a model leaves no memory for the one that describes images for it, a request with an image fails at once, and keeps no
/// other load waiting; the start warns of that.
#[test]
fn proxy_without_memory_beside_its_model_is_an_error_at_once() {
    let folder = mini().display().to_string();
    let place = Folder::new("proxy-memory");
    let log = place.0.join("log");
    let args = ["serve", "millrace-mini", "--bind", "127.0.0.1:0"];
    let vars = [
        ("MILLRACE_VISION_PROXY_MODEL", "millrace-mini-vision"),
        ("MILLRACE_VISION_PROXY_TIMEOUT_MS", "3600000"),
        ("MILLRACE_MODELS_DIRECTORIES", &*folder),
        ("MILLRACE_MODELS_MEMORY_BUDGET_MIB", "200"),
        ("MILLRACE_MODEL_KV_MIB", "128"),
    ];
    let serving = Serving::start_with(&args, &vars, File::create(&log).unwrap());
    let path = "/v1/chat/completions";
    let mut request = chat(&[PICTURE], &json!({}));
    for _ in 0..2 {
        let error = body(&serving.post(path, &request.to_string()), 502);
        let message = error["error"]["message"].as_str().unwrap();
        let begin = "vision model millrace-mini-vision failed: it needs ";
        assert!(
            message.starts_with(begin)
                && message.contains(" MiB of model millrace-mini, ")
                && message.ends_with(" may have 200 MiB (models.memory_budget_mib)"),
            "{message}"
        );
        // Each has room alone.
        request["model"] = json!("millrace-mini-vision");
        body(&serving.post(path, &request.to_string()), 200);
        request["model"] = json!("millrace-mini");
    }
    let log = std::fs::read_to_string(&log).unwrap();
    let warning = "vision.proxy.model: millrace-mini-vision needs ";
    assert!(log.contains(warning), "{log}");
}

/// Promise (Images): a proxy that is not here, or sees nothing, is an error at the start that names its setting.
#[test]
fn proxy_without_eyes_is_an_error_at_the_start() {
    let folder = mini().display().to_string();
    let text_only = Folder::new("proxy-blind");
    let blind = crate::support::synth(&text_only);
    let blind_folder = text_only.0.display().to_string();
    assert!(blind.ends_with("tiny.gguf"));
    let named = json!({"millrace-mini": {"vision_proxy": "nowhere"}}).to_string();
    for (vars, why) in [
        (
            vec![("MILLRACE_VISION_PROXY_MODEL", "nowhere")],
            "vision.proxy.model: there is no model \"nowhere\" here",
        ),
        (
            vec![
                ("MILLRACE_VISION_PROXY_MODEL", "tiny"),
                ("MILLRACE_MODELS_DIRECTORIES", &*blind_folder),
            ],
            "vision.proxy.model: \"tiny\" reads text only",
        ),
        (
            vec![
                ("MILLRACE_MODELS_NAMED", &*named),
                ("MILLRACE_MODELS_DIRECTORIES", &*folder),
            ],
            "models.named.millrace-mini.vision_proxy: there is no model \"nowhere\" here",
        ),
        (
            vec![("MILLRACE_VISION_PROXY_ADDRESS", "http://127.0.0.1:9")],
            "vision.proxy.address",
        ),
    ] {
        let mut serve = command(&["serve", "--bind", "127.0.0.1:0"]);
        let output = serve.envs(vars).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(why),
            "{why}: {said}"
        );
    }
    // Without a proxy for it, the model refuses images.
    let off = json!({"millrace-mini": {"vision_proxy": "off"}}).to_string();
    let serving = serve_with(
        &["millrace-mini"],
        &[
            ("MILLRACE_VISION_PROXY_MODEL", "millrace-mini-vision"),
            ("MILLRACE_MODELS_NAMED", &off),
            ("MILLRACE_MODELS_DIRECTORIES", &folder),
        ],
    );
    let request = chat(&[PICTURE], &json!({})).to_string();
    let error = body(&serving.post("/v1/chat/completions", &request), 400);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("reads text only")
    );
}
