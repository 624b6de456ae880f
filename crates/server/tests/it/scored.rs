//! Prompts that are told with their log-probabilities: `echo` with `logprobs`.
//!
//! Promise (APIs): an echoed prompt with log-probabilities has, token for token, those of the same tokens when
//! sampled; nothing in the prompt stops the answer or counts as generated.
//! Also held by `generate/src/constraint/prompt_logprobs.rs`.

use crate::support::Rig;
use crate::support::client::{get, post};
use crate::support::named::{call, set_fields};
use crate::support::vocab::EOS;
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const PROMPT: &str = "abcabcxyz";

fn body(over: &Value) -> Value {
    let mut body = json!({"prompt": PROMPT, "temperature": 0, "max_tokens": 6, "ignore_eos": true});
    set_fields(&mut body, over);
    body
}

fn told(rig: &Rig, over: &Value) -> Value {
    let reply = post(rig.addr, COMPLETIONS, &body(over));
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    reply.json()
}

fn choice(rig: &Rig, over: &Value) -> Value {
    told(rig, over)["choices"][0].clone()
}

/// What the model says of `next` after these tokens, before anything is done to it.
fn odds(rig: &Rig, before: &[u8], next: u8) -> Value {
    let (ids, bias) = (before.to_vec(), json!({next.to_string(): 100}));
    let over = json!({"prompt": ids, "max_tokens": 1, "logit_bias": bias, "logprobs": 3});
    let answer = choice(rig, &over);
    assert_eq!(answer["text"], char::from(next).to_string());
    answer["logprobs"].clone()
}

#[test]
fn prompt_logprobs_equal_those_of_sampled_tokens() {
    let rig = Rig::start();
    let echoed = choice(&rig, &json!({"echo": true, "logprobs": 3}));
    let plain = choice(&rig, &json!({"logprobs": 3}));
    let answer = plain["text"].as_str().expect("a text");
    assert_eq!(echoed["text"], format!("{PROMPT}{answer}"));
    assert_eq!(echoed["finish_reason"], "length");
    let list = &echoed["logprobs"];
    for name in ["token_logprobs", "top_logprobs"] {
        assert_eq!(list[name][0], Value::Null, "{name}");
    }
    assert_eq!(list["tokens"][0], "a");
    for (at, next) in PROMPT.bytes().enumerate().skip(1) {
        let want = odds(&rig, &PROMPT.as_bytes()[..at], next);
        for name in ["tokens", "token_logprobs", "top_logprobs"] {
            assert_eq!(list[name][at], want[name][0], "{name} {at}");
        }
        assert_eq!(list["text_offset"][at], at);
    }
    for at in 0..answer.len() {
        for name in ["tokens", "token_logprobs", "top_logprobs"] {
            let said = &plain["logprobs"][name][at];
            assert_eq!(&list[name][PROMPT.len() + at], said, "{name} {at}");
        }
    }
    let tokens = list["tokens"].as_array().expect("tokens");
    assert_eq!(tokens.len(), PROMPT.len() + answer.len());
}

#[test]
fn prompt_is_scored_without_an_answer() {
    let rig = Rig::start();
    let whole = told(&rig, &json!({"echo": true, "logprobs": 0, "max_tokens": 0}));
    assert_eq!(whole["choices"][0]["text"], PROMPT);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    let usage = &whole["usage"];
    assert_eq!(usage["prompt_tokens"], PROMPT.len());
    assert_eq!(usage["completion_tokens"], 0);
    let silent = told(&rig, &json!({"echo": true, "max_tokens": 0}));
    assert_eq!(silent["choices"][0]["text"], PROMPT);
    assert_eq!(silent["choices"][0]["logprobs"], Value::Null);
    let counted = told(&rig, &json!({"echo": true, "logprobs": 0}));
    assert_eq!(counted["usage"]["completion_tokens"], 6);
}

