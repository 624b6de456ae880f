//! Millrace in front of other Millrace processes: the same streams as of one process, while upstreams die and stall.
//!
//! Promise (Upstreams): streams through `millrace serve --upstream` are those of one process in every wire protocol,
//! while upstreams are killed and stopped.
//!
//! Promise (Upstreams): token ids of an answer continue the same answer.

use crate::cluster::conversation::{SETTINGS, without_cached};
use crate::cluster::processes::{address, json};
use crate::kill::event_reader::{Reading, read_watched};
use crate::kill::images::RED_SQUARE;
use crate::kill::requests::{Request, all_requests, in_every_protocol};
use crate::kill::transcript::Transcript;
use crate::support::{Folder, Serving, command};
use crate::vision_proxy::chat;
use crate::vision_proxy::seer::Seer;
use serde_json::{Value, json};
use std::process::Stdio;
use testing::wait::{PATIENCE, wait_until};

/// Key of the upstreams.
const KEY: &str = "sk-of-the-upstreams";
/// Requests that upstreams can compute.
const CASES: [&str; 4] = [
    "greedy",
    "sampled, n = 2",
    "hot with penalties",
    "stop strings",
];
/// Tokens of a long answer.
const LONG: u32 = 400;

/// Requests of all protocols with long answers.
fn requests() -> Vec<Request> {
    let own = all_requests().into_iter();
    let own = own.filter(|request| CASES.contains(&request.case));
    let lengthen = |mut request: Request| {
        let body = &mut request.body;
        for limit in ["/max_tokens", "/max_output_tokens", "/options/num_predict"] {
            if let Some(limit) = body.pointer_mut(limit) {
                *limit = json!(LONG);
            }
        }
        if request.path.ends_with("completions") {
            body["ignore_eos"] = json!(true);
        }
        request
    };
    own.chain(in_every_protocol()).map(lengthen).collect()
}

/// Reads all requests at the same time; `meanwhile` is called while they are read. Returns what each client received.
fn read_all(server: &Serving, meanwhile: impl FnOnce()) -> Vec<(&'static str, Transcript)> {
    std::thread::scope(|scope| {
        let read = |request: Request| {
            scope.spawn(move || {
                let head = format!("POST {} HTTP/1.1", request.path);
                let (address, body) = (address(server), request.body.to_string());
                let reading = read_watched(&address, &head, &body, PATIENCE, &mut |_| true);
                let reading = reading.expect("a response");
                let is_whole = (reading.status, reading.is_complete);
                assert_eq!(is_whole, (200, true), "{}", request.case);
                let mut transcript = Transcript::default();
                for event in &reading.events {
                    transcript.add_event(&without_cached(&event.data));
                }
                (request.case, transcript)
            })
        };
        let readers: Vec<_> = requests().into_iter().map(read).collect();
        meanwhile();
        let read = |reader: std::thread::ScopedJoinHandle<'_, _>| reader.join().expect("a reader");
        readers.into_iter().map(read).collect()
    })
}

/// Processes behind a front.
fn start_upstreams(count: usize) -> Vec<Option<Serving>> {
    let vars = [&SETTINGS[..], &[("MILLRACE_API_KEY", KEY)]].concat();
    let start = |_| {
        let args = ["serve", "--bind", "127.0.0.1:0"];
        Some(Serving::start_with(&args, &vars, Stdio::inherit()))
    };
    (0..count).map(start).collect()
}

/// A process in front of these, with their key in a file.
struct Front {
    serving: Serving,
    _key: Folder,
}

fn start_front(urls: &[String], flags: &[&str]) -> Front {
    start_front_with(urls, flags, &[])
}

fn start_front_with(urls: &[String], flags: &[&str], vars: &[(&str, &str)]) -> Front {
    let key = Folder::new("upstream-key");
    let file = key.0.join("key");
    std::fs::write(&file, KEY).unwrap();
    let file = file.display().to_string();
    let mut args = vec!["serve", "--bind", "127.0.0.1:0"];
    args.extend(urls.iter().flat_map(|url| ["--upstream", url]));
    args.extend(flags);
    let own = [
        ("MILLRACE_UPSTREAM_API_KEY_FILE", &*file),
        ("MILLRACE_UPSTREAM_SILENCE_TIMEOUT_MS", "1000"),
        ("MILLRACE_UPSTREAM_RESPONSE_TIMEOUT_MS", "2000"),
    ];
    let vars = [&SETTINGS[..], &own, vars].concat();
    let serving = Serving::early(&args, &vars, Stdio::inherit());
    Front { serving, _key: key }
}

