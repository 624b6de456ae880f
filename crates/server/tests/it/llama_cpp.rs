//! llama.cpp's own routes: `/completion`, `/props`, `/slots`; and its timings in OpenAI's format.
//!
//! Promise (APIs): `/completion`, `/props` and `/slots` have llama.cpp's members; a prompt of texts and ids is that
//! of the text; a list of slots shows no request of another key.
//! Also held by `server/tests/it/golden`, `wire/src/llama_cpp/completion_request.rs`.

use crate::support::client::{Client, get, post};
use crate::support::named::{RESUMABLE, send, set_fields};
use crate::support::{Rig, config, fake, sse, wait_until};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{SamplingDefaults, ServerConfig};

const COMPLETION: &str = "/completion";

fn body(over: &Value) -> Value {
    let mut body = json!({"prompt": "ab", "n_predict": 5, "ignore_eos": true, "seed": 3});
    set_fields(&mut body, over);
    body
}

#[test]
fn ending_token_has_probabilities() {
    let ends = FakeConfig {
        eos_probability: 0.5,
        ..fake()
    };
    let rig = Rig::with(ends, config());
    let mut ended = 0;
    for seed in 0..8 {
        let over = json!({"ignore_eos": false, "n_predict": 40, "n_probs": 30, "seed": seed, "temperature": 1, "top_k": 0});
        let whole = post(rig.addr, COMPLETION, &body(&over)).json();
        let listed = whole["completion_probabilities"]
            .as_array()
            .expect("a list");
        let predicted = whole["tokens_predicted"].as_u64().expect("a count");
        let is_eos = whole["stop_type"] == "eos";
        ended += u64::from(is_eos);
        assert_eq!(
            listed.len() as u64,
            predicted + u64::from(is_eos),
            "{whole}"
        );
        for entry in listed {
            let top = entry["top_logprobs"].as_array().expect("alternatives");
            assert_eq!(top.len(), 30, "{entry}");
        }
        let mut over = over;
        over["stream"] = json!(true);
        let streamed = post(rig.addr, COMPLETION, &body(&over)).body;
        let told: Vec<Value> = sse::frames(&streamed)
            .iter()
            .flat_map(|frame| {
                let object: Value = serde_json::from_str(&frame.data).expect("JSON");
                object["completion_probabilities"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default()
            })
            .collect();
        assert_eq!(&told, listed, "streamed");
    }
    assert!(ended > 0, "no answer ended by itself");
    rig.wait_until_empty();
}

#[test]
fn completion_has_the_members_of_llama_cpp() {
    let rig = Rig::start();
    let whole = post(rig.addr, COMPLETION, &body(&json!({"return_tokens": true}))).json();
    let tokens = whole["tokens"].as_array().expect("ids").len();
    let facts = [
        "stop",
        "stop_type",
        "tokens_predicted",
        "tokens_evaluated",
        "truncated",
    ];
    let facts = facts.map(|name| whole[name].clone());
    let want = [
        json!(true),
        json!("limit"),
        json!(5),
        json!(2),
        json!(false),
    ];
    assert_eq!((facts, tokens), (want, 5), "{whole}");
    assert_eq!(whole["prompt"], "ab");
    let settings = &whole["generation_settings"];
    for (name, want) in [
        ("seed", json!(3)),
        ("top_k", json!(40)),
        ("n_predict", json!(5)),
        ("ignore_eos", json!(true)),
        ("stream", json!(false)),
    ] {
        assert_eq!(settings[name], want, "{name}");
    }
    let streamed = post(
        rig.addr,
        COMPLETION,
        &body(&json!({"stream": true, "timings_per_token": true})),
    );
    let frames = sse::frames(&streamed.body);
    let objects: Vec<Value> = frames
        .iter()
        .map(|frame| serde_json::from_str(&frame.data).expect("JSON"))
        .collect();
    let text: String = objects
        .iter()
        .map(|object| object["content"].as_str().expect("text"))
        .collect();
    assert_eq!(json!(text), whole["content"]);
    let predicted = objects
        .iter()
        .map(|object| object["timings"]["predicted_n"].as_u64().expect("a count"));
    assert!(predicted.is_sorted(), "{}", streamed.body);
}

#[test]
fn prompt_of_texts_and_ids_is_one_prompt() {
    let rig = Rig::start();
    let told = |prompt: Value| {
        let over = json!({"prompt": prompt, "return_tokens": true});
        post(rig.addr, COMPLETION, &body(&over)).json()
    };
    let text = told(json!("abc"));
    for prompt in [
        json!(["a", 98, "c"]),
        json!([97, "bc"]),
        json!([97, 98, 99]),
        json!([[97, 98, 99]]),
    ] {
        let other = told(prompt.clone());
        assert_eq!(other["prompt"], text["prompt"], "{prompt}");
        assert_eq!(other["content"], text["content"], "{prompt}");
    }
    // A name of a control token in a text is that token.
    assert_eq!(told(json!(["<|bos|>", 97]))["tokens_evaluated"], 2);
}

#[test]
fn probabilities_have_ids() {
    let rig = Rig::start();
    let whole = post(
        rig.addr,
        COMPLETION,
        &body(&json!({"n_probs": 2, "return_tokens": true})),
    )
    .json();
    let listed = whole["completion_probabilities"]
        .as_array()
        .expect("a list");
    let ids: Vec<&Value> = listed.iter().map(|token| &token["id"]).collect();
    let tokens = whole["tokens"].as_array().expect("ids");
    assert_eq!(ids, tokens.iter().collect::<Vec<_>>());
    for token in listed {
        let top = token["top_logprobs"].as_array().expect("a list");
        let sorted = top
            .iter()
            .map(|top| -top["logprob"].as_f64().expect("a number"));
        assert!(top.len() == 2 && sorted.is_sorted(), "{token}");
    }
}

#[test]
fn chat_has_timings_where_asked() {
    let rig = Rig::start();
    let path = "/v1/chat/completions";
    let mut chat = json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": true,
    });
    assert!(post(rig.addr, path, &chat).json()["timings"].is_null());
    chat["timings_per_token"] = json!(true);
    let whole = post(rig.addr, path, &chat).json();
    assert_eq!(whole["timings"]["predicted_n"], 3, "{whole}");
    chat["stream"] = json!(true);
    let streamed = post(rig.addr, path, &chat);
    let frames = sse::frames(&streamed.body);
    let last = frames
        .iter()
        .rev()
        .find(|frame| frame.data.starts_with('{'));
    let last: Value = serde_json::from_str(&last.expect("chunks").data).expect("JSON");
    assert_eq!(last["timings"]["predicted_n"], 3, "{last}");
}

