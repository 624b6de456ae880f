//! Chat requests: valid and invalid values of every field.
//!
//! Promise (APIs): tools that the server cannot run are left out and named in the response's headers, and their
//! earlier calls are used with their results, or left out and named. Custom tools and functions of namespaces are
//! offered as functions, and their calls have the client's form in streamed, resumed and stored responses of chat
//! completions and the Responses API. Tools that are not allowed are not offered.
//! Also held by `wire/src/responses/tools.rs`, `wire/src/responses/conversation/tests.rs`,
//! `wire/src/anthropic/tests/conversation.rs`, `generate/src/output/custom_input.rs`,
//! `server/tests/it/responses/tools.rs`, `server/tests/it/responses/again.rs`, `server/tests/it/custom_tools.rs`.

use super::bad_fields;
use crate::openai::completion_request;
use crate::request_parser::tests::parsed_request;
use crate::shared::error_response::status_code;
use generate::error::ApiError;
use generate::request::{GenerateRequest, Prompt};
use serde_json::{Value, json};

/// Parses a valid request with some fields replaced.
fn chat(over: &str) -> Result<GenerateRequest, ApiError> {
    let good = r#"{"messages": [{"role": "user", "content": "hi"}]"#;
    let over = over.trim_start_matches('{');
    let body = match (over, over.contains("\"messages\"")) {
        ("}", _) => format!("{good}}}"),
        (over, false) => format!("{good}, {over}"),
        (over, true) => format!("{{{over}"),
    };
    parsed_request(completion_request::parse_chat, body.as_bytes())
}

