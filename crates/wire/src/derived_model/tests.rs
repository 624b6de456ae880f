//! Requests to a derived model, beside equal requests to its base model that set everything themselves.
//!
//! Promise (APIs): a derived model's defaults apply in every API.
//! Also held by `server/tests/it/models/manage.rs`, `millrace/tests/it/models.rs`.

use super::*;
use crate::derived_model::RequestedModel;
use crate::protocol::Protocol;
use crate::request_parser::ParsedBody;
use generate::error::ApiError;
use generate::sampling::SamplingDefaults;
use serde_json::json;
use text::Capabilities;

fn derived_model(options: &Value) -> DerivedModel {
    DerivedModel {
        parent: "tiny".to_owned(),
        system: Some("Be brief.".to_owned()),
        template: Some("{{ .System }}: {{ .Prompt }}".to_owned()),
        adapter: None,
        options: options.as_object().expect("options").clone(),
    }
}

fn parse(
    protocol: Protocol,
    body: &Value,
    derived: Option<&DerivedModel>,
) -> Result<ParsedBody, ApiError> {
    parse_with(protocol, body, derived, SamplingDefaults::default())
}

fn parse_with(
    protocol: Protocol,
    body: &Value,
    derived: Option<&DerivedModel>,
    sampling: SamplingDefaults,
) -> Result<ParsedBody, ApiError> {
    let model = RequestedModel {
        takes_images: true,
        fetches_images: false,
        id: "tiny",
        derived,
        adapters: &generate::model_handle::NO_ADAPTERS,
        sampling,
        stops: &["<|im_end|>"],
        capabilities: Capabilities::default(),
        vocab_size: 300,
    };
    let body = body.to_string();
    let history = |_: &str| Err(ApiError::bad_request("not_found", "nothing is stored"));
    protocol.parse(Fields::parse(body.as_bytes())?, model, &history)
}

/// Expects that a request to a derived model equals another one to the base model. Ids of stored parts are left out.
fn expect_equal(derived: &DerivedModel, rows: Vec<(Protocol, Value, Value)>) {
    for (protocol, body, want) in rows {
        let place = format!("{protocol:?} {body}");
        let request = parse(protocol, &body, Some(derived));
        let request = request.unwrap_or_else(|error| panic!("{place}: {}", error.message));
        let want = parse(protocol, &want, None);
        let want = want.unwrap_or_else(|error| panic!("{place}: {}", error.message));
        assert_eq!(request.request, want.request, "{place}");
    }
}

/// Fields with a problem.
fn invalid_fields(protocol: Protocol, body: &Value, options: &Value) -> Vec<String> {
    let parsed = parse(protocol, body, Some(&derived_model(options)));
    let problems = parsed.err().map(|error| error.problems).unwrap_or_default();
    problems.into_iter().map(|problem| problem.field).collect()
}

fn user() -> Value {
    json!({"role": "user", "content": "hi"})
}

fn system() -> Value {
    json!({"role": "system", "content": "Be brief."})
}

fn ui_message(role: &str, text: &str) -> Value {
    json!({"role": role, "parts": [{"type": "text", "text": text}]})
}

#[test]
fn fields_that_a_request_leaves_open_have_the_values_of_the_model() {
    let derived = derived_model(&json!({"temperature": 0, "num_predict": 7, "stop": "x"}));
    let (user, system) = (user(), system());
    let template = "{{ .System }}: {{ .Prompt }}";
    let ollama = vec![
        (
            Protocol::OllamaChat,
            json!({"messages": [user], "options": {"temperature": 1}}),
            json!({"messages": [system, user], "options": {"temperature": 1, "num_predict": 7, "stop": "x"}}),
        ),
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "hi", "system": "Be long.", "options": null}),
            json!({"prompt": "hi", "system": "Be long.", "template": template,
                   "options": {"temperature": 0, "num_predict": 7, "stop": "x"}}),
        ),
    ];
    expect_equal(&derived, ollama);
}