fn urls(upstreams: &[Option<Serving>]) -> Vec<String> {
    upstreams.iter().flatten().map(Serving::url).collect()
}

fn wait_for_front(front: &mut Front, upstreams: usize) {
    let line = front.serving.line();
    assert!(line.contains(" serves "), "{line:?}");
    wait_until("the front sees the upstreams", || {
        sample(&front.serving, "millrace_upstreams{state=\"usable\"}") == upstreams as f64
    });
}

/// The value of a sample of a metric.
fn sample(server: &Serving, name: &str) -> f64 {
    let reply = server.get("/metrics");
    let value = reply
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .trim()
        .parse()
        .unwrap()
}

/// What each client receives of one process that is not disturbed.
fn undisturbed() -> Vec<(&'static str, Transcript)> {
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let server = Serving::start_with(&args, &SETTINGS, Stdio::inherit());
    read_all(&server, || {})
}

/// Streams in every protocol, greedy and sampled, while one upstream is killed and one is stopped.
#[test]
fn streams_outlive_upstreams() {
    let mut upstreams = start_upstreams(3);
    let mut front = start_front(&urls(&upstreams), &[]);
    wait_for_front(&mut front, 3);
    let tokens = |count: u32| {
        wait_until("tokens of upstreams", || {
            sample(&front.serving, "millrace_upstream_tokens_total") >= f64::from(count)
        });
    };
    let received = read_all(&front.serving, || {
        tokens(LONG / 4);
        drop(upstreams[0].take()); // the drop kills
        tokens(LONG);
        upstreams[1].as_ref().unwrap().signal("STOP");
    });
    for (received, expected) in received.iter().zip(undisturbed()) {
        assert_eq!(received, &expected);
    }
    assert!(sample(&front.serving, "millrace_upstream_continuations_total") > 0.0);
    assert!(
        sample(
            &front.serving,
            "millrace_upstream_failures_total{reason=\"cut\"}"
        ) > 0.0
    );
    assert_eq!(
        sample(&front.serving, "millrace_upstream_calls_in_flight"),
        0.0
    );
    upstreams[1].as_ref().unwrap().signal("CONT");
    assert!(front.serving.terminate().success());
}

/// Whether a completion has begun.
fn has_text(bytes: &[u8]) -> bool {
    bytes.windows(7).any(|part| part == b"\"text\":")
}

/// What a client reads of a completion.
fn read_completion(
    server: &Serving,
    fields: Value,
    watch: &mut dyn FnMut(&[u8]) -> bool,
) -> Reading {
    let mut body =
        json!({"prompt": "Once upon a time", "max_tokens": 60, "seed": 3, "stream": true});
    let (Some(members), Value::Object(fields)) = (body.as_object_mut(), fields) else {
        panic!("objects");
    };
    members.extend(fields);
    let (address, body) = (address(server), body.to_string());
    let head = "POST /v1/completions HTTP/1.1";
    read_watched(&address, head, &body, PATIENCE, watch).expect("a response")
}

/// Text, token ids and prompt ids of a completion, and the error at its end.
fn parts(reading: &Reading) -> (String, Vec<u64>, Vec<u64>, Option<Value>) {
    let (mut text, mut ids, mut prompt, mut error) = (String::new(), Vec::new(), Vec::new(), None);
    let numbers = |value: &Value| -> Vec<u64> {
        let numbers = value.as_array().into_iter().flatten();
        numbers.map(|id| id.as_u64().unwrap()).collect()
    };
    for event in reading.events.iter().filter(|event| event.data != "[DONE]") {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        let choice = &event["choices"][0];
        text += choice["text"].as_str().unwrap_or_default();
        ids.extend(numbers(&choice["token_ids"]));
        prompt.extend(numbers(&choice["prompt_token_ids"]));
        if event["error"].is_object() {
            error = Some(event["error"].clone());
        }
    }
    (text, ids, prompt, error)
}

