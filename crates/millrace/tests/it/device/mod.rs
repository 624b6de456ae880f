//! A server whose model is computed on a device: the first of Vulkan, which may be a processor. Without a driver the tests say so and
//! pass, unless `MILLRACE_GPU_TESTS` is 1.
//!
//! Promise (Arithmetic): on a device, every sample workflow in windows of 1 to 16, one or two in flight, gives the answer of a plain
//! request.

#[cfg(target_os = "linux")]
mod drivers;
#[cfg(target_os = "linux")]
mod failures;
#[cfg(target_os = "linux")]
pub(crate) mod faulty_driver;

use crate::images;
use crate::support::{Serving, millrace};
use serde_json::{Value as Json, json};
use std::io::Write as _;
use std::sync::OnceLock;

const WORKFLOWS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows");
const PROMPT: &str = "Who are you?";
/// More than the answers have: a turn follows a complete answer.
const TOKENS: usize = 60;

/// Whether there is a device. Where there is none, the first test says so.
pub(crate) fn has_device() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        let doctor = millrace(&["doctor"]);
        let found = String::from_utf8_lossy(&doctor.stdout).contains("vulkan:0 is ");
        if !found {
            // What is printed by a macro is shown of failed tests only.
            _ = writeln!(
                std::io::stderr(),
                "no Vulkan driver: tests of devices are skipped"
            );
        }
        found
    });
    let must = std::env::var("MILLRACE_GPU_TESTS").is_ok_and(|value| value == "1");
    assert!(found || !must, "no Vulkan driver");
    found
}

fn serve() -> Serving {
    let args = ["serve", "--bind", "127.0.0.1:0", "--device", "vulkan"];
    Serving::start_with(
        &args,
        &[("MILLRACE_WORKFLOWS_FOLDER", WORKFLOWS)],
        std::process::Stdio::null(),
    )
}

/// The JSON of a response.
fn body(reply: &str) -> Json {
    let text = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {reply}"))
}

/// The text of a plain request after these messages.
fn plain(serving: &Serving, messages: &Json) -> String {
    let request = json!({"messages": messages, "max_tokens": TOKENS, "temperature": 0});
    let reply = body(&serving.post("/v1/chat/completions", &request.to_string()));
    let text = reply["choices"][0]["message"]["content"].as_str();
    text.unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// Result of a workflow's run.
fn run(serving: &Serving, name: &str, kwargs: &Json) -> String {
    let request = json!({"kwargs": kwargs, "stream": false});
    let reply = serving.post(&format!("/v1/workflows/{name}/runs"), &request.to_string());
    let fields = reply.lines().filter_map(|line| line.split_once(": "));
    let mut ids = fields.filter(|(name, _)| name.eq_ignore_ascii_case("x-stream-id"));
    let (_, id) = ids.next().unwrap_or_else(|| panic!("{reply}"));
    let state = body(&serving.get(&format!("/v1/runs/{id}")));
    let value = state["value"].as_str();
    value.unwrap_or_else(|| panic!("{state}")).to_owned()
}

/// Promise (Images): a model on a device answers questions about pictures as one on the processor does.
#[test]
fn model_on_a_device_sees_pictures() {
    if !has_device() {
        return;
    }
    let model = images::model();
    let serving = Serving::start(&[
        "serve",
        &model,
        "--bind",
        "127.0.0.1:0",
        "--device",
        "vulkan",
    ]);
    images::check_answers(&serving, 3);
    assert!(serving.terminate().success());
}

#[test]
fn samples_in_windows_of_every_size_give_the_answer_of_a_plain_request() {
    if !has_device() {
        return;
    }
    let serving = serve();
    let question = json!({"role": "user", "content": PROMPT});
    let wanted = plain(&serving, &json!([question]));
    for name in ["text_generation", "streamed_generation"] {
        let kwargs = json!({"prompt": PROMPT, "max_tokens": TOKENS});
        assert_eq!(run(&serving, name, &kwargs), wanted, "{name}");
    }
    let system = json!({"role": "system", "content": "Be kind."});
    let first = plain(&serving, &json!([system, question]));
    let answer = json!({"role": "assistant", "content": first});
    let more = json!({"role": "user", "content": "And then?"});
    let second = plain(&serving, &json!([system, question, answer, more]));
    for batch in 1..=16 {
        for ahead in [false, true] {
            let window = format!("windows of {batch}, ahead {ahead}");
            let kwargs = json!({"prompt": PROMPT, "max_tokens": TOKENS, "batch_size": batch, "ahead": ahead});
            let found = run(&serving, "batched_generation", &kwargs);
            assert_eq!(found, wanted, "{window}");
            let kwargs = json!({"first": PROMPT, "second": "And then?", "system": "Be kind.",
                "max_tokens": TOKENS, "batch_size": batch, "ahead": ahead});
            assert_eq!(
                run(&serving, "multi_turn_chat", &kwargs),
                second,
                "{window}"
            );
        }
    }
    assert!(serving.terminate().success());
}