#[test]
fn fields_that_a_request_leaves_open_have_the_values_of_the_model_outside_ollama() {
    let derived = derived_model(&json!({"temperature": 0, "num_predict": 7, "stop": "x"}));
    let (user, system) = (user(), system());
    let rows = vec![
        (
            Protocol::Chat,
            json!({"messages": [system], "max_completion_tokens": 3}),
            json!({"messages": [system], "max_completion_tokens": 3, "temperature": 0, "stop": "x"}),
        ),
        (
            Protocol::Messages,
            json!({"messages": [user], "max_tokens": 9}),
            json!({"messages": [user], "max_tokens": 9, "system": "Be brief.", "temperature": 0,
                   "stop_sequences": ["x"]}),
        ),
        (
            Protocol::Messages,
            json!({"messages": [user], "stop_sequences": ["y"]}),
            json!({"messages": [user], "max_tokens": 7, "system": "Be brief.", "temperature": 0,
                   "stop_sequences": ["y"]}),
        ),
        (
            Protocol::Completion,
            json!({"prompt": "hi"}),
            json!({"prompt": "hi", "temperature": 0, "max_tokens": 7, "stop": "x"}),
        ),
        (
            Protocol::Job,
            json!({"messages": [user], "temperature": null}),
            json!({"messages": [user], "temperature": 0, "max_tokens": 7, "stop": ["x"]}),
        ),
        (
            Protocol::Responses,
            json!({"input": "hi"}),
            json!({"input": "hi", "temperature": 0.0, "max_output_tokens": 7, "instructions": "Be brief."}),
        ),
        (
            Protocol::Responses,
            json!({"input": "hi", "max_output_tokens": 9, "min_tokens": 8}),
            json!({"input": "hi", "temperature": 0.0, "max_output_tokens": 9, "min_tokens": 8,
                   "instructions": "Be brief."}),
        ),
        (
            Protocol::AiSdkUi,
            json!({"messages": [ui_message("user", "hi")], "stop": []}),
            json!({"messages": [ui_message("user", "hi")], "system": "Be brief.", "temperature": 0,
                   "max_tokens": 7, "stop": []}),
        ),
    ];
    expect_equal(&derived, rows);
}

#[test]
fn system_message_is_not_added_to_a_conversation_with_one() {
    let derived = derived_model(&json!({}));
    let developer = json!({"role": "developer", "content": "Be long."});
    let late = json!({"role": "system", "content": "Be long."});
    let user = user();
    let ui = [ui_message("system", "Be long."), ui_message("user", "hi")];
    let bodies = [
        (Protocol::Chat, json!({"messages": [developer, user]})),
        (Protocol::Chat, json!({"messages": [user, late]})),
        (Protocol::OllamaChat, json!({"messages": [user, late]})),
        (Protocol::OllamaChat, json!({"messages": []})),
        (
            Protocol::Messages,
            json!({"messages": [user], "system": "Be long.", "max_tokens": 5}),
        ),
        (Protocol::AiSdkUi, json!({"messages": ui})),
        (
            Protocol::AiSdkUi,
            json!({"messages": [ui[1]], "system": "Be long."}),
        ),
        (
            Protocol::Responses,
            json!({"input": "hi", "instructions": "Be long."}),
        ),
        (Protocol::Responses, json!({"input": [developer, user]})),
        // Protocols without a system message.
        (Protocol::Completion, json!({"prompt": "hi"})),
        (Protocol::Job, json!({"messages": [user]})),
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "hi", "raw": true}),
        ),
        // An empty text turns the default off.
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "hi", "system": "", "template": ""}),
        ),
    ];
    let rows = bodies.map(|(protocol, body)| (protocol, body.clone(), body));
    expect_equal(&derived, rows.into());
}

#[test]
fn template_of_a_derived_model_is_used_unless_the_request_has_one() {
    let derived = derived_model(&json!({}));
    let template = "{{ .System }}: {{ .Prompt }}";
    let rows = vec![
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "hi"}),
            json!({"prompt": "hi", "system": "Be brief.", "template": template}),
        ),
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "hi", "template": "{{ .Prompt }}!"}),
            json!({"prompt": "hi", "system": "Be brief.", "template": "{{ .Prompt }}!"}),
        ),
        (
            Protocol::OllamaGenerate,
            json!({"prompt": "hi", "template": ""}),
            json!({"prompt": "hi", "system": "Be brief."}),
        ),
    ];
    expect_equal(&derived, rows);
}

