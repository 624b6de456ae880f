//! What answers say, however they are read.

use super::{CHAT, GENERATE, chat, generate, lines, text};
use crate::support::client::post;
use crate::support::named::{call, kept, stream_id};
use crate::support::{Rig, fake, vocab};
use serde_json::{Value, json};

#[test]
fn stop_strings_and_end_of_sequence() {
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
fn streamed_logprobs_equal_the_non_streaming_ones() {
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
fn context_continues_after_the_answer() {
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
fn template_in_the_request_is_used() {
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
    assert!(
        events.body.starts_with("retry: 250\nid: ") && events.body.ends_with("data: [DONE]\n\n")
    );
    let path = format!("/v1/streams/{id}/events?dialect=ollama.generate");
    let again = lines(&call(&rig, "GET", &path, "", &Value::Null));
    assert_eq!(text(&again), text(&told), "in another dialect");
}

#[test]
fn stream_keeps_its_format_when_resumed() {
    let rig = Rig::start();
    for stream in [false, true] {
        let over = json!({"stream": stream, "format": {"type": "boolean"}});
        let body = chat(&over, &json!({"num_predict": 20}));
        let lines = lines(&post(rig.addr, CHAT, &body));
        assert!(matches!(&*text(&lines), "true" | "false"), "{lines:?}");
        assert_eq!(lines.last().unwrap()["done_reason"], "stop");
    }
}
