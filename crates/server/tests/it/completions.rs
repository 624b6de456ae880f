//! Completions of which not all are told.
//!
//! Promise (APIs): `best_of` returns the most likely choices and counts all; reasoning tokens are counted, for every
//! way of cutting the text and for every replay.
//! Also held by `server/tests/it/speech/transcripts.rs :: reasoning_tokens_are_counted`.

use crate::support::Rig;
use crate::support::client::post;
use crate::support::named::set_fields;
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

fn told(rig: &Rig, over: &Value) -> Value {
    let mut body = json!({
        "prompt": ["ab", "c"], "seed": 11, "temperature": 1.5, "max_tokens": 6, "ignore_eos": true,
    });
    set_fields(&mut body, over);
    let reply = post(rig.addr, COMPLETIONS, &body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    reply.json()
}

/// The mean of an answer's log-probabilities.
fn mean(choice: &Value) -> f64 {
    let list = choice["logprobs"]["token_logprobs"].as_array();
    let list = list.expect("they were asked for");
    list.iter()
        .map(|x| x.as_f64().expect("a number"))
        .sum::<f64>()
        / list.len() as f64
}

#[test]
fn best_of_returns_the_most_likely_and_counts_all() {
    let rig = Rig::start();
    let all = told(&rig, &json!({"n": 5, "logprobs": 0}));
    let choices = all["choices"].as_array().expect("choices");
    let mut want = Vec::new();
    for of_a_prompt in choices.chunks(5) {
        let mut ranked: Vec<&Value> = of_a_prompt.iter().collect();
        ranked.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        want.extend(ranked[..2].iter().map(|choice| choice["text"].clone()));
    }
    assert_ne!(want[0], want[1], "there is something to choose");
    for (label, over) in [("plain", json!({})), ("with odds", json!({"logprobs": 0}))] {
        let mut over = over;
        (over["n"], over["best_of"]) = (json!(2), json!(5));
        let best = told(&rig, &over);
        let choices = best["choices"].as_array().expect("choices");
        let texts: Vec<Value> = choices.iter().map(|c| c["text"].clone()).collect();
        assert_eq!(texts, want, "{label}");
        let indices: Vec<&Value> = choices.iter().map(|c| &c["index"]).collect();
        assert_eq!(
            indices,
            [&json!(0), &json!(1), &json!(2), &json!(3)],
            "{label}"
        );
        let odds = choices.iter().all(|c| c["logprobs"].is_object());
        assert_eq!(odds, over["logprobs"].is_number(), "{label}");
        let counts = ["prompt_tokens", "completion_tokens"];
        for count in counts {
            assert_eq!(best["usage"][count], all["usage"][count], "{label}");
        }
    }
}