#[test]
fn unlimited_options_leave_the_protocol_its_own_default() {
    let user = user();
    for (predict, seed) in [(-1, -1), (-2, -7), (0, -1)] {
        let mut derived = derived_model(&json!({"num_predict": predict, "seed": seed}));
        derived.system = None;
        let bodies = [
            (Protocol::Chat, json!({"messages": [user]})),
            (Protocol::Completion, json!({"prompt": "hi"})),
            (Protocol::Responses, json!({"input": "hi"})),
            (Protocol::OllamaChat, json!({"messages": [user]})),
        ];
        let rows = bodies.map(|(protocol, body)| (protocol, body.clone(), body));
        expect_equal(&derived, rows.into());
        let options = json!({"num_predict": predict});
        let invalid = invalid_fields(Protocol::Messages, &json!({"messages": [user]}), &options);
        assert_eq!(invalid, ["max_tokens"], "required");
    }
    // Set by the request, "unlimited" wins over a limit of the model.
    let mut derived = derived_model(&json!({"num_predict": 7, "seed": 7}));
    derived.system = None;
    let options = json!({"num_predict": -1, "seed": -1});
    let body = json!({"messages": [user], "options": options});
    expect_equal(&derived, vec![(Protocol::OllamaChat, body.clone(), body)]);
}

#[test]
fn protocols_take_the_options_that_they_have_fields_for() {
    let options = json!({"top_k": 3, "min_p": 0.25, "seed": 5, "repeat_penalty": 1.5, "typical_p": 0.5,
                         "repeat_last_n": 0, "temperature": 0.7});
    let mut derived = derived_model(&options);
    derived.system = None;
    let user = user();
    let rows = vec![
        (
            Protocol::OllamaChat,
            json!({"messages": [user]}),
            json!({"messages": [user], "options": options}),
        ),
        (
            Protocol::Chat,
            json!({"messages": [user], "seed": 6}),
            json!({"messages": [user], "top_k": 3, "min_p": 0.25, "seed": 6, "repetition_penalty": 1.5,
                   "temperature": 0.7}),
        ),
        (
            Protocol::Messages,
            json!({"messages": [user], "max_tokens": 5}),
            json!({"messages": [user], "max_tokens": 5, "top_k": 3, "temperature": 0.7}),
        ),
        (
            Protocol::Responses,
            json!({"input": "hi"}),
            json!({"input": "hi", "temperature": 0.7}),
        ),
    ];
    expect_equal(&derived, rows);
}

#[test]
fn invalid_options_are_rejected_unless_the_request_sets_the_field() {
    let user = user();
    let options = json!({"temperature": 9, "num_predict": "x", "logit_bias": {"300": 1}});
    let messages = json!({"messages": [user], "n": "x"});
    let rows = [
        (
            Protocol::OllamaChat,
            messages.clone(),
            vec![
                "options.temperature",
                "options.logit_bias",
                "options.num_predict",
            ],
        ),
        (
            Protocol::OllamaChat,
            json!({"messages": [user], "options": {"temperature": 1, "num_predict": 2}}),
            vec!["options.logit_bias"],
        ),
        (
            Protocol::Chat,
            messages,
            vec!["temperature", "max_tokens", "n"],
        ),
        (
            Protocol::Responses,
            json!({"input": "hi", "temperature": 1}),
            vec!["max_output_tokens"],
        ),
        (
            Protocol::Completion,
            json!({"prompt": "hi", "temperature": 1, "max_tokens": 5}),
            Vec::new(),
        ),
    ];
    for (protocol, body, want) in rows {
        assert_eq!(
            invalid_fields(protocol, &body, &options),
            want,
            "{protocol:?} {body}"
        );
    }
    let body = json!({"messages": [user], "max_tokens": 5});
    let invalid = invalid_fields(Protocol::Chat, &body, &json!({"min_tokens": 6}));
    assert_eq!(invalid, ["min_tokens"], "more than max_tokens");
    let body = json!({"messages": [user], "min_tokens": 8});
    let invalid = invalid_fields(Protocol::Chat, &body, &json!({"num_predict": 7}));
    assert_eq!(invalid, ["min_tokens"], "more than num_predict");
}

