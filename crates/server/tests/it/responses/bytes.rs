//! What clients see, byte for byte.

use super::{RESPONSES, create, hello};
use crate::support::client::{Client, Head, post};
use crate::support::named::call;
use crate::support::{Rig, config, fake, vocab};
use serde_json::{Value, json};

const REPEATS: &str = concat!(
    r#""frequency_penalty":0.0,"instructions":null,"max_output_tokens":3,"max_tool_calls":null,"metadata":{},"#,
    r#""parallel_tool_calls":true,"presence_penalty":0.0,"previous_response_id":null,"prompt_cache_key":null,"#,
    r#""reasoning":{"effort":null,"summary":null},"safety_identifier":null,"service_tier":"default","#,
    r#""store":true,"temperature":0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"#,
    r#""top_logprobs":0,"top_p":0.95,"truncation":"disabled","user":null"#
);

/// The text with ids and times, which differ each time, made equal.
fn fixed(text: &str) -> String {
    let cut = |text: &str, before: &str, is_part: fn(char) -> bool, put: &str| {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |out, part| {
            out + before + put + part.trim_start_matches(is_part)
        })
    };
    let text = cut(text, "\"resp_", |c| c.is_ascii_hexdigit(), "X");
    let text = cut(&text, "\"msg_", |c| c.is_ascii_hexdigit(), "X");
    let text = cut(&text, "\"completed_at\":", |c| c.is_ascii_digit(), "");
    cut(&text, "\"created_at\":", |c| c.is_ascii_digit(), "0")
}

fn response(status: &str, details: &str, output: &str, usage: &str) -> String {
    let completed = if status == "completed" { "" } else { "null" };
    format!(
        "{{\"id\":\"resp_X\",\"object\":\"response\",\"created_at\":0,\"completed_at\":{completed},\"status\":\"{status}\",\
         \"background\":false,\"error\":null,\"incomplete_details\":{details},\"model\":\"fake\",\
         {REPEATS},\"output\":[{output}],\"usage\":{usage}}}"
    )
}