#[test]
fn props_describe_the_model() {
    let rig = Rig::start();
    let props = get(rig.addr, "/props").json();
    assert_eq!(props["model_alias"], "fake");
    assert!(
        props["total_slots"].as_u64().is_some_and(|slots| slots > 0),
        "{props}"
    );
    let defaults = &props["default_generation_settings"];
    let context = get(rig.addr, "/v1/models").json()["data"][0]["max_model_len"].clone();
    assert_eq!(defaults["n_ctx"], context);
    assert_eq!(defaults["params"]["top_k"], 40);
    assert_eq!(
        props["modalities"],
        json!({"vision": false, "audio": false})
    );
}

#[test]
fn slots_show_the_caller_s_choices() {
    let rig = Rig::gated(fake(), config());
    let slots = || {
        get(rig.addr, "/slots")
            .json()
            .as_array()
            .cloned()
            .expect("a list")
    };
    assert!(slots().iter().all(|slot| slot["is_processing"] == false));
    let request = body(&json!({"stream": true, "n_predict": 9, "prompt": "a secret"}));
    let mut client: Client = send(&rig, "POST", COMPLETION, RESUMABLE, &request);
    rig.gate.allow(3);
    let head = client.head();
    let id = head.get("x-stream-id").expect("an id").to_owned();
    wait_until("some tokens are there", || {
        slots()[0]["next_token"][0]["n_decoded"].as_u64() > Some(1)
    });
    let all = slots();
    assert_eq!(
        (&all[0]["is_processing"], &all[0]["id_task"]),
        (&json!(true), &json!(id))
    );
    let next = &all[0]["next_token"][0];
    let counts = ["n_decoded", "n_remain"].map(|name| next[name].as_u64().expect("a count"));
    assert_eq!(counts[0] + counts[1], 9);
    assert_eq!(all[0]["params"]["n_predict"], 9);
    assert!(
        !serde_json::to_string(&all)
            .expect("JSON")
            .contains("secret")
    );
    assert!(all[1..].iter().all(|slot| slot["is_processing"] == false));
    rig.gate.open();
    client.rest(&head);
    wait_until("the slot is free", || slots()[0]["is_processing"] == false);
}

#[test]
fn defaults_of_sampling_are_overridden_by_the_operator_and_by_requests() {
    let config = ServerConfig {
        sampling: SamplingDefaults {
            temperature: Some(0.3),
            repetition_penalty: Some(1.5),
            ..SamplingDefaults::default()
        },
        ..config()
    };
    let rig = Rig::with(fake(), config);
    let names = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty"];
    let values = |settings: &Value| names.map(|name| settings[name].as_f64().expect(name) as f32);
    let ours = [0.3, 40.0, 0.95, 0.05, 1.5];
    let props = get(rig.addr, "/props").json();
    let shown = &props["default_generation_settings"]["params"];
    assert_eq!(values(shown), ours);
    for (over, want) in [
        (json!({}), ours),
        (json!({"temperature": 1}), [1.0, 40.0, 0.95, 0.05, 1.5]),
        (json!({"top_p": 1}), [0.3, 40.0, 1.0, 0.05, 1.5]),
        (
            json!({"temperature": 1, "top_p": 1}),
            [1.0, 0.0, 1.0, 0.0, 1.0],
        ),
        (
            json!({"temperature": 1, "top_p": 1, "top_k": 7}),
            [1.0, 7.0, 1.0, 0.0, 1.0],
        ),
    ] {
        let told = post(rig.addr, COMPLETION, &body(&over)).json();
        assert_eq!(values(&told["generation_settings"]), want, "{over}");
    }
    let shown = post(rig.addr, "/api/show", &json!({"model": "fake"})).json();
    let lines = shown["parameters"].as_str().expect("lines");
    let want = "temperature 0.3\ntop_k 40\ntop_p 0.95\nmin_p 0.05\nrepeat_penalty 1.5";
    assert!(lines.ends_with(want), "{lines}");
    let question = json!({"model": "fake", "input": "hi", "max_output_tokens": 2});
    let response = post(rig.addr, "/v1/responses", &question).json();
    let shown = ["temperature", "top_p"].map(|name| response[name].as_f64().map(|v| v as f32));
    assert_eq!(shown, [Some(0.3), Some(0.95)], "every API has the same");
}