/// Promise (APIs): a request without sampling parameters has those of the settings, of the model's files, of
/// llama.cpp, in this order and in every API; temperature 1 with top-p 1 is the model's own distribution.
/// Also held by `server/tests/it/llama_cpp.rs ::
/// defaults_of_sampling_are_overridden_by_the_operator_and_by_requests`, `millrace/tests/it/command_line/caches.rs`.
#[test]
fn sampling_is_that_of_the_model_in_every_protocol() {
    let (user, ui) = (user(), ui_message("user", "hi"));
    for (protocol, body, options) in [
        (Protocol::Chat, json!({"messages": [user]}), ""),
        (Protocol::Completion, json!({"prompt": "hi"}), ""),
        (Protocol::Job, json!({"prompt": "hi"}), ""),
        (
            Protocol::Messages,
            json!({"messages": [user], "max_tokens": 5}),
            "",
        ),
        (Protocol::Responses, json!({"input": "hi"}), ""),
        (Protocol::OllamaChat, json!({"messages": [user]}), "options"),
        (Protocol::OllamaGenerate, json!({"prompt": "hi"}), "options"),
        (Protocol::AiSdkUi, json!({"messages": [ui]}), ""),
        (Protocol::LlamaCompletion, json!({"prompt": "hi"}), ""),
        (
            Protocol::Infill,
            json!({"input_prefix": "a", "input_suffix": "b"}),
            "",
        ),
    ] {
        let sampled = |given: Value, derived: Option<&DerivedModel>| {
            let mut body = body.clone();
            match options {
                "" => body
                    .as_object_mut()
                    .expect("fields")
                    .extend(given.as_object().expect("fields").clone()),
                options => body[options] = given,
            }
            let parsed = parse_with(protocol, &body, derived, SamplingDefaults::LLAMA_CPP);
            let sampling = parsed.expect("a request").request.params.sampling;
            let numbers = (sampling.temperature, sampling.top_k);
            (numbers, (sampling.top_p, sampling.min_p))
        };
        let place = format!("{protocol:?}");
        let derived = derived_model(&json!({"temperature": 0.5}));
        for (given, derived, want) in [
            (json!({}), None, ((0.8, 40), (0.95, 0.05))),
            (json!({"temperature": 1}), None, ((1.0, 40), (0.95, 0.05))),
            (
                json!({"temperature": 1, "top_p": 1}),
                None,
                ((1.0, 0), (1.0, 0.0)),
            ),
            (json!({}), Some(&derived), ((0.5, 40), (0.95, 0.05))),
            (
                json!({"temperature": 1, "top_p": 1}),
                Some(&derived),
                ((1.0, 0), (1.0, 0.0)),
            ),
        ] {
            assert_eq!(sampled(given.clone(), derived), want, "{place} {given}");
        }
    }
}

/// Promise (Text): a model without a chat template gets the turns that its vocabulary is made for; marks that are
/// plain text are stop strings of its conversations, and of nothing else.
/// Also held by `text/src/template/turn_format.rs`.
#[test]
fn stop_strings_of_a_template_are_those_of_conversations() {
    let stops = |protocol, body: Value| {
        let parsed = parse(protocol, &body, None).expect("a request");
        parsed.request.params.stops
    };
    let conversation = json!({"messages": [user()], "stop": ["x"]});
    assert_eq!(stops(Protocol::Chat, conversation), ["x", "<|im_end|>"]);
    let known = json!({"messages": [user()], "stop": "<|im_end|>"});
    assert_eq!(stops(Protocol::Chat, known), ["<|im_end|>"]);
    let many: Vec<String> = (0..16).map(|i| i.to_string()).collect();
    let full = json!({"messages": [user()], "stop": many.clone()});
    assert_eq!(stops(Protocol::Chat, full), many, "as many as there may be");
    let text = json!({"prompt": "hi", "stop": ["x"]});
    assert_eq!(stops(Protocol::Completion, text), ["x"], "no conversation");
}
