//! Anthropic's format, byte for byte.

use crate::support::client::{Client, Head, get, post};
use crate::support::named::{call, send, set_fields};
use crate::support::{Rig, config, fake, vocab};
use engine::EngineConfig;
use serde_json::{Value, json};
use server::Keys;
use std::sync::Arc;

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const VERSION: &str = "anthropic-version: 2023-06-01\r\n";
const NO_STOP: &str = r#""stop_reason":null,"stop_sequence":null"#;

/// A message that always says "hello": the model may want something else, the bias does not let it.
fn hello(over: &Value) -> Value {
    let mut body = json!({
        "model": "fake", "messages": [{"role": "user", "content": "hi"}], "temperature": 0,
        "logit_bias": {vocab::WORD.to_string(): 100}, "max_tokens": 3,
    });
    set_fields(&mut body, over);
    body
}

/// The text with its id, which differs each time, made equal.
fn fixed(text: &str) -> String {
    let (before, id) = text.split_once("\"id\":\"msg_").expect("an id");
    let after = id.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    assert_eq!(id.len() - after.len(), 32, "128 bits");
    format!("{before}\"id\":\"msg_X{after}")
}

fn usage(input: u64, output: u64) -> String {
    format!(
        "\"usage\":{{\"input_tokens\":{input},\"cache_creation_input_tokens\":0,\
         \"cache_read_input_tokens\":0,\"output_tokens\":{output},\"service_tier\":\"standard\"}}"
    )
}

fn event(kind: &str, rest: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n")
}

fn start() -> String {
    let naming = r#""id":"msg_X","type":"message","role":"assistant","model":"fake""#;
    let rest = format!(
        ",\"message\":{{{naming},\"content\":[],{NO_STOP},{}}}",
        usage(2, 0)
    );
    event("message_start", &rest)
}

fn block() -> String {
    let block = r#","index":0,"content_block":{"type":"text","text":""}"#;
    event("content_block_start", block)
}

fn delta(text: &str) -> String {
    let delta = format!(",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}");
    event("content_block_delta", &delta)
}

fn counted(stop: &str, output: u64) -> String {
    let rest = format!(",\"delta\":{{{stop}}},{}", usage(2, output));
    event("message_delta", &rest)
}

fn stepwise(body: &Value) -> (Head, String) {
    let (head, text) = Rig::gated(fake(), config()).stepwise(MESSAGES, body);
    (head, fixed(&text))
}

