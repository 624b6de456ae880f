//! Ollama's format over sockets: byte for byte where bytes are promised.

mod support;

use engine::fake::{FakeConfig, Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::ServerConfig;
use std::time::Duration;
use support::client::{Client, Head, Reply, get, post};
use support::named::{call, kept, send, stream_id};
use support::{Rig, config, fake, vocab, wait_until};

const CHAT: &str = "/api/chat";
const GENERATE: &str = "/api/generate";

/// Options that make the model say "hello" three times.
fn hello(over: &Value) -> Value {
    let mut options = json!({
        "temperature": 0, "num_predict": 3, "repeat_penalty": 1,
        "logit_bias": {vocab::WORD.to_string(): 100},
    });
    for (name, value) in over.as_object().unwrap() {
        options[name] = value.clone();
    }
    options
}

fn chat(over: &Value, options: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut body = json!({"model": "fake", "messages": messages, "options": hello(options)});
    for (name, value) in over.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn generate(over: &Value, options: &Value) -> Value {
    let mut body = chat(over, options);
    body.as_object_mut().unwrap().remove("messages");
    body["prompt"] = json!("hi");
    body
}

/// The text with times and durations made equal.
fn fixed(text: &str) -> String {
    let cut = |text: &str, before: &str, until: char| {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(before) {
            let (head, tail) = rest.split_at(at + before.len());
            out.push_str(head);
            out.push('T');
            rest = &tail[tail.find(until).expect("it ends")..];
        }
        out + rest
    };
    let text = cut(text, "\"created_at\":\"", '"');
    let text = cut(&text, "\"load_duration\":", ',');
    let text = cut(&text, "\"total_duration\":", ',');
    let text = cut(&text, "\"prompt_eval_duration\":", ',');
    let text = cut(&text, "logprob\":", ',');
    // The last of an object.
    let text = text.replace("}\n", ",}\n");
    let text = cut(&text, "\"eval_duration\":", ',');
    text.replace(",}\n", "}\n")
}

/// One line at a time: the model does a pass, the client reads what it gave.
fn stepwise(path: &str, body: &Value, last: &str) -> (Head, String) {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(path, body);
    let mut text = String::new();
    rig.gate.allow(1);
    let head = client.head();
    while !text.contains(last) {
        text.push_str(&client.chunk().expect("it goes on"));
        rig.gate.allow(1);
    }
    assert_eq!(client.chunk(), None);
    (head, fixed(&text))
}

const OPEN: &str = r#"{"model":"fake","created_at":"T","message":{"role":"assistant","content":""#;
const DONE: &str = r#""total_duration":T,"load_duration":T,"prompt_eval_count":2,"prompt_eval_duration":T,"eval_count":3,"eval_duration":T"#;

#[test]
fn a_chat_streamed() {
    let (head, text) = stepwise(CHAT, &chat(&json!({}), &json!({})), "\"done\":true");
    assert_eq!(head.status, 200);
    for (name, value) in [
        ("content-type", "application/x-ndjson"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(head.get(name), Some(value));
    }
    let delta = format!("{OPEN}hello\"}},\"done\":false}}\n");
    let last = format!("{OPEN}\"}},\"done\":true,\"done_reason\":\"length\",{DONE}}}\n");
    assert_eq!(text, delta.repeat(3) + &last);
}

#[test]
fn a_chat_streamed_as_events() {
    let body = chat(&json!({}), &json!({}));
    let want = {
        let delta = format!("data: {OPEN}hello\"}},\"done\":false}}\n\n");
        let last =
            format!("data: {OPEN}\"}},\"done\":true,\"done_reason\":\"length\",{DONE}}}\n\n");
        delta.repeat(3) + &last + "data: [DONE]\n\n"
    };
    let (head, text) = stepwise("/api/chat?format=sse", &body, "[DONE]");
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(text, want);
    let rig = Rig::start();
    for (accept, kind) in [
        ("text/event-stream", "text/event-stream"),
        ("*/*", "application/x-ndjson"),
        ("application/json", "application/x-ndjson"),
    ] {
        let fields = format!("accept: {accept}\r\n");
        let reply = call(&rig, "POST", CHAT, &fields, &body);
        assert_eq!(reply.head.get("content-type"), Some(kind), "{accept}");
    }
}

#[test]
fn a_question_streamed_and_whole() {
    let open = r#"{"model":"fake","created_at":"T","response":""#;
    let context = format!("[104,105{}]", format!(",{}", vocab::WORD).repeat(3));
    let last = format!("\"done\":true,\"done_reason\":\"length\",{DONE},\"context\":{context}}}");
    let (_, text) = stepwise(GENERATE, &generate(&json!({}), &json!({})), "\"done\":true");
    let delta = format!("{open}hello\",\"done\":false}}\n");
    assert_eq!(text, delta.repeat(3) + open + "\"," + &last + "\n");
    let rig = Rig::start();
    let whole = post(
        rig.addr,
        GENERATE,
        &generate(&json!({"stream": false}), &json!({})),
    );
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    let text = fixed(&(whole.body + "\n"));
    assert_eq!(text, format!("{open}hellohellohello\",{last}\n"));
}

#[test]
fn a_chat_whole() {
    let rig = Rig::start();
    let reply = post(rig.addr, CHAT, &chat(&json!({"stream": false}), &json!({})));
    let want =
        format!("{OPEN}hellohellohello\"}},\"done\":true,\"done_reason\":\"length\",{DONE}}}\n");
    assert_eq!(fixed(&(reply.body + "\n")), want);
}

fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let lines = reply.body.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn text(lines: &[Value]) -> String {
    let piece = |line: &Value| {
        let text = line["message"]["content"].as_str();
        text.or(line["response"].as_str()).unwrap().to_owned()
    };
    lines.iter().map(piece).collect()
}

#[test]
fn stop_strings_and_the_models_own_end() {
    let rig = Rig::start();
    let eos = json!({vocab::EOS.to_string(): 100});
    for (options, says, reason, tokens) in [
        (json!({"stop": ["lohe"]}), "hel", "stop", 2),
        (json!({"stop": "ll"}), "he", "stop", 1),
        (json!({"stop": ["hellox"]}), "hellohellohello", "length", 3),
        (json!({"logit_bias": eos}), "", "stop", 0),
    ] {
        for stream in [false, true] {
            let body = chat(&json!({"stream": stream}), &options);
            let lines = lines(&post(rig.addr, CHAT, &body));
            let last = lines.last().unwrap();
            assert_eq!(text(&lines), says, "{options}");
            assert_eq!(
                (&last["done"], &last["done_reason"]),
                (&json!(true), &json!(reason))
            );
            if tokens > 0 {
                assert_eq!(last["eval_count"], tokens, "{options}");
            }
        }
    }
}

#[test]
fn durations_add_up() {
    let rig = Rig::start();
    for stream in [false, true] {
        let lines = lines(&post(
            rig.addr,
            CHAT,
            &chat(&json!({"stream": stream}), &json!({})),
        ));
        let last = lines.last().unwrap();
        let ns = |name: &str| last[name].as_u64().expect(name);
        let parts = ns("load_duration") + ns("prompt_eval_duration") + ns("eval_duration");
        assert_eq!(ns("total_duration"), parts, "{last}");
        assert!(ns("total_duration") > 0);
    }
}

#[test]
fn logprobs_streamed_are_those_of_the_whole() {
    let rig = Rig::start();
    let ask = |stream: bool| {
        let over = json!({"stream": stream, "logprobs": true, "top_logprobs": 2});
        lines(&post(
            rig.addr,
            CHAT,
            &chat(&over, &json!({"stop": ["zz"]})),
        ))
    };
    let all = |lines: &[Value]| -> Vec<Value> {
        let lists = lines
            .iter()
            .filter_map(|line| line["logprobs"].as_array().cloned());
        lists.flatten().collect()
    };
    let whole = all(&ask(false));
    assert_eq!(whole.len(), 3);
    assert_eq!(whole[0]["token"], "hello");
    assert_eq!(whole[0]["top_logprobs"].as_array().unwrap().len(), 2);
    assert_eq!(all(&ask(true)), whole);
}

#[test]
fn context_goes_on_where_the_answer_ended() {
    let rig = Rig::start();
    let first = post(
        rig.addr,
        GENERATE,
        &generate(&json!({"stream": false}), &json!({})),
    )
    .json();
    let context = first["context"].clone();
    assert_eq!(context.as_array().unwrap().len(), 5);
    let over = json!({"stream": false, "context": context});
    let second = post(rig.addr, GENERATE, &generate(&over, &json!({}))).json();
    assert_eq!(
        second["prompt_eval_count"], 7,
        "five of the context and two new"
    );
    let ids = second["context"].as_array().unwrap();
    assert_eq!(ids[..5], *first["context"].as_array().unwrap());
    assert_eq!(ids.len(), 10);
    let raw = post(
        rig.addr,
        GENERATE,
        &generate(&json!({"stream": false, "raw": true}), &json!({})),
    );
    assert_eq!(raw.json().get("context"), None);
}

#[test]
fn a_template_of_the_requests_own() {
    let rig = Rig::start();
    let over = json!({"stream": false, "system": "sys", "template": "[{{ .System }}|{{ .Prompt }}]{{ .Response }}x"});
    let reply = post(rig.addr, GENERATE, &generate(&over, &json!({}))).json();
    let ids: Vec<_> = "[sys|hi]".bytes().map(|byte| json!(byte)).collect();
    assert_eq!(reply["context"].as_array().unwrap()[..8], ids);
    // What was typed is no control token, what the template says is one.
    let over = json!({"stream": false, "template": "<|eos|>{{ .Prompt }}", "prompt": "<|eos|>"});
    let mut body = generate(&over, &json!({}));
    body["prompt"] = json!("<|eos|>");
    let reply = post(rig.addr, GENERATE, &body).json();
    let ids = reply["context"].as_array().unwrap();
    assert_eq!(ids[0], vocab::EOS);
    assert_eq!(ids.iter().filter(|id| **id == json!(vocab::EOS)).count(), 1);
}

#[test]
fn errors_before_and_after_the_first_line() {
    let rig = Rig::start();
    let mut unknown = chat(&json!({}), &json!({}));
    unknown["model"] = json!("nobody");
    let rows = [
        (CHAT, unknown, 404, "model 'nobody' not found"),
        (
            CHAT,
            chat(&json!({}), &json!({"temperature": 9})),
            400,
            "options.temperature",
        ),
        (
            CHAT,
            chat(&json!({"format": "json"}), &json!({})),
            400,
            "format: is not supported",
        ),
        (
            CHAT,
            chat(&json!({"tools": [{}]}), &json!({})),
            400,
            "tools: is not supported",
        ),
        (
            GENERATE,
            generate(&json!({"suffix": "x"}), &json!({})),
            400,
            "suffix",
        ),
        ("/api/show", json!({}), 400, "model: is required"),
        ("/api/show", json!({"model": "nobody"}), 404, "not found"),
        ("/api/pull", json!({"model": "x"}), 501, "not supported"),
        (
            "/api/embed",
            json!({"model": "fake", "input": "x"}),
            501,
            "not supported",
        ),
        (
            "/api/embeddings",
            json!({"model": "fake", "prompt": "x"}),
            501,
            "not supported",
        ),
        ("/api/create", json!({"model": "x"}), 501, "not supported"),
        (
            "/api/copy",
            json!({"source": "a", "destination": "b"}),
            501,
            "not supported",
        ),
        ("/api/nothing", json!({}), 404, "nothing at this path"),
    ];
    for (path, body, status, words) in rows {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, status, "{path}: {}", reply.body);
        assert_eq!(reply.head.get("content-type"), Some("application/json"));
        let told = reply.json();
        let error = told["error"].as_str().expect("a text");
        assert!(error.contains(words), "{path}: {error}");
    }
    let faulty = FakeConfig {
        faults: vec![Fault {
            at: FaultAt::Call(4),
            kind: FaultKind::NotFinite,
        }],
        ..fake()
    };
    let rig = Rig::with(faulty, config());
    let reply = post(
        rig.addr,
        CHAT,
        &chat(&json!({}), &json!({"num_predict": 9})),
    );
    let told = lines(&reply);
    let last = told.last().unwrap();
    assert_eq!(last["code"], "inference_failed", "{}", reply.body);
    assert_eq!(last["error"], "the model failed on this request");
    assert!(last["eval_count"].as_u64().unwrap() > 0);
    assert!(
        told.iter().all(|line| line["done"] != true),
        "no second ending"
    );
}

#[test]
fn cancelled_and_out_of_time() {
    let rig = Rig::gated(fake(), config());
    let mut client = send(
        &rig,
        "POST",
        CHAT,
        "",
        &chat(&json!({}), &json!({"num_predict": 99})),
    );
    rig.gate.allow(2);
    let head = client.head();
    assert!(client.chunk().unwrap().contains("hello"));
    let path = format!("/v1/streams/{}", stream_id(&head));
    assert_eq!(
        call(&rig, "DELETE", &path, "", &Value::Null).head.status,
        202
    );
    rig.gate.open();
    let rest = client.body();
    let last = rest.lines().last().unwrap();
    assert!(
        last.starts_with(r#"{"error":"the request was cancelled","code":"cancelled""#),
        "{rest}"
    );
    let mut late = config();
    late.clocks.total = Some(Duration::from_millis(100));
    let rig = Rig::gated(fake(), late);
    let body = chat(&json!({"stream": false}), &json!({"num_predict": 99}));
    let client = send(&rig, "POST", CHAT, "", &body);
    wait_until("it has a step", || rig.engine.stats().running() > 0);
    rig.gate.allow(1);
    wait_until("its time is over", || {
        rig.gate.allow(1);
        rig.engine.stats().running() == 0
    });
    let mut client = client;
    let reply = client.reply();
    assert_eq!(reply.head.status, 504, "{}", reply.body);
    assert!(reply.json()["error"].as_str().unwrap().contains("(total)"));
}

#[test]
fn who_waits_is_told_in_lines_that_say_nothing() {
    let brief = ServerConfig {
        keep_alive: Duration::from_millis(20),
        ..config()
    };
    let rig = Rig::gated(fake(), brief);
    let mut client = send(&rig, "POST", CHAT, "", &chat(&json!({}), &json!({})));
    rig.gate.allow(1);
    client.head();
    let mut told = String::new();
    while !told.contains("\"content\":\"\"") {
        told += &client.chunk().expect("it waits");
    }
    rig.gate.open();
    told += &client.body();
    let said: String = told
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["message"]["content"].clone()
        })
        .map(|piece| piece.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, "hellohellohello");
}

#[test]
fn lines_resume_at_their_cursor() {
    let rig = Rig::with(fake(), kept());
    let body = chat(&json!({}), &json!({"num_predict": 6}));
    let reply = call(&rig, "POST", CHAT, "x-stream-resumable: 1\r\n", &body);
    let id = stream_id(&reply.head);
    let told = lines(&reply);
    assert_eq!(text(&told), "hello".repeat(6));
    for (at, line) in told.iter().enumerate() {
        let cursor = line["cursor"].as_str().expect("every line names its place");
        let path = format!("/v1/streams/{id}/events?after={cursor}");
        let rest = call(&rig, "GET", &path, "", &Value::Null);
        assert_eq!(rest.head.get("content-type"), Some("application/x-ndjson"));
        let rest = match rest.body.as_str() {
            "" => Vec::new(),
            _ => lines(&rest),
        };
        let both: Vec<_> = told[..=at].iter().chain(&rest).cloned().collect();
        assert_eq!(text(&both), text(&told), "after {cursor}");
        let ends = both.iter().filter(|line| line["done"] == true).count();
        assert_eq!(ends, 1, "after {cursor}");
    }
    let path = format!("/v1/streams/{id}/events?format=sse");
    let events = call(&rig, "GET", &path, "", &Value::Null);
    assert_eq!(events.head.get("content-type"), Some("text/event-stream"));
    assert!(events.body.starts_with("id: ") && events.body.ends_with("data: [DONE]\n\n"));
    let path = format!("/v1/streams/{id}/events?dialect=ollama.generate");
    let again = lines(&call(&rig, "GET", &path, "", &Value::Null));
    assert_eq!(text(&again), text(&told), "in another dialect");
}

#[test]
fn what_there_is() {
    let rig = Rig::start();
    let root = get(rig.addr, "/");
    assert!(root.body.starts_with("Ollama is running"), "{}", root.body);
    assert_eq!(send(&rig, "HEAD", "/", "", &Value::Null).head().status, 200);
    let version = get(rig.addr, "/api/version").json();
    assert_eq!(version["version"].as_str().unwrap().split('.').count(), 3);
    let tags = get(rig.addr, "/api/tags").json();
    assert_eq!(tags["models"].as_array().unwrap().len(), 1);
    let tag = &tags["models"][0];
    assert_eq!(
        (&tag["name"], &tag["model"]),
        (&json!("fake:latest"), &json!("fake:latest"))
    );
    assert_eq!(tag["digest"].as_str().unwrap().len(), 64);
    let ps = get(rig.addr, "/api/ps").json();
    let running = &ps["models"][0];
    assert_eq!(
        (&running["name"], &running["context_length"]),
        (&json!("fake:latest"), &json!(512))
    );
    for name in ["fake", "fake:latest"] {
        let shown = post(rig.addr, "/api/show", &json!({"model": name})).json();
        assert_eq!(shown["capabilities"], json!(["completion"]));
        assert_eq!(shown["details"]["format"], "gguf");
        let mut body = chat(&json!({"stream": false}), &json!({}));
        body["model"] = json!(name);
        assert_eq!(post(rig.addr, CHAT, &body).head.status, 200);
    }
}

#[test]
fn what_asks_for_no_answer() {
    let rig = Rig::start();
    for (path, field) in [(CHAT, "message"), (GENERATE, "response")] {
        let told = post(
            rig.addr,
            path,
            &json!({"model": "fake", "keep_alive": "5m"}),
        )
        .json();
        assert_eq!(
            (&told["done"], &told["done_reason"]),
            (&json!(true), &json!("load"))
        );
        assert!(told.get(field).is_some());
        let go = post(rig.addr, path, &json!({"model": "fake", "keep_alive": 0}));
        assert_eq!(go.head.status, 501, "{}", go.body);
        let unknown = post(rig.addr, path, &json!({"model": "nobody"}));
        assert_eq!(unknown.head.status, 404);
    }
}

/// As curl posts, and as pages post without asking.
#[test]
fn bodies_need_not_be_called_json_but_by_browsers() {
    let rig = Rig::start();
    let body = chat(&json!({"stream": false}), &json!({})).to_string();
    let posted = |fields: &str| {
        let mut client = Client::connect(rig.addr);
        let length = body.len();
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\r\n"
        );
        client.send((head + &body).as_bytes());
        client.reply().head.status
    };
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let json = "content-type: application/json\r\n";
    let origin = "origin: http://example.com\r\n";
    assert_eq!(posted(form), 200);
    assert_eq!(posted(""), 200);
    assert_eq!(posted(&format!("{form}{origin}")), 415);
    assert_eq!(
        posted(&format!("{form}sec-fetch-site: cross-site\r\n")),
        415
    );
    assert_eq!(posted(&format!("{json}{origin}")), 200);
}