fn part(text: &str) -> String {
    format!(r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":"{text}"}}"#)
}

fn item(status: &str, content: &str) -> String {
    format!(
        r#"{{"id":"msg_X","type":"message","status":"{status}","role":"assistant","content":[{content}]}}"#
    )
}

fn usage(output: u64) -> String {
    format!(
        "{{\"input_tokens\":2,\"input_tokens_details\":{{\"cached_tokens\":0,\"cache_write_tokens\":0}},\
         \"output_tokens\":{output},\"output_tokens_details\":{{\"reasoning_tokens\":0}},\
         \"total_tokens\":{}}}",
        2 + output
    )
}

fn event(kind: &str, number: u64, rest: &str) -> String {
    format!(
        "event: response.{kind}\ndata: {{\"type\":\"response.{kind}\",\"sequence_number\":{number},{rest}}}\n\n"
    )
}

const CONTENT: &str = r#""output_index":0,"item_id":"msg_X","content_index":0"#;

/// A response of "hello" three times, cut at the tokens that were asked for.
fn three_hellos() -> String {
    let begun = response("in_progress", "null", "", "null");
    let delta = |number| {
        event(
            "output_text.delta",
            number,
            &format!("{CONTENT},\"delta\":\"hello\",\"logprobs\":[]"),
        )
    };
    let text = "hellohellohello";
    let whole = item("incomplete", &part(text));
    let details = r#"{"reason":"max_output_tokens"}"#;
    let last = response("incomplete", details, &whole, &usage(3));
    let added = format!("\"output_index\":0,\"item\":{}", item("in_progress", ""));
    [
        event("created", 0, &format!("\"response\":{begun}")),
        event("in_progress", 1, &format!("\"response\":{begun}")),
        event("output_item.added", 2, &added),
        event(
            "content_part.added",
            3,
            &format!("{CONTENT},\"part\":{}", part("")),
        ),
        delta(4),
        delta(5),
        delta(6),
        event(
            "output_text.done",
            7,
            &format!("{CONTENT},\"text\":\"{text}\",\"logprobs\":[]"),
        ),
        event(
            "content_part.done",
            8,
            &format!("{CONTENT},\"part\":{}", part(text)),
        ),
        event(
            "output_item.done",
            9,
            &format!("\"output_index\":0,\"item\":{whole}"),
        ),
        event("incomplete", 10, &format!("\"response\":{last}")),
    ]
    .concat()
}

fn stepwise(body: &Value) -> (Head, String) {
    let (head, text) = Rig::gated(fake(), config()).stepwise(RESPONSES, body);
    (head, fixed(&text))
}

#[test]
fn streamed_response() {
    let (head, text) = stepwise(&hello(&json!({"stream": true})));
    assert_eq!(head.status, 200);
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(text, three_hellos());
}

#[test]
fn non_streaming_response() {
    let rig = Rig::start();
    let reply = create(&rig, &json!({}));
    assert_eq!(reply.head.get("content-type"), Some("application/json"));
    let details = r#"{"reason":"max_output_tokens"}"#;
    let whole = item("incomplete", &part("hellohellohello"));
    let want = response("incomplete", details, &whole, &usage(3));
    assert_eq!(fixed(&reply.body), want);
    let stream = reply.head.get("x-stream-id").expect("a name");
    assert_eq!(reply.json()["id"], format!("resp_{stream}"));
}

#[test]
fn request_fields_are_repeated() {
    let rig = Rig::start();
    let asked = json!({
        "instructions": "be brief", "metadata": {"a": "line\nbreak"}, "top_p": 0.5, "user": "me",
        "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}, "store": false,
    });
    for stream in [false, true] {
        let mut over = asked.clone();
        over["stream"] = json!(stream);
        let reply = create(&rig, &over);
        let told = if stream {
            let last = reply.body.trim_end().rsplit("data: ").next();
            let last: Value = serde_json::from_str(last.expect("an event")).expect("JSON");
            last["response"].clone()
        } else {
            reply.json()
        };
        for (name, value) in [
            ("instructions", json!("be brief")),
            ("metadata", asked["metadata"].clone()),
            ("top_p", json!(0.5)),
            ("user", json!("me")),
            ("store", json!(false)),
            ("reasoning", json!({"effort": "low", "summary": null})),
            (
                "text",
                json!({"format": {"type": "text"}, "verbosity": "low"}),
            ),
        ] {
            assert_eq!(told[name], value, "{name}");
        }
        assert_eq!(told["usage"]["input_tokens"], 10, "instructions are read");
    }
}

#[test]
fn empty_answer_is_an_empty_message() {
    let silent = json!({"stream": true, "logit_bias": {vocab::EOS.to_string(): 100}});
    let (_, text) = stepwise(&hello(&silent));
    let whole = item("completed", &part(""));
    assert!(text.contains(&whole), "{text}");
    assert!(!text.contains("output_text.delta"), "{text}");
    let last = response("completed", "null", &whole, &usage(0));
    let last = event("completed", 7, &format!("\"response\":{last}"));
    assert!(text.ends_with(&last), "{text}");
}

#[test]
fn log_probabilities_are_included_on_request() {
    let rig = Rig::start();
    let include = json!({"include": ["message.output_text.logprobs"]});
    for over in [json!({"top_logprobs": 2}), include] {
        let told = create(&rig, &over).json();
        let list = told["output"][0]["content"][0]["logprobs"].clone();
        let list = list.as_array().expect("a list");
        assert_eq!(list.len(), 3);
        assert_eq!(list[0]["token"], "hello");
        let alternatives = list[0]["top_logprobs"].as_array().map(Vec::len);
        assert_eq!(
            alternatives,
            Some(told["top_logprobs"].as_u64().unwrap() as usize)
        );
    }
}

#[test]
fn cancelled_response_has_its_status() {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(RESPONSES, &hello(&json!({"stream": true})));
    let head = client.head();
    let mut text = client.chunk().expect("it begins");
    rig.gate.allow(1);
    text.push_str(&client.chunk().expect("a token"));
    let path = format!("/v1/streams/{}", head.get("x-stream-id").expect("a name"));
    let deleted = call(&rig, "DELETE", &path, "", &Value::Null);
    assert_eq!(deleted.head.status, 202);
    rig.gate.open();
    text.push_str(&client.body());
    let last = text.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(last.starts_with("event: response.failed\n"), "{last}");
    assert!(last.contains(r#""status":"cancelled""#), "{last}");
    // The object's codes are a list that clients know by heart; this is none of it.
    assert!(last.contains(r#""error":null"#), "{last}");
    assert!(
        last.contains(r#""status":"incomplete""#),
        "its message: {last}"
    );
}

#[test]
fn structured_output_holds() {
    let rig = Rig::start();
    let schema = json!({
        "type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"],
        "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "name": "it", "strict": true, "schema": schema});
    let body = json!({
        "input": "hi", "text": {"format": format}, "max_output_tokens": 400, "seed": 3,
    });
    let told = post(rig.addr, RESPONSES, &body).json();
    assert_eq!(told["status"], "completed", "{told}");
    assert_eq!(told["text"]["format"], body["text"]["format"]);
    let said: Value = serde_json::from_str(super::text_of(&told)).expect("JSON");
    assert!(matches!(said["a"].as_str(), Some("x" | "y")), "{said}");
}