#[test]
fn answer_that_cannot_continue_exactly_ends_with_an_error() {
    let mut upstreams = start_upstreams(3);
    // Asked as any other server, so that nothing is known of the random numbers.
    let mut front = start_front(&urls(&upstreams), &["--upstream-api", "openai"]);
    wait_for_front(&mut front, 3);
    let fields = |temperature: f64| json!({"temperature": temperature, "ignore_eos": true, "max_tokens": LONG});
    // The first upstream of the settings is used where all are idle.
    let expected = [0.9, 0.0].map(|temperature| {
        let reading = read_completion(&front.serving, fields(temperature), &mut |_| true);
        parts(&reading).0
    });
    for (victim, (temperature, expected)) in [0.9, 0.0].into_iter().zip(expected).enumerate() {
        let mut kill_at_first_text = |bytes: &[u8]| {
            if has_text(bytes) {
                drop(upstreams[victim].take());
            }
            true
        };
        let reading = read_completion(&front.serving, fields(temperature), &mut kill_at_first_text);
        let (text, .., error) = parts(&reading);
        if temperature > 0.0 {
            assert_eq!(error.expect("an error")["code"], "upstream_failed");
            assert!(
                expected.starts_with(&text) && text.len() < expected.len(),
                "{text:?}"
            );
        } else {
            assert_eq!((text, error), (expected, None));
        }
    }
    assert_eq!(
        sample(&front.serving, "millrace_upstream_continuations_total"),
        1.0
    );
    drop(upstreams);
    wait_until("the front says why it is not ready", || {
        let reply = front.serving.get("/health/readiness");
        reply.starts_with("HTTP/1.1 503") && reply.contains("no upstream can be used")
    });
    expect_no_engine(&front.serving);
}

/// A request for a stream has the status of the error, where the error comes before the first event.
fn expect_no_engine(front: &Serving) {
    let messages = json!([{"role": "user", "content": "x"}]);
    let chat = json!({"messages": messages, "stream": true, "max_tokens": 4}).to_string();
    let text = json!({"prompt": "x", "stream": true, "max_tokens": 4}).to_string();
    let response = json!({"input": "x", "stream": true}).to_string();
    std::thread::scope(|scope| {
        for (path, status, body) in [
            ("/v1/chat/completions", 503, &chat),
            ("/v1/completions", 503, &text),
            ("/v1/responses", 503, &response),
            ("/v1/messages", 529, &chat),
            ("/api/chat", 503, &chat),
            ("/completion", 503, &text),
        ] {
            scope.spawn(move || {
                let reply = front.post(path, body);
                let head = format!("HTTP/1.1 {status}");
                assert!(reply.starts_with(&head), "{path}: {reply}");
                assert!(reply.contains("retry-after: "), "{path}: {reply}");
            });
        }
    });
}

