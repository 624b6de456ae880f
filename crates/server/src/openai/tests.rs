//! Requests: every field, right and wrong.

use super::{chat_request, completion_request};
use crate::ask::{Ask, Prompt};
use crate::error::ApiError;
use crate::fields::Fields;
use serde_json::{Value, json};

const VOCAB: usize = 300;

fn chat(body: &Value) -> Result<Ask, ApiError> {
    chat_request::parse(Fields::parse(body.to_string().as_bytes())?, VOCAB)
}

fn completion(body: &Value) -> Result<Ask, ApiError> {
    completion_request::parse(Fields::parse(body.to_string().as_bytes())?, VOCAB)
}

/// A good request with some fields put over it.
fn with(base: Value, over: &Value) -> Value {
    let mut base = base;
    for (name, value) in over.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

fn good_chat() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }] })
}

fn bad_fields(error: &ApiError) -> Vec<&str> {
    error.problems.iter().map(|p| p.field.as_str()).collect()
}

#[test]
fn each_wrong_field_of_a_chat_is_named() {
    let rows = [
        (
            "temperature type",
            json!({"temperature": "hot"}),
            "temperature",
        ),
        (
            "temperature range",
            json!({"temperature": 2.5}),
            "temperature",
        ),
        (
            "temperature bool",
            json!({"temperature": true}),
            "temperature",
        ),
        (
            "temperature nested",
            json!({"temperature": [1.0]}),
            "temperature",
        ),
        ("top_p range", json!({"top_p": 1.5}), "top_p"),
        ("top_p negative", json!({"top_p": -0.1}), "top_p"),
        ("top_k fraction", json!({"top_k": 1.5}), "top_k"),
        ("top_k below off", json!({"top_k": -2}), "top_k"),
        ("min_p range", json!({"min_p": 2}), "min_p"),
        ("typical_p zero", json!({"typical_p": 0}), "typical_p"),
        (
            "repetition zero",
            json!({"repetition_penalty": 0}),
            "repetition_penalty",
        ),
        (
            "repeat range",
            json!({"repeat_penalty": 11}),
            "repeat_penalty",
        ),
        (
            "presence range",
            json!({"presence_penalty": -3}),
            "presence_penalty",
        ),
        (
            "frequency range",
            json!({"frequency_penalty": 3}),
            "frequency_penalty",
        ),
        ("max_tokens zero", json!({"max_tokens": 0}), "max_tokens"),
        (
            "max_tokens type",
            json!({"max_tokens": "many"}),
            "max_tokens",
        ),
        (
            "max_completion_tokens negative",
            json!({"max_completion_tokens": -1}),
            "max_completion_tokens",
        ),
        (
            "min over max",
            json!({"max_tokens": 3, "min_tokens": 4}),
            "min_tokens",
        ),
        ("seed fraction", json!({"seed": 0.5}), "seed"),
        ("seed string", json!({"seed": "7"}), "seed"),
        ("stop number", json!({"stop": 5}), "stop"),
        ("stop member", json!({"stop": ["a", 5]}), "stop[1]"),
        ("stop empty member", json!({"stop": ["a", ""]}), "stop[1]"),
        ("stop too many", json!({"stop": vec!["x"; 17]}), "stop"),
        ("stop too long", json!({"stop": "x".repeat(257)}), "stop"),
        (
            "stop_token_ids range",
            json!({"stop_token_ids": [1, 300]}),
            "stop_token_ids[1]",
        ),
        (
            "stop_token_ids too many",
            json!({"stop_token_ids": vec![1; 65]}),
            "stop_token_ids",
        ),
        ("n zero", json!({"n": 0}), "n"),
        ("n too many", json!({"n": 17}), "n"),
        ("stream type", json!({"stream": "yes"}), "stream"),
        (
            "stream_options type",
            json!({"stream_options": true}),
            "stream_options",
        ),
        (
            "include_usage type",
            json!({"stream_options": {"include_usage": 1}}),
            "stream_options.include_usage",
        ),
        ("logprobs type", json!({"logprobs": 3}), "logprobs"),
        (
            "top_logprobs alone",
            json!({"top_logprobs": 3}),
            "top_logprobs",
        ),
        (
            "top_logprobs range",
            json!({"logprobs": true, "top_logprobs": 21}),
            "top_logprobs",
        ),
        ("ignore_eos type", json!({"ignore_eos": 1}), "ignore_eos"),
        ("logit_bias type", json!({"logit_bias": [1]}), "logit_bias"),
        (
            "logit_bias key",
            json!({"logit_bias": {"300": 1}}),
            "logit_bias",
        ),
        (
            "logit_bias value",
            json!({"logit_bias": {"3": 101}}),
            "logit_bias.3",
        ),
        ("user type", json!({"user": 3}), "user"),
        (
            "service_tier type",
            json!({"service_tier": 3}),
            "service_tier",
        ),
        ("priority type", json!({"priority": []}), "priority"),
        (
            "reasoning_effort type",
            json!({"reasoning_effort": 3}),
            "reasoning_effort",
        ),
        (
            "kwargs type",
            json!({"chat_template_kwargs": "x"}),
            "chat_template_kwargs",
        ),
        ("tools", json!({"tools": [{"type": "function"}]}), "tools"),
        ("functions", json!({"functions": [{}]}), "functions"),
        (
            "tool_choice required",
            json!({"tool_choice": "required"}),
            "tool_choice",
        ),
        (
            "tool_choice named",
            json!({"tool_choice": {"type": "function"}}),
            "tool_choice",
        ),
        (
            "response_format json",
            json!({"response_format": {"type": "json_object"}}),
            "response_format",
        ),
        (
            "response_format type",
            json!({"response_format": {}}),
            "response_format.type",
        ),
        ("audio", json!({"audio": {"voice": "x"}}), "audio"),
        ("messages type", json!({"messages": "hi"}), "messages"),
        ("messages empty", json!({"messages": []}), "messages"),
        ("messages null", json!({"messages": null}), "messages"),
        ("message type", json!({"messages": ["hi"]}), "messages[0]"),
        (
            "role missing",
            json!({"messages": [{"content": "hi"}]}),
            "messages[0].role",
        ),
        (
            "role unknown",
            json!({"messages": [{"role": "god", "content": "hi"}]}),
            "messages[0].role",
        ),
        (
            "content missing",
            json!({"messages": [{"role": "user"}]}),
            "messages[0].content",
        ),
        (
            "content type",
            json!({"messages": [{"role": "user", "content": 3}]}),
            "messages[0].content",
        ),
        (
            "part image",
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
            "messages[0].content[0]",
        ),
        (
            "part type",
            json!({"messages": [{"role": "user", "content": [{"text": "x"}]}]}),
            "messages[0].content[0].type",
        ),
        (
            "part text",
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}),
            "messages[0].content[0].text",
        ),
        (
            "tool_calls type",
            json!({"messages": [{"role": "assistant", "tool_calls": ["x"]}]}),
            "messages[0].tool_calls",
        ),
        (
            "name type",
            json!({"messages": [{"role": "user", "content": "x", "name": 1}]}),
            "messages[0].name",
        ),
    ];
    for (label, over, want) in rows {
        let error = chat(&with(good_chat(), &over)).expect_err(label);
        assert_eq!(bad_fields(&error), [want], "{label}");
        assert_eq!(
            (error.status.as_u16(), error.code),
            (400, "invalid_value"),
            "{label}"
        );
        assert!(
            error.message.starts_with(want),
            "{label}: {}",
            error.message
        );
    }
}