#[test]
fn streamed_message() {
    let (head, text) = stepwise(&hello(&json!({"stream": true})));
    assert_eq!(head.status, 200);
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(head.get("cache-control"), Some("no-cache"));
    assert!(
        head.get("request-id")
            .is_some_and(|id| id.starts_with("req-"))
    );
    assert_eq!(head.get("request-id"), head.get("x-request-id"));
    let said = delta("hello");
    let want = [
        start(),
        block(),
        said.clone(),
        said.clone(),
        said,
        event("content_block_stop", ",\"index\":0"),
        counted(r#""stop_reason":"max_tokens","stop_sequence":null"#, 3),
        event("message_stop", ""),
    ];
    assert_eq!(text, want.concat());
}

#[test]
fn non_streaming_message() {
    let rig = Rig::start();
    let reply = post(rig.addr, MESSAGES, &hello(&json!({})));
    assert_eq!(reply.head.status, 200);
    assert_eq!(reply.head.get("content-type"), Some("application/json"));
    let want = format!(
        "{{\"id\":\"msg_X\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"fake\",\
         \"content\":[{{\"type\":\"text\",\"text\":\"hellohellohello\"}}],\
         \"stop_reason\":\"max_tokens\",\"stop_sequence\":null,{}}}",
        usage(2, 3)
    );
    assert_eq!(fixed(&reply.body), want);
}

#[test]
fn stop_sequences_are_named_and_do_not_leak() {
    let stops = json!({"stream": true, "stop_sequences": ["x", "lohe"]});
    let (_, text) = stepwise(&hello(&stops));
    let want = [
        start(),
        block(),
        delta("hel"),
        event("content_block_stop", ",\"index\":0"),
        counted(r#""stop_reason":"stop_sequence","stop_sequence":"lohe""#, 2),
        event("message_stop", ""),
    ];
    assert_eq!(text, want.concat());
    let rig = Rig::start();
    let whole = post(
        rig.addr,
        MESSAGES,
        &hello(&json!({"stop_sequences": ["hello"]})),
    )
    .json();
    assert_eq!(whole["content"], json!([]), "nothing was said before it");
    assert_eq!(
        (&whole["stop_reason"], &whole["stop_sequence"]),
        (&json!("stop_sequence"), &json!("hello"))
    );
}

#[test]
fn empty_answer_has_no_block() {
    let silent = json!({"stream": true, "logit_bias": {vocab::EOS.to_string(): 100}});
    let (_, text) = stepwise(&hello(&silent));
    let want = [
        start(),
        counted(r#""stop_reason":"end_turn","stop_sequence":null"#, 0),
        event("message_stop", ""),
    ];
    assert_eq!(text, want.concat());
}

#[test]
fn cancelled_message_has_an_error() {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(MESSAGES, &hello(&json!({"stream": true})));
    let head = client.head();
    let mut text = client.chunk().expect("message_start");
    rig.gate.allow(1);
    text.push_str(&client.chunk().expect("a token"));
    let path = format!("/v1/streams/{}", head.get("x-stream-id").expect("a name"));
    assert_eq!(
        call(&rig, "DELETE", &path, "", &Value::Null).head.status,
        202
    );
    rig.gate.open();
    text.push_str(&client.body());
    let error = r#","error":{"type":"api_error","message":"the request was cancelled","details":{"error_code":"cancelled"}}"#;
    let told = fixed(&text);
    let tail = told.strip_prefix(&[start(), block(), delta("hello")].concat());
    let tail = tail.expect("what was made comes first");
    assert!(tail.ends_with(&event("error", error)), "{tail}");
    assert!(tail.contains(&format!("\"delta\":{{{NO_STOP}}}")), "{tail}");
    assert!(!tail.contains("message_stop"), "{tail}");
}

#[test]
fn errors_have_their_types() {
    let rig = Rig::start();
    let reply = post(rig.addr, MESSAGES, &json!({"messages": [{"role": "user"}]}));
    assert_eq!(reply.head.status, 400);
    let want = concat!(
        r#"{"type":"error","error":{"type":"invalid_request_error","#,
        r#""message":"messages[0].content: is required; max_tokens: is required","#,
        r#""details":{"error_code":"invalid_value","errors":[{"field":"messages[0].content","#,
        r#""constraint":"is required"},{"field":"max_tokens","constraint":"is required"}]}}}"#
    );
    assert_eq!(reply.body, want);
    for (path, body, status, kind) in [
        (
            MESSAGES,
            hello(&json!({"model": "other"})),
            404,
            "not_found_error",
        ),
        (COUNT, json!({"messages": []}), 400, "invalid_request_error"),
        ("/v1/messages/batches", json!({}), 404, "not_found_error"),
    ] {
        let reply = post(rig.addr, path, &body);
        let told = reply.json();
        assert_eq!(reply.head.status, status, "{path}: {told}");
        assert_eq!(
            (&told["type"], &told["error"]["type"]),
            (&json!("error"), &json!(kind))
        );
    }
}

/// Promise (APIs): a conversation to be kept by the server (`thread`) is rejected with the error on which Anthropic's
/// clients fall back.
/// Also held by `cargo xtask clients`.
#[test]
fn threads_are_rejected_as_clients_expect() {
    let rig = Rig::start();
    let want = concat!(
        r#"{"type":"error","error":{"type":"invalid_request_error","#,
        r#""message":"thread: this server stores no conversations: send all messages without thread","#,
        r#""details":{"error_code":"thread_unsupported_request","errors":[{"field":"thread","#,
        r#""constraint":"thread: this server stores no conversations: send all messages without thread"}],"#,
        r#""unsupported":["thread"]}}}"#
    );
    for thread in [
        json!({"type": "create"}),
        json!({"type": "continue", "previous_message_id": "msg_x"}),
    ] {
        // What else is wrong is told when the client comes back without a thread.
        for over in [json!({}), json!({"stream": true}), json!({"max_tokens": 0})] {
            let mut body = hello(&over);
            body["thread"] = thread.clone();
            let reply = post(rig.addr, MESSAGES, &body);
            assert_eq!((reply.head.status, &*reply.body), (400, want), "{body}");
        }
    }
    let reply = post(rig.addr, MESSAGES, &hello(&json!({"thread": null})));
    assert_eq!(reply.head.status, 200, "{}", reply.body);
}

#[test]
fn ignored_fields_are_named_in_the_headers() {
    let rig = Rig::start();
    let header = "x-millrace-ignored-fields";
    for stream in [false, true] {
        let known = json!({"stream": stream, "metadata": {"user_id": "u"}, "speed": "fast"});
        let reply = post(rig.addr, MESSAGES, &hello(&known));
        assert_eq!(reply.head.get(header), None, "{known}");
        let unknown = json!({"stream": stream, "new_field": 1, "prompt_embeds": "x"});
        let reply = post(rig.addr, MESSAGES, &hello(&unknown));
        let told = reply.head.get(header);
        assert_eq!(told, Some("new_field, prompt_embeds"), "{}", reply.body);
    }
}

#[test]
fn full_server_is_overloaded() {
    let keys = Arc::new(Keys::anonymous());
    let rig = Rig::early(fake(), EngineConfig::default(), config(), keys);
    let reply = post(rig.addr, MESSAGES, &hello(&json!({})));
    let told = reply.json();
    assert_eq!(reply.head.status, 529, "{told}");
    assert_eq!(told["error"]["type"], "overloaded_error");
    assert_eq!(told["error"]["details"]["error_code"], "model_loading");
    assert!(reply.head.get("retry-after").is_some());
}

#[test]
fn counted_tokens_equal_the_usage_of_an_answer() {
    let rig = Rig::start();
    let rows = [
        (json!({"messages": [{"role": "user", "content": "hi"}]}), 2),
        (
            json!({"system": "abc", "messages": [{"role": "user", "content": "hi"}]}),
            5,
        ),
        // More than any answer could have: counted all the same, out of everybody's way.
        (
            json!({"messages": [{"role": "user", "content": "x".repeat(100_000)}]}),
            100_000,
        ),
    ];
    for (body, want) in rows {
        let reply = post(rig.addr, COUNT, &body);
        assert_eq!(reply.body, format!("{{\"input_tokens\":{want}}}"));
    }
}

#[test]
fn cached_tokens_are_counted_separately() {
    let rig = Rig::start();
    let ask = hello(&json!({"messages": [{"role": "user", "content": "x".repeat(40)}]}));
    let counts = |ask: &Value| {
        let usage = post(rig.addr, MESSAGES, ask).json()["usage"].clone();
        (
            usage["input_tokens"].as_u64(),
            usage["cache_read_input_tokens"].as_u64(),
        )
    };
    assert_eq!(counts(&ask), (Some(40), Some(0)));
    assert_eq!(counts(&ask), (Some(8), Some(32)), "two full pages of 16");
}

#[test]
fn models_in_both_shapes() {
    let rig = Rig::start();
    let card = json!({
        "type": "model", "id": "fake", "display_name": "fake", "created_at": "1970-01-01T00:00:07.000Z",
        "lifecycle": "active", "max_input_tokens": 512, "max_tokens": 512,
    });
    let ask = |path: &str| call(&rig, "GET", path, VERSION, &Value::Null);
    let page = json!({"data": [card], "has_more": false, "first_id": "fake", "last_id": "fake"});
    assert_eq!(ask("/v1/models?limit=1").json(), page);
    assert_eq!(ask("/v1/models/fake").json(), card);
    let none = json!({"data": [], "has_more": false, "first_id": null, "last_id": null});
    assert_eq!(ask("/v1/models?after_id=fake").json(), none);
    for (path, status) in [("/v1/models/other", 404), ("/v1/models?limit=x", 400)] {
        let reply = ask(path);
        assert_eq!(reply.head.status, status);
        assert_eq!(reply.json()["type"], "error");
    }
    assert_eq!(get(rig.addr, "/v1/models/fake").json()["object"], "model");
}

#[test]
fn resumed_message_continues_at_its_cursor() {
    let rig = Rig::start();
    let ask = hello(&json!({"stream": true}));
    let mut client = send(&rig, "POST", MESSAGES, "x-stream-resumable: 1\r\n", &ask);
    let head = client.head();
    let whole = client.body();
    let path = format!(
        "/v1/streams/{}/events",
        head.get("x-stream-id").expect("a name")
    );
    let place = whole.lines().find_map(|line| line.strip_prefix("id: "));
    let place = place.expect("the first delta's place");
    let fields = format!("last-event-id: {place}\r\n");
    let rest = call(&rig, "GET", &path, &fields, &Value::Null).body;
    assert!(
        !rest.contains("message_start") && !rest.contains("content_block_start"),
        "{rest}"
    );
    let hellos = |text: &str| text.matches("hello").count();
    let first = whole.split("\n\n").nth(2).expect("the first delta");
    assert_eq!(hellos(&rest), 3 - hellos(first), "{whole}\n{rest}");
    assert!(rest.contains("\"stop_reason\":\"max_tokens\""), "{rest}");
}
