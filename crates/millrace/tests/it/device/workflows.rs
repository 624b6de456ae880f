//! The sample workflows with a model on a device.
//!
//! Promise (Arithmetic): on a device, every sample workflow, in windows of 1 to 16, one or two in flight, where it has windows, gives
//! the answer of a plain request.

use super::has_device;
use crate::kill::event_reader::read_watched;
use crate::support::Serving;
use serde_json::{Value as Json, json};
use testing::wait::{PATIENCE, wait_until};

const WORKFLOWS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows");
const PROMPT: &str = "Who are you?";
/// More than the answers have: a turn follows a complete answer.
const TOKENS: usize = 60;

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
    sampled(
        serving,
        messages,
        &json!({"temperature": 0, "max_tokens": TOKENS}),
    )
}

/// The text of a request with these fields after these messages.
fn sampled(serving: &Serving, messages: &Json, fields: &Json) -> String {
    let mut request = fields.clone();
    request["messages"] = messages.clone();
    let reply = body(&serving.post("/v1/chat/completions", &request.to_string()));
    let text = reply["choices"][0]["message"]["content"].as_str();
    text.unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// Text that a workflow's run returns.
fn run(serving: &Serving, name: &str, kwargs: &Json) -> String {
    let value = returned(serving, name, kwargs);
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("{value}")).to_owned()
}

/// Result of a workflow's run.
fn returned(serving: &Serving, name: &str, kwargs: &Json) -> Json {
    let request = json!({"kwargs": kwargs, "stream": false});
    let reply = serving.post(&format!("/v1/workflows/{name}/runs"), &request.to_string());
    value_of(serving, &stream_id(&reply))
}

/// The id of a stream, in its response.
fn stream_id(reply: &str) -> String {
    let fields = reply.lines().filter_map(|line| line.split_once(": "));
    let mut ids = fields.filter(|(name, _)| name.eq_ignore_ascii_case("x-stream-id"));
    let (_, id) = ids.next().unwrap_or_else(|| panic!("{reply}"));
    id.to_owned()
}

/// Result of a run that has ended.
fn value_of(serving: &Serving, id: &str) -> Json {
    let mut state = body(&serving.get(&format!("/v1/runs/{id}")));
    assert_eq!(state["state"], "ended", "{state}");
    state["value"].take()
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
    let draft = json!({"role": "assistant", "content": wanted.clone()});
    let revised = plain(&serving, &json!([question, draft, more]));
    let samples = [
        ("batched_generation", json!({"prompt": PROMPT}), wanted),
        (
            "multi_turn_chat",
            json!({"first": PROMPT, "second": "And then?", "system": "Be kind."}),
            second,
        ),
        (
            "draft_then_revise",
            json!({"prompt": PROMPT, "wish": "And then?"}),
            revised,
        ),
    ];
    for batch in 1..=16 {
        // At the same time, so that their tokens are computed in the same steps.
        std::thread::scope(|scope| {
            for (ahead, (name, kwargs, wanted)) in [false, true]
                .into_iter()
                .flat_map(|ahead| samples.iter().map(move |sample| (ahead, sample)))
            {
                let mut kwargs = kwargs.clone();
                kwargs["max_tokens"] = json!(TOKENS);
                (kwargs["batch_size"], kwargs["ahead"]) = (json!(batch), json!(ahead));
                let serving = &serving;
                scope.spawn(move || {
                    let found = run(serving, name, &kwargs);
                    assert_eq!(found, *wanted, "{name}, windows of {batch}, ahead {ahead}");
                });
            }
        });
    }
    assert!(serving.terminate().success());
}

#[test]
fn samples_without_windows_give_the_answers_of_plain_requests() {
    if !has_device() {
        return;
    }
    let serving = serve();
    check_best(&serving);
    check_embeddings(&serving);
    check_suggestions(&serving);
    assert!(serving.terminate().success());
}

/// The best of several answers is one of those with the same seeds.
fn check_best(serving: &Serving) {
    let prompt = "Tell me a long story.";
    let question = json!([{"role": "user", "content": prompt}]);
    let answers = (3..6).map(|seed| {
        let fields = json!({"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed, "max_tokens": 24});
        sampled(serving, &question, &fields)
    });
    let answers: Vec<_> = answers.collect();
    let kwargs = json!({"prompt": prompt, "n": 3, "max_tokens": 24, "temperature": 2, "seed": 3});
    let best = run(serving, "best_of_n", &kwargs);
    assert!(answers.contains(&best), "{best:?} is none of {answers:?}");
    assert!(answers.iter().any(|answer| *answer != best), "all alike");
}

fn check_embeddings(serving: &Serving) {
    let texts = json!(["A mill.", "A race of many words, and a wheel.", "A mill."]);
    let request = json!({"input": texts}).to_string();
    let wanted = body(&serving.post("/v1/embeddings", &request));
    let wanted = wanted["data"].as_array().expect("vectors").iter();
    let wanted: Vec<_> = wanted.map(|entry| numbers(&entry["embedding"])).collect();
    let found = returned(serving, "embeddings_of_a_list", &json!({"texts": texts}));
    let found = found.as_array().expect("vectors").iter();
    let found: Vec<_> = found.map(numbers).collect();
    assert_eq!(found, wanted);
    assert_ne!(found[0], found[1]);
}

fn numbers(vector: &Json) -> Vec<f32> {
    let entries = vector.as_array().expect("a vector").iter();
    entries
        .map(|entry| entry.as_f64().expect("a number") as f32)
        .collect()
}

/// The client chooses the tokens of the plain answer, and each is what the model suggests.
fn check_suggestions(serving: &Serving) {
    let wanted = plain(serving, &json!([{"role": "user", "content": PROMPT}]));
    let request = json!({"content": wanted, "add_special": false});
    let ids = body(&serving.post("/tokenize", &request.to_string()));
    let ids = ids["tokens"].as_array().expect("tokens").clone();
    let kwargs = json!({"kwargs": {"prompt": PROMPT, "max_tokens": ids.len()}}).to_string();
    let (mut run, mut written) = (None, 0);
    let mut write = |bytes: &[u8]| {
        let run = run.get_or_insert_with(|| begun(serving, bytes));
        let path = format!("/v1/runs/{run}/channels/chosen");
        let more = json!({"ids": ids[written..]}).to_string();
        let told = body(&serving.post(&path, &more));
        written += told["written"].as_u64().map_or(0, |count| count as usize);
        true
    };
    let head = "POST /v1/workflows/external_sampling/runs HTTP/1.1";
    let address = serving.url();
    let address = address.trim_start_matches("http://");
    let reading = read_watched(address, head, &kwargs, PATIENCE, &mut write);
    let events = reading.expect("a response").events;
    let suggested = events.iter().filter_map(|event| {
        let event: Json = serde_json::from_str(&event.data).ok()?;
        Some(event["t"].as_str()?.to_owned())
    });
    assert_eq!(suggested.collect::<String>(), wanted);
    assert_eq!(value_of(serving, &run.expect("a run")), wanted);
}

/// The id of a run whose response begins with these bytes, once it reads its channel.
fn begun(serving: &Serving, bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(bytes).into_owned();
    let id = stream_id(&head);
    let path = format!("/v1/runs/{id}/channels/chosen");
    wait_until("the channel is there", || {
        let reply = serving.post(&path, r#"{"ids": []}"#);
        reply.starts_with("HTTP/1.1 200")
    });
    id
}