/// Replaced fields of a valid request, and the field of the error.
const WRONG: &[(&str, &str)] = &[
    (r#"{"temperature": "hot"}"#, "temperature"),
    (r#"{"temperature": 2.5}"#, "temperature"),
    (r#"{"temperature": true}"#, "temperature"),
    (r#"{"temperature": [1.0]}"#, "temperature"),
    (r#"{"temperature": 1e999}"#, "temperature"),
    (r#"{"top_p": 1.5}"#, "top_p"),
    (r#"{"top_p": -0.1}"#, "top_p"),
    (r#"{"top_k": 1.5}"#, "top_k"),
    (r#"{"top_k": -2}"#, "top_k"),
    (r#"{"min_p": 2}"#, "min_p"),
    (r#"{"typical_p": 0}"#, "typical_p"),
    (r#"{"repetition_penalty": 0}"#, "repetition_penalty"),
    (r#"{"repeat_penalty": 11}"#, "repeat_penalty"),
    (r#"{"presence_penalty": -3}"#, "presence_penalty"),
    (r#"{"frequency_penalty": 3}"#, "frequency_penalty"),
    (r#"{"max_tokens": 0}"#, "max_tokens"),
    (r#"{"max_tokens": "many"}"#, "max_tokens"),
    (r#"{"max_completion_tokens": -1}"#, "max_completion_tokens"),
    (r#"{"max_tokens": 3, "min_tokens": 4}"#, "min_tokens"),
    (r#"{"seed": 0.5}"#, "seed"),
    (r#"{"seed": "7"}"#, "seed"),
    (r#"{"stop": 5}"#, "stop"),
    (r#"{"stop": ["a", 5]}"#, "stop[1]"),
    (r#"{"stop": ["a", ""]}"#, "stop[1]"),
    (
        r#"{"stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"]}"#,
        "stop",
    ),
    (r#"{"stop_token_ids": [1, 300]}"#, "stop_token_ids[1]"),
    (r#"{"stop_token_ids": 1}"#, "stop_token_ids"),
    (r#"{"n": 0}"#, "n"),
    (r#"{"n": 17}"#, "n"),
    (r#"{"stream": "yes"}"#, "stream"),
    (r#"{"stream_options": true}"#, "stream_options"),
    (
        r#"{"stream_options": {"include_usage": 1}}"#,
        "stream_options.include_usage",
    ),
    (r#"{"logprobs": 3}"#, "logprobs"),
    (r#"{"top_logprobs": 3}"#, "top_logprobs"),
    (r#"{"logprobs": true, "top_logprobs": 21}"#, "top_logprobs"),
    (r#"{"ignore_eos": 1}"#, "ignore_eos"),
    (r#"{"logit_bias": [1]}"#, "logit_bias[0]"),
    (r#"{"logit_bias": 1}"#, "logit_bias"),
    (r#"{"logit_bias": {"300": 1}}"#, "logit_bias"),
    (r#"{"logit_bias": {"3": 101}}"#, "logit_bias.3"),
    (r#"{"user": 3}"#, "user"),
    (r#"{"service_tier": 3}"#, "service_tier"),
    (r#"{"priority": []}"#, "priority"),
    (r#"{"reasoning_effort": 3}"#, "reasoning_effort"),
    (r#"{"chat_template_kwargs": "x"}"#, "chat_template_kwargs"),
    (r#"{"tools": {}}"#, "tools"),
    (r#"{"tools": ["f"]}"#, "tools[0]"),
    (
        r#"{"tools": [{"type": 1, "function": {"name": "f"}}]}"#,
        "tools[0].type",
    ),
    (r#"{"tools": [{"type": "function"}]}"#, "tools[0].function"),
    (
        r#"{"tools": [{"type": "function", "function": {"name": "a b"}}]}"#,
        "tools[0].function.name",
    ),
    (
        r#"{"tools": [{"function": {"name": "f", "description": 1}}]}"#,
        "tools[0].function.description",
    ),
    (
        r#"{"tools": [{"function": {"name": "f", "parameters": []}}]}"#,
        "tools[0].function.parameters",
    ),
    (
        r#"{"tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]}"#,
        "tools[1].function.name",
    ),
    (r#"{"functions": [{}]}"#, "functions"),
    (r#"{"tool_choice": "required"}"#, "tool_choice"),
    (r#"{"tool_choice": {"type": "function"}}"#, "tool_choice"),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}}"#,
        "tool_choice",
    ),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}}}"#,
        "tool_choice",
    ),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": []}}}"#,
        "tool_choice.mode",
    ),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}"#,
        "tool_choice.tools",
    ),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["f"]}}}"#,
        "tool_choice.tools[0]",
    ),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}}"#,
        "tool_choice",
    ),
    (r#"{"tools": [{"type": "custom"}]}"#, "tools[0].custom"),
    (
        r#"{"tools": [{"type": "custom", "custom": {"name": "a b"}}]}"#,
        "tools[0].custom.name",
    ),
    (
        r#"{"tools": [{"function": {"name": "f", "strict": 1}}]}"#,
        "tools[0].function.strict",
    ),
    (r#"{"parallel_tool_calls": 1}"#, "parallel_tool_calls"),
    (
        r#"{"reasoning": {"max_tokens": -1}}"#,
        "reasoning.max_tokens",
    ),
    (
        r#"{"thinking": {"budget_tokens": "x"}}"#,
        "thinking.budget_tokens",
    ),
    (
        r#"{"response_format": {"type": "xml"}}"#,
        "response_format.type",
    ),
    (r#"{"response_format": {}}"#, "response_format.type"),
    (r#"{"audio": {"voice": "x"}}"#, "audio"),
    (r#"{"messages": "hi"}"#, "messages"),
    (r#"{"messages": []}"#, "messages"),
    (r#"{"messages": null}"#, "messages"),
    (r#"{"messages": ["hi"]}"#, "messages[0]"),
    (r#"{"messages": [{"content": "hi"}]}"#, "messages[0].role"),
    (
        r#"{"messages": [{"role": "god", "content": "hi"}]}"#,
        "messages[0].role",
    ),
    (r#"{"messages": [{"role": "user"}]}"#, "messages[0].content"),
    (
        r#"{"messages": [{"role": "user", "content": 3}]}"#,
        "messages[0].content",
    ),
    (
        r#"{"messages": [{"role": "user", "content": "\ud800"}]}"#,
        "messages[0].content",
    ),
    (
        r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#,
        "messages[0].content[0]",
    ),
    (
        r#"{"messages": [{"role": "user", "content": [{"text": "x"}]}]}"#,
        "messages[0].content[0].type",
    ),
    (
        r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}"#,
        "messages[0].content[0].text",
    ),
    (
        r#"{"messages": [{"role": "assistant", "tool_calls": ["x"]}]}"#,
        "messages[0].tool_calls",
    ),
    (
        r#"{"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}"#,
        "messages[0].tool_calls[0].function.name",
    ),
    (
        r#"{"messages": [{"role": "user", "content": "x", "name": 1}]}"#,
        "messages[0].name",
    ),
];

#[test]
fn invalid_field_is_named() {
    for &(over, want) in WRONG {
        let error = chat(over).expect_err(over);
        assert_eq!(bad_fields(&error), [want], "{over}");
        assert_eq!(
            (status_code(error.kind).as_u16(), error.code),
            (400, "invalid_value"),
            "{over}"
        );
        assert!(error.message.starts_with(want), "{over}: {}", error.message);
    }
    let long = json!({"stop": "x".repeat(257)}).to_string();
    assert_eq!(
        bad_fields(&chat(&long).expect_err("a long stop string")),
        ["stop"]
    );
    let many = json!({"stop_token_ids": vec![1; 65]}).to_string();
    assert_eq!(
        bad_fields(&chat(&many).expect_err("many stop ids")),
        ["stop_token_ids"]
    );
}

#[test]
fn all_invalid_fields_are_reported_at_once() {
    let error = chat(
        &json!({
            "messages": [{"role": "user"}, {"role": "x", "content": 1}],
            "temperature": "hot", "top_p": 7, "n": 0, "stop": 3, "tools": [1],
        })
        .to_string(),
    )
    .expect_err("all fields are wrong");
    let want = [
        "messages[0].content",
        "messages[1].role",
        "messages[1].content",
        "tools[0]",
        "stop",
        "temperature",
        "top_p",
        "n",
    ];
    assert_eq!(bad_fields(&error), want);
}

type Check = fn(&GenerateRequest) -> bool;

/// Replaced fields of a valid request, and a check of the parsed request.
const RIGHT: &[(&str, Check)] = &[
    ("{}", |a| {
        a.params.sampling == engine::SamplingParams::default() && a.params.max_tokens.is_none()
    }),
    (
        r#"{"temperature": null, "stop": null, "n": null, "tools": null}"#,
        |a| a.n == 1,
    ),
    (r#"{"frobnicate": {"a": [1]}}"#, |a| {
        !a.stream_options.stream
    }),
    (r#"{"max_tokens": 7}"#, |a| a.params.max_tokens == Some(7)),
    (r#"{"max_tokens": 7, "max_completion_tokens": 9}"#, |a| {
        a.params.max_tokens == Some(9)
    }),
    (r#"{"max_tokens": 7.0}"#, |a| a.params.max_tokens == Some(7)),
    (r#"{"temperature": 0}"#, |a| {
        a.params.sampling.temperature == 0.0
    }),
    (r#"{"top_p": 0}"#, |a| {
        a.params.sampling.top_k == 1 && a.params.sampling.top_p == 1.0
    }),
    (r#"{"top_k": -1}"#, |a| a.params.sampling.top_k == 0),
    (r#"{"repeat_penalty": 1.5}"#, |a| {
        a.params.sampling.repetition_penalty == 1.5
    }),
    (r#"{"seed": -1}"#, |a| a.params.seed == Some(u64::MAX)),
    (r#"{"seed": 18446744073709551615}"#, |a| {
        a.params.seed == Some(u64::MAX)
    }),
    (r#"{"stop": "a"}"#, |a| a.params.stops == ["a"]),
    (r#"{"stop": ["a", "b"]}"#, |a| a.params.stops == ["a", "b"]),
    (r#"{"stop": ""}"#, |a| a.params.stops.is_empty()),
    (r#"{"stop": []}"#, |a| a.params.stops.is_empty()),
    (r#"{"stop_token_ids": [3], "ignore_eos": true}"#, |a| {
        a.params.stop_token_ids == [3] && a.params.ignore_eos && !a.params.sampling.ignore_eos
    }),
    (r#"{"ignore_eos": true}"#, |a| a.params.sampling.ignore_eos),
    (r#"{"logprobs": true, "top_logprobs": 2}"#, |a| {
        a.params.sampling.logprobs && a.params.sampling.top_logprobs == 2
    }),
    (r#"{"logit_bias": {"7": -100, "9": 1.5}}"#, |a| {
        a.params.sampling.logit_bias == [(7, -100.0), (9, 1.5)]
    }),
    (
        r#"{"stream_options": {"include_usage": true, "continuous_usage_stats": true}}"#,
        |a| a.stream_options.include_usage && a.stream_options.continuous_usage,
    ),
    (
        r#"{"tools": [], "tool_choice": "auto", "response_format": {"type": "text"}}"#,
        |a| a.n == 1,
    ),
    (
        r#"{"tools": [{"function": {"name": "f", "parameters": {"type": "object"}}}]}"#,
        |a| {
            let Prompt::Conversation { tools, .. } = &a.prompts[0] else {
                return false;
            };
            tools.len() == 1 && tools[0]["type"] == "function"
        },
    ),
    (
        r#"{"tools": [{"function": {"name": "f", "strict": true}}], "tool_choice": "required"}"#,
        |a| {
            a.params.tool_calling.required
                && !a.params.tool_calling.single_call
                && a.params.response_format.is_some()
        },
    ),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "parallel_tool_calls": false}"#,
        |a| {
            a.params.tool_calling.single_call
                && !a.params.tool_calling.required
                && a.params.response_format.is_none()
        },
    ),
    (
        r#"{"reasoning": {"max_tokens": 64, "effort": "low", "enabled": true}}"#,
        |a| {
            let Prompt::Conversation { kwargs, .. } = &a.prompts[0] else {
                return false;
            };
            a.params.reasoning_budget == Some(64)
                && kwargs["reasoning_effort"] == "low"
                && kwargs["enable_thinking"] == true
        },
    ),
    (r#"{"reasoning_effort": "none"}"#, |a| {
        let Prompt::Conversation { kwargs, .. } = &a.prompts[0] else {
            return false;
        };
        kwargs["reasoning_effort"] == "none" && kwargs["enable_thinking"] == false
    }),
    (r#"{"reasoning_effort": "high"}"#, |a| {
        let Prompt::Conversation { kwargs, .. } = &a.prompts[0] else {
            return false;
        };
        kwargs["reasoning_effort"] == "high" && kwargs["enable_thinking"] == true
    }),
    (
        r#"{"tools": [{"function": {"name": "f"}}], "tool_choice": "none"}"#,
        |a| matches!(&a.prompts[0], Prompt::Conversation { tools, .. } if tools.is_empty()),
    ),
    (
        r#"{"service_tier": "auto", "priority": "high", "user": "u"}"#,
        |a| a.stream_options.service_tier_given,
    ),
    (
        r#"{"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false}}"#,
        |a| {
            let Prompt::Conversation { kwargs, .. } = &a.prompts[0] else {
                return false;
            };
            kwargs["reasoning_effort"] == "low" && kwargs["enable_thinking"] == false
        },
    ),
    (
        r#"{"messages": [
            {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
                {"id": "1", "function": {"name": "f", "arguments": "{\"a\": [1]}"}},
                {"id": "2", "function": {"name": "f", "arguments": "{"}}
            ]},
            {"role": "tool", "content": "42", "tool_call_id": "1"}
        ]}"#,
        |a| {
            let Prompt::Conversation { messages, .. } = &a.prompts[0] else {
                return false;
            };
            messages[0].content == "a\nb"
                && messages[1].rest["tool_calls"][0]["id"] == "1"
                && messages[1].rest["tool_calls"][0]["function"]["arguments"] == json!({"a": [1]})
                && messages[1].rest["tool_calls"][1]["function"]["arguments"] == "{"
                && messages[1].rest["reasoning_content"] == "hm"
                && messages[1].content == ""
                && messages[2].rest["tool_call_id"] == "1"
        },
    ),
];

/// Names of the tools that the model is offered.
fn offered(request: &GenerateRequest) -> Vec<&str> {
    let Prompt::Conversation { tools, .. } = &request.prompts[0] else {
        panic!("no conversation");
    };
    let names = tools.iter().map(|tool| tool["function"]["name"].as_str());
    names.map(Option::unwrap_or_default).collect()
}

#[test]
fn only_allowed_tools_are_offered() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let custom = json!({"type": "custom", "custom": {"name": "c"}});
    let hosted = json!({"type": "mcp", "server_label": "m"});
    for (mode, allowed, want, required) in [
        (
            json!("auto"),
            json!([tool("a"), custom]),
            &["a", "c"][..],
            false,
        ),
        (json!("required"), json!([tool("b")]), &["b"], true),
        (Value::Null, json!([tool("b"), hosted]), &["b"], false),
        (json!("auto"), json!([]), &[], false),
    ] {
        let choice = json!({"mode": mode, "tools": allowed});
        let body = json!({
            "tools": [tool("a"), tool("b"), custom],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": choice},
        });
        let request = chat(&body.to_string()).expect("a request");
        assert_eq!(offered(&request), want, "{choice}");
        assert_eq!(request.params.tool_calling.required, required, "{choice}");
        let callable = request.params.constrained_tools.iter();
        assert!(
            callable.clone().count() == 0
                || callable.map(|tool| &*tool.name).eq(want.iter().copied())
        );
    }
}

#[test]
fn parts_of_other_protocols_in_an_answer_are_left_out() {
    let body = json!({"messages": [{"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {}}, {"type": "text", "text": "b"},
    ]}]});
    let request = chat(&body.to_string()).expect("a request");
    let Prompt::Conversation { messages, .. } = &request.prompts[0] else {
        panic!("no conversation");
    };
    assert_eq!(messages[0].content, "a\nb");
    let ignored = &request.stream_options.ignored_fields;
    assert_eq!(
        ignored.names(),
        Some("messages.thinking, messages.tool_use")
    );
}

#[test]
fn choice_of_tools_is_read_in_other_spellings() {
    for (choice, required) in [
        (json!("any"), true),
        (json!({"type": "required"}), true),
        (json!({"type": "any"}), true),
        (json!({"type": "auto"}), false),
    ] {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        let body = json!({"tools": tools, "tool_choice": choice}).to_string();
        let request = chat(&body).expect("a request");
        assert_eq!(request.params.tool_calling.required, required, "{choice}");
    }
}

#[test]
fn custom_tool_is_offered_as_a_function() {
    let grammar = json!({"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}});
    let custom = json!({"name": "patch", "description": "Edits.", "format": grammar});
    let choice = json!({"type": "custom", "custom": {"name": "patch"}});
    let body = json!({"tools": [{"type": "custom", "custom": custom}], "tool_choice": choice});
    let request = chat(&body.to_string()).expect("a request");
    assert_eq!(offered(&request), ["patch"]);
    let options = &request.stream_options;
    assert!(options.offered_tools[0].is_custom, "{options:?}");
    assert_eq!(options.ignored_fields.names(), Some("tools.format"));
    assert_eq!(request.params.constrained_tools[0].name, "patch");
    let Prompt::Conversation { tools, .. } = &request.prompts[0] else {
        panic!("no conversation");
    };
    let function = &tools[0]["function"];
    assert_eq!(function["parameters"]["required"], json!(["input"]));
    let told = "Edits.\n\nThe input must match this grammar (regex):\na+";
    assert_eq!(function["description"], told);
}

#[test]
fn result_of_a_tool_may_be_absent() {
    for role in ["tool", "function"] {
        for rest in ["", r#", "content": null"#] {
            let body =
                format!(r#"{{"messages": [{{"role": "{role}", "tool_call_id": "1"{rest}}}]}}"#);
            let request = chat(&body).expect("a request");
            let Prompt::Conversation { messages, .. } = &request.prompts[0] else {
                panic!("no conversation");
            };
            assert_eq!(messages[0].content, "", "{body}");
        }
    }
}

#[test]
fn valid_request_is_parsed() {
    for (over, check) in RIGHT {
        let request = chat(over).unwrap_or_else(|e| panic!("{over}: {}", e.message));
        assert!(check(&request), "{over}: {request:?}");
    }
}

#[test]
fn refusals_and_calls_of_other_forms_are_kept() {
    let calls = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    for (message, content, want) in [
        (
            json!({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
            "no",
            Value::Null,
        ),
        (
            json!({"role": "assistant", "content": null, "refusal": "no"}),
            "no",
            Value::Null,
        ),
        (calls(json!([])), "", Value::Null),
        (
            calls(json!([{"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}])),
            "",
            json!({"name": "f", "arguments": {"input": "x"}}),
        ),
        (
            json!({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}),
            "",
            json!({"name": "f", "arguments": {}}),
        ),
        (
            calls(json!([{"function": {"name": "f", "arguments": null}}])),
            "",
            json!({"name": "f", "arguments": null}),
        ),
    ] {
        let request = chat(&json!({"messages": [message]}).to_string()).expect("a request");
        let Prompt::Conversation { messages, .. } = &request.prompts[0] else {
            panic!("no conversation");
        };
        assert_eq!(messages[0].content, content, "{message}");
        let call = messages[0]
            .rest
            .get("tool_calls")
            .map_or(Value::Null, |calls| calls[0]["function"].clone());
        assert_eq!(call, want, "{message}");
    }
}