#[test]
fn streamed_score_equals_the_non_streaming_one() {
    let rig = Rig::start();
    let over = json!({"echo": true, "logprobs": 2, "n": 2, "prompt": [PROMPT, "hello abc"], "seed": 3, "temperature": 1});
    let whole = told(&rig, &over);
    let mut over = over;
    over["stream"] = json!(true);
    over["stream_options"] = json!({"include_usage": true});
    let reply = post(rig.addr, COMPLETIONS, &body(&over));
    let mut parts = vec![(String::new(), Vec::new()); 4];
    let mut usage = Value::Null;
    for chunk in reply.chunks() {
        for choice in chunk["choices"].as_array().expect("choices") {
            let index =
                usize::try_from(choice["index"].as_u64().expect("an index")).expect("small");
            parts[index]
                .0
                .push_str(choice["text"].as_str().expect("a text"));
            let odds = choice["logprobs"]["token_logprobs"].as_array();
            parts[index].1.extend(odds.into_iter().flatten().cloned());
        }
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
    }
    for (index, (text, odds)) in parts.into_iter().enumerate() {
        let whole = &whole["choices"][index];
        assert_eq!(whole["text"], text);
        assert_eq!(whole["logprobs"]["token_logprobs"], Value::Array(odds));
    }
    for count in ["prompt_tokens", "completion_tokens"] {
        assert_eq!(whole["usage"][count], usage[count], "{count}");
    }
}

#[test]
fn stop_strings_in_the_prompt_do_not_stop_the_answer() {
    let rig = Rig::start();
    let plain = choice(&rig, &json!({"max_tokens": 12}));
    let answer = plain["text"].as_str().expect("a text");
    let stop = &answer[4..6];
    let at = answer.find(stop).expect("it is there");
    let over = json!({"echo": true, "logprobs": 0, "max_tokens": 12, "stop": ["ca", stop]});
    let echoed = choice(&rig, &over);
    assert!(PROMPT.contains("ca"));
    assert_eq!(
        echoed["text"],
        format!(
            "{PROMPT}{}",
            &answer[..at.min(answer.find("ca").unwrap_or(at))]
        )
    );
    assert_eq!(echoed["finish_reason"], "stop");
}

#[test]
fn stream_usage_counts_the_answer_only() {
    let rig = Rig::start();
    let asked = body(&json!({"echo": true, "logprobs": 1, "stream": true}));
    let reply = call(
        &rig,
        "POST",
        COMPLETIONS,
        "x-stream-resumable: 1\r\n",
        &asked,
    );
    let id = reply.head.get("x-stream-id").expect("its name").to_owned();
    let described = get(rig.addr, &format!("/v1/streams/{id}")).json();
    assert_eq!(described["prompt_tokens"], PROMPT.len());
    assert_eq!(described["completion_tokens"], 6);
}

#[test]
fn unsupported_combinations_are_rejected_by_name() {
    let rig = Rig::start();
    for (over, field, word) in [
        (json!({"presence_penalty": 1}), "presence_penalty", "echo"),
        (
            json!({"frequency_penalty": -1}),
            "frequency_penalty",
            "echo",
        ),
        (json!({"best_of": 2}), "best_of", "echo"),
        (
            json!({"prompt": [97, EOS, 98], "ignore_eos": false}),
            "prompt",
            "ignore_eos",
        ),
        (
            json!({"prompt": "a", "max_tokens": 0}),
            "prompt",
            "two tokens",
        ),
        (
            json!({"echo": false, "max_tokens": 0}),
            "max_tokens",
            "from 1",
        ),
        (
            json!({"max_tokens": u32::MAX, "min_tokens": u32::MAX}),
            "min_tokens",
            "room",
        ),
    ] {
        let mut asked = body(&json!({"echo": true, "logprobs": 1}));
        set_fields(&mut asked, &over);
        let reply = post(rig.addr, COMPLETIONS, &asked);
        assert_eq!(reply.head.status, 400, "{over}");
        let error = &reply.json()["error"];
        assert!(error.to_string().contains(field), "{over}: {error}");
        assert!(error.to_string().contains(word), "{over}: {error}");
    }
}
