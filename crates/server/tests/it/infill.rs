//! Gaps between two texts: `/infill` as llama.cpp's server answers it, and `suffix` in the other formats.
//!
//! Promise (APIs): a gap between two texts is filled in llama.cpp's, OpenAI's and Ollama's shape; the prompt has
//! llama.cpp's order and fits the context; a model without the tokens names the field.
//! Also held by `text/src/tokenizer/special_tokens/tests.rs`, `generate/src/infill_prompt.rs`,
//! `wire/src/llama_cpp/infill_request.rs`, `server/tests/it/golden`.

use crate::support::client::post;
use crate::support::named::set_fields;
use crate::support::vocab::INFILL;
use crate::support::{Rig, config, echo, sse};
use serde_json::{Value, json};

const INFILL_PATH: &str = "/infill";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/api/generate";

/// Members of an object with text, and of the last one, in llama.cpp's order.
const TEXT_MEMBERS: &str = "index content tokens stop id_slot tokens_predicted tokens_evaluated";
const LAST_MEMBERS: &str = "index content tokens id_slot stop model tokens_predicted tokens_evaluated \
    generation_settings prompt has_new_line truncated stop_type stopping_word tokens_cached timings";
const TIMINGS: &str = "cache_n prompt_n prompt_ms prompt_per_token_ms prompt_per_second \
    predicted_n predicted_ms predicted_per_token_ms predicted_per_second";

fn gap(over: &Value) -> Value {
    let mut body = json!({
        "input_prefix": "ab", "prompt": "c", "input_suffix": "d", "n_predict": 5, "ignore_eos": true,
        "seed": 3,
    });
    set_fields(&mut body, over);
    body
}

/// Members of an object in the order of its text.
fn members(object: &str, value: &Value) -> String {
    let value = value.as_object().expect("an object");
    let mut names: Vec<&str> = value.keys().map(String::as_str).collect();
    names.sort_by_key(|name| object.find(&format!("\"{name}\":")));
    names.join(" ")
}

#[test]
fn infill_answers_with_the_members_of_llama_cpp() {
    let rig = Rig::start();
    let reply = post(rig.addr, INFILL_PATH, &gap(&json!({"return_tokens": true})));
    let whole = reply.json();
    assert_eq!(members(&reply.body, &whole), LAST_MEMBERS);
    let timings = &whole["timings"];
    assert_eq!(members(&timings.to_string(), timings).split(' ').count(), 9);
    assert!(
        TIMINGS.split(' ').all(|name| timings[name].is_number()),
        "{timings}"
    );
    // The three marks, and four letters.
    assert_eq!(whole["tokens_evaluated"], 7);
    assert_eq!(whole["prompt"], "<think>abc</think>d<tool_call>");
    let ends = [
        "stop",
        "stop_type",
        "stopping_word",
        "tokens_predicted",
        "truncated",
    ];
    let ends = ends.map(|name| whole[name].clone());
    assert_eq!(
        ends,
        [
            json!(true),
            json!("limit"),
            json!(""),
            json!(5),
            json!(false)
        ]
    );
    assert_eq!(whole["tokens"].as_array().map(Vec::len), Some(5));

    let streamed = post(rig.addr, INFILL_PATH, &gap(&json!({"stream": true})));
    let frames = sse::frames(&streamed.body);
    let (last, texts) = frames.split_last().expect("frames");
    let (mut text, mut tokens) = (String::new(), Vec::new());
    for frame in texts {
        let object: Value = serde_json::from_str(&frame.data).expect("JSON");
        assert_eq!(members(&frame.data, &object), TEXT_MEMBERS);
        assert_eq!(object["stop"], false);
        text.push_str(object["content"].as_str().expect("text"));
        tokens.extend(object["tokens"].as_array().cloned().expect("tokens"));
        assert_eq!(object["tokens_predicted"], tokens.len());
    }
    let object: Value = serde_json::from_str(&last.data).expect("no [DONE] follows");
    assert_eq!(members(&last.data, &object), LAST_MEMBERS);
    assert_eq!(
        (&json!(text), &json!(tokens)),
        (&whole["content"], &whole["tokens"])
    );
    assert_eq!(
        (&object["content"], &object["stop_type"]),
        (&json!(""), &json!("limit"))
    );
}

#[test]
fn stop_types_are_those_of_llama_cpp() {
    let rig = Rig::start();
    let first = |over: Value| post(rig.addr, INFILL_PATH, &gap(&over)).json();
    let text = first(json!({}))["content"]
        .as_str()
        .expect("text")
        .to_owned();
    let stopped = first(json!({"stop": ["\u{7}", &text[1..2]]}));
    assert_eq!(stopped["stop_type"], "word");
    assert_eq!(stopped["stopping_word"], text[1..2]);
    let ended = first(json!({"ignore_eos": false, "logit_bias": {"256": 100}}));
    assert_eq!(
        (&ended["stop_type"], &ended["content"]),
        (&json!("eos"), &json!(""))
    );
    let line = first(json!({"logit_bias": {"10": 100}, "n_predict": 0}));
    assert_eq!(
        (&line["has_new_line"], &line["tokens_predicted"]),
        (&json!(true), &json!(1))
    );
}

#[test]
fn suffix_fills_the_gap_in_each_format() {
    let rig = Rig::start();
    let body = json!({"prompt": "ab", "suffix": "c", "max_tokens": 3, "return_token_ids": true});
    let told = post(rig.addr, COMPLETIONS, &body).json();
    let [prefix, suffix, middle] = INFILL;
    let ids = json!([prefix, 97, 98, suffix, 99, middle]);
    assert_eq!(told["choices"][0]["prompt_token_ids"], ids);
    let body = json!({"model": "fake", "prompt": "ab", "suffix": "c", "stream": false});
    let told = post(rig.addr, GENERATE, &body).json();
    assert_eq!(told["prompt_eval_count"], 6, "{told}");
    let ids = ids.as_array().cloned().expect("ids");
    let context = told["context"]
        .as_array()
        .expect("ids of prompt and answer");
    assert!(context.starts_with(&ids), "{told}");
}

#[test]
fn other_files_are_part_of_the_prompt_and_make_room() {
    let rig = Rig::start();
    let told = |text: &str| {
        let over =
            json!({"input_extra": [{"filename": "x.h", "text": text}], "return_tokens": true});
        post(rig.addr, INFILL_PATH, &gap(&over)).json()
    };
    // A vocabulary without a token for files.
    let form = "<think>abc</think>d<tool_call>";
    let short = told("int f();");
    assert_eq!(
        short["prompt"],
        format!("\n\n--- snippet ---\n\nint f();{form}")
    );
    let long = told(&"y".repeat(10_000));
    assert_eq!(
        long["tokens_evaluated"], 507,
        "all but the answer's five of 512"
    );
    assert_eq!(long["prompt"], "y".repeat(500) + form);
}

#[test]
fn model_without_infill_tokens_names_the_field() {
    let rig = Rig::in_channels(Box::new(echo::Echo::new()), config());
    for (path, body, field) in [
        (INFILL_PATH, gap(&json!({})), "input_suffix"),
        (COMPLETIONS, json!({"prompt": "a", "suffix": "b"}), "suffix"),
        (
            GENERATE,
            json!({"model": "fake", "prompt": "a", "suffix": "b"}),
            "suffix",
        ),
    ] {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 400, "{path}: {}", reply.body);
        let want = format!("{field}: this model fills no gaps");
        assert!(reply.body.contains(&want), "{path}: {}", reply.body);
    }
}