#[test]
fn front_without_an_upstream_says_why_it_is_not_ready() {
    let front = start_front(&["http://127.0.0.1:9".to_owned()], &[]);
    wait_until("the reason", || {
        let reply = front.serving.get("/health/readiness");
        let reason = json(&reply)["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        reply.starts_with("HTTP/1.1 503")
            && reason.contains("http://127.0.0.1:9: ")
            && !reason.contains("not asked")
    });
    let upstreams = start_upstreams(1);
    let front = start_front(&urls(&upstreams), &["--upstream-model", "another"]);
    wait_until("the models are named", || {
        let reply = front.serving.get("/health/readiness");
        reply.starts_with("HTTP/1.1 503")
            && reply.contains("upstream.model")
            && reply.contains("millrace-mini")
    });
}

#[test]
fn requests_through_a_front_are_cancelled_and_refused() {
    let upstreams = start_upstreams(1);
    let mut front = start_front(&urls(&upstreams), &[]);
    wait_for_front(&mut front, 1);
    let body = json!({"prompt": "x", "max_tokens": 4, "response_format": {"type": "json_object"}});
    let reply = front.serving.post("/v1/completions", &body.to_string());
    assert!(
        reply.starts_with("HTTP/1.1 400") && reply.contains("response_format"),
        "{reply}"
    );
    let long = json!({"max_tokens": 900, "ignore_eos": true});
    read_completion(&front.serving, long, &mut |bytes| !has_text(bytes));
    for server in [upstreams[0].as_ref().unwrap(), &front.serving] {
        wait_until("nothing runs", || {
            json(&server.get("/health"))["engine"]["running"] == 0
        });
    }
}

/// Promise (Images): a model whose tokens come from an upstream answers about images that another server describes.
#[test]
fn model_of_an_upstream_answers_about_described_images() {
    let upstreams = start_upstreams(1);
    let urls = urls(&upstreams);
    let mut refusing = start_front(&urls, &[]);
    let seer = Seer::saying("a red square on white");
    let mut front = start_front_with(&urls, &[], &seer.variables());
    wait_for_front(&mut front, 1);
    let request = chat(&[RED_SQUARE], &json!({"return_token_ids": true}));
    let reply = front
        .serving
        .post("/v1/chat/completions", &request.to_string());
    let answer = json(&reply);
    let usage = &answer["usage"];
    let expected =
        json!({"model": "seer", "prompt_tokens": 90, "completion_tokens": 8, "cached": 0});
    assert_eq!(usage["vision_proxy"], expected, "{reply}");
    // The upstream has the description in its prompt, and has computed the answer.
    let tokens = json!({"tokens": answer["prompt_token_ids"]}).to_string();
    let prompt = json(&front.serving.post("/detokenize", &tokens));
    let prompt = prompt["content"].as_str().unwrap();
    let described = "[Image 1, described by seer: a red square on white]\n";
    assert!(prompt.contains(described), "{prompt}");
    let computed = sample(&front.serving, "millrace_upstream_tokens_total");
    assert_eq!(json!(computed), json!(usage["completion_tokens"].as_f64()));
    // A process in front of upstreams loads no model that could describe.
    let mut local = command(&["serve", "--bind", "127.0.0.1:0", "--upstream", &urls[0]]);
    local.env("MILLRACE_VISION_PROXY_MODEL", "millrace-mini-vision");
    let output = local.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("set vision.proxy.address"),
        "{said}"
    );
    // Without another server the model refuses images.
    wait_for_front(&mut refusing, 1);
    let reply = refusing
        .serving
        .post("/v1/chat/completions", &request.to_string());
    assert!(
        reply.starts_with("HTTP/1.1 400") && reply.contains("upstream servers are sent no images"),
        "{reply}"
    );
}

#[test]
fn token_ids_of_an_answer_continue_the_same_answer() {
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let server = Serving::start_with(&args, &SETTINGS, Stdio::inherit());
    let sampled = json!({"temperature": 0.9, "return_token_ids": true, "repetition_penalty": 1.2});
    let with = |more: Value| {
        let mut fields = sampled.clone();
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fields
    };
    let read = |fields: Value| parts(&read_completion(&server, fields, &mut |_| true));
    let (text, ids, prompt, _) = read(sampled.clone());
    let reply = server.post("/tokenize", r#"{"content": "Once upon a time"}"#);
    assert_eq!(json(&reply)["tokens"], json!(prompt));
    for given in [1, 7, ids.len() - 1] {
        let more = json!({"prompt": prompt, "continue_token_ids": ids[..given]});
        let continued = read(with(more));
        assert_eq!(
            (&continued.0, &continued.1),
            (&text, &ids),
            "after {given} tokens"
        );
    }
    // The second choice of a request, alone.
    let mut body = with(json!({"prompt": prompt, "n": 2, "max_tokens": 60, "seed": 3}));
    let both = json(&server.post("/v1/completions", &body.to_string()));
    assert_eq!(both["choices"][0]["token_ids"], json!(ids));
    body["n"] = json!(1);
    body["continue_choice"] = json!(1);
    let second = json(&server.post("/v1/completions", &body.to_string()));
    assert_eq!(
        second["choices"][0]["token_ids"],
        both["choices"][1]["token_ids"]
    );
    assert_ne!(second["choices"][0]["token_ids"], json!(ids));
    // A chat has the ids of its prompt beside its choices.
    let chat = json!({"messages": [{"role": "user", "content": "Hello"}], "return_token_ids": true, "max_tokens": 9});
    let chat = json(&server.post("/v1/chat/completions", &chat.to_string()));
    let count = |value: &Value| json!(value.as_array().map(Vec::len));
    assert_eq!(
        count(&chat["prompt_token_ids"]),
        chat["usage"]["prompt_tokens"]
    );
    assert_eq!(
        count(&chat["choices"][0]["token_ids"]),
        chat["usage"]["completion_tokens"]
    );
}