#[test]
fn all_wrong_fields_are_told_at_once() {
    let error = chat(&json!({
        "messages": [{"role": "user"}, {"role": "x", "content": 1}],
        "temperature": "hot", "top_p": 7, "n": 0, "stop": 3, "tools": [1],
    }))
    .expect_err("nothing here is right");
    let want = [
        "messages[0].content",
        "messages[1].role",
        "messages[1].content",
        "stop",
        "temperature",
        "top_p",
        "n",
        "tools",
    ];
    assert_eq!(bad_fields(&error), want);
}

#[test]
fn what_clients_send_is_understood() {
    let rows: [(&str, Value, fn(&Ask) -> bool); 24] = [
        ("defaults", json!({}), |a| {
            a.control.sampling == engine::Sampling::default() && a.control.max_tokens.is_none()
        }),
        (
            "nulls",
            json!({"temperature": null, "stop": null, "n": null, "tools": null}),
            |a| a.n == 1,
        ),
        ("unknown fields", json!({"frobnicate": {"a": [1]}}), |a| {
            !a.delivery.stream
        }),
        ("max_tokens", json!({"max_tokens": 7}), |a| {
            a.control.max_tokens == Some(7)
        }),
        (
            "both max",
            json!({"max_tokens": 7, "max_completion_tokens": 9}),
            |a| a.control.max_tokens == Some(9),
        ),
        ("integral float", json!({"max_tokens": 7.0}), |a| {
            a.control.max_tokens == Some(7)
        }),
        ("top_p zero", json!({"top_p": 0}), |a| {
            a.control.sampling.top_k == 1 && a.control.sampling.top_p == 1.0
        }),
        ("top_k off", json!({"top_k": -1}), |a| {
            a.control.sampling.top_k == 0
        }),
        ("repeat", json!({"repeat_penalty": 1.5}), |a| {
            a.control.sampling.repetition_penalty == 1.5
        }),
        ("seed negative", json!({"seed": -1}), |a| {
            a.control.seed == Some(u64::MAX)
        }),
        ("seed large", json!({"seed": u64::MAX}), |a| {
            a.control.seed == Some(u64::MAX)
        }),
        ("stop string", json!({"stop": "a"}), |a| {
            a.control.stops == ["a"]
        }),
        ("stop list", json!({"stop": ["a", "b"]}), |a| {
            a.control.stops == ["a", "b"]
        }),
        ("stop nothing", json!({"stop": ""}), |a| {
            a.control.stops.is_empty()
        }),
        ("stop empty list", json!({"stop": []}), |a| {
            a.control.stops.is_empty()
        }),
        (
            "stop ids",
            json!({"stop_token_ids": [3], "ignore_eos": true}),
            |a| {
                a.control.stop_token_ids == [3]
                    && a.control.ignore_eos
                    && !a.control.sampling.ignore_eos
            },
        ),
        ("ignore_eos", json!({"ignore_eos": true}), |a| {
            a.control.sampling.ignore_eos
        }),
        (
            "logprobs",
            json!({"logprobs": true, "top_logprobs": 2}),
            |a| a.control.sampling.logprobs && a.control.sampling.top_logprobs == 2,
        ),
        (
            "logit_bias",
            json!({"logit_bias": {"7": -100, "9": 1.5}}),
            |a| a.control.sampling.logit_bias == [(7, -100.0), (9, 1.5)],
        ),
        (
            "usage",
            json!({"stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
            |a| a.delivery.stream && a.delivery.include_usage && a.delivery.continuous_usage,
        ),
        (
            "no tools",
            json!({"tools": [], "tool_choice": "auto", "response_format": {"type": "text"}}),
            |a| a.n == 1,
        ),
        (
            "tier",
            json!({"service_tier": "auto", "priority": "high", "user": "u"}),
            |a| a.delivery.tier_named,
        ),
        (
            "parts and history",
            json!({"messages": [
                {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "42", "tool_call_id": "1"}
            ]}),
            |a| {
                let Prompt::Conversation { messages, .. } = &a.prompts[0] else {
                    return false;
                };
                messages[0].content == "a\nb"
                    && messages[1].rest["tool_calls"][0]["id"] == "1"
                    && messages[2].role == "tool"
            },
        ),
        (
            "kwargs",
            json!({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false}}),
            |a| {
                let Prompt::Conversation { kwargs, .. } = &a.prompts[0] else {
                    return false;
                };
                kwargs["reasoning_effort"] == "low" && kwargs["enable_thinking"] == false
            },
        ),
    ];
    for (label, over, check) in rows {
        let ask =
            chat(&with(good_chat(), &over)).unwrap_or_else(|e| panic!("{label}: {}", e.message));
        assert!(check(&ask), "{label}: {ask:?}");
    }
}

#[test]
fn each_wrong_field_of_a_completion_is_named() {
    let rows = [
        ("prompt missing", json!({"prompt": null}), "prompt"),
        ("prompt type", json!({"prompt": {}}), "prompt"),
        ("prompt empty list", json!({"prompt": []}), "prompt"),
        (
            "prompt too many",
            json!({"prompt": vec!["x"; 17]}),
            "prompt",
        ),
        ("prompt id range", json!({"prompt": [1, 300]}), "prompt[1]"),
        ("prompt id type", json!({"prompt": [1, "x"]}), "prompt[1]"),
        (
            "prompt member type",
            json!({"prompt": ["x", 1]}),
            "prompt[1]",
        ),
        (
            "prompt member empty",
            json!({"prompt": [[1], []]}),
            "prompt[1]",
        ),
        (
            "prompts times n",
            json!({"prompt": ["a", "b"], "n": 9}),
            "n",
        ),
        ("suffix", json!({"suffix": "end"}), "suffix"),
        ("best_of", json!({"best_of": 2}), "best_of"),
        ("logprobs type", json!({"logprobs": true}), "logprobs"),
        ("logprobs range", json!({"logprobs": 21}), "logprobs"),
        (
            "logprobs with echo",
            json!({"logprobs": 1, "echo": true}),
            "logprobs",
        ),
        ("echo type", json!({"echo": 1}), "echo"),
    ];
    for (label, over, want) in rows {
        let error = completion(&with(json!({"prompt": "hi"}), &over)).expect_err(label);
        assert_eq!(bad_fields(&error), [want], "{label}");
    }
}

#[test]
fn prompts_come_in_four_shapes() {
    let ids = |ids: &[u32]| Prompt::Ids(ids.to_vec());
    let text = |text: &str| Prompt::Text(text.to_owned());
    let rows = [
        ("string", json!("hi"), vec![text("hi")]),
        ("strings", json!(["a", "b"]), vec![text("a"), text("b")]),
        ("ids", json!([1, 2]), vec![ids(&[1, 2])]),
        (
            "lists of ids",
            json!([[1], [2, 3]]),
            vec![ids(&[1]), ids(&[2, 3])],
        ),
    ];
    for (label, prompt, want) in rows {
        let ask = completion(&json!({ "prompt": prompt, "best_of": 1, "suffix": "" }))
            .unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(ask.prompts, want, "{label}");
        assert_eq!(ask.control.max_tokens, Some(16), "{label}");
    }
}

#[test]
fn bodies_that_are_no_json_object() {
    let rows: [(&str, &[u8], &str); 8] = [
        ("empty", b"", "invalid_json"),
        ("truncated", b"{\"messages\": [", "invalid_json"),
        ("array", b"[]", "invalid_json"),
        ("words", b"hello", "invalid_json"),
        ("two values", b"{} {}", "invalid_json"),
        ("broken UTF-8", b"{\"a\": \"\xff\"}", "invalid_utf8"),
        (
            "half a surrogate pair",
            b"{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud800\"}]}",
            "invalid_value",
        ),
        ("too deep", &[b'['; 100_000], "invalid_json"),
    ];
    for (label, body, want) in rows {
        let parsed = Fields::parse(body).and_then(|fields| chat_request::parse(fields, VOCAB));
        let error = parsed.expect_err(label);
        assert_eq!(
            (error.status.as_u16(), error.code),
            (400, want),
            "{label}: {}",
            error.message
        );
    }
    let error = Fields::parse(b"{\"a\": [").err().unwrap();
    assert!(error.message.contains("truncated"), "{}", error.message);
}

#[test]
fn a_field_given_twice_is_refused() {
    let body = br#"{"messages":[{"role":"user","content":"x"}],"n":1,"n":2}"#;
    let error = Fields::parse(body)
        .and_then(|f| chat_request::parse(f, VOCAB))
        .expect_err("twice");
    assert_eq!(bad_fields(&error), ["n"]);
}

#[test]
fn problems_and_fields_are_bounded() {
    let many: Vec<Value> = (0..1000).map(|_| json!({"role": "x"})).collect();
    let error = chat(&json!({ "messages": many })).expect_err("all wrong");
    assert_eq!(error.problems.len(), 64);
    let fields: serde_json::Map<String, Value> =
        (0..300).map(|i| (format!("f{i}"), json!(1))).collect();
    let error = chat(&Value::Object(fields)).expect_err("too many fields");
    assert_eq!(error.code, "invalid_json");
}
