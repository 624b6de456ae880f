//! Descriptions as JSON: golden bytes, what the parsers build, and what is rejected.

use super::tests::samples::{BODIES, described, full_description, parsed, with_prompts};
use super::*;
use generate::images::DescriptionUsage;
use generate::request::{GenerateRequest, MixedPart};
use generate::request_record::ImageRunRecord;
use proptest::prelude::*;
use serde_json::{Map, json};
use text::{GrammarSource, Message};

mod hostile;
mod samples;

/// All fields, as this version writes them. A change of the encoding is a change of this file.
const GOLDEN: &str = include_str!("tests/full.json");
/// Only the fields that the first version wrote for each stream.
const OLD: &str = include_str!("tests/old.json");

fn round_trip(description: &StreamDescription) -> StreamDescription {
    let body = description.encode().expect("short");
    match StreamDescription::decode(&body) {
        Ok(decoded) => decoded,
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&body)),
    }
}

/// Promise (Descriptions of streams): the encoding is stable byte for byte; descriptions of older and newer versions
/// are read.
/// Also held by `gateway/src/records/description/tests.rs :: description_of_an_old_version_is_decoded`,
/// `gateway/src/records/description/tests.rs :: unknown_fields_of_a_newer_version_are_ignored`,
/// `gateway/src/records/control_state/tests.rs`.
#[test]
fn description_is_golden() {
    let body = full_description().encode().expect("short");
    assert_eq!(String::from_utf8_lossy(&body), GOLDEN.trim_end());
    let decoded = StreamDescription::decode(GOLDEN.as_bytes());
    assert_eq!(decoded, Ok(full_description()));
}

#[test]
fn description_of_an_old_version_is_decoded() {
    let decoded = StreamDescription::decode(OLD.as_bytes()).expect("a description");
    let expected = StreamDescription {
        deadline_unix_us: None,
        identity: ModelIdentity::default(),
        params: GenerationParams {
            max_tokens: Some(16),
            seed: Some(7),
            ..GenerationParams::default()
        },
        stream_options: StreamOptions::default(),
        priority: Priority::Normal,
        prompts: RecordedPrompts::Requested(vec![Prompt::Text("hi".to_owned())]),
        images: Vec::new(),
        body_bytes: 0,
        job_id: None,
        stored: None,
        n: 1,
        ..full_description()
    };
    assert_eq!(decoded, expected);
}

#[test]
fn unknown_fields_of_a_newer_version_are_ignored() {
    let mut json: Value = serde_json::from_str(GOLDEN).expect("JSON");
    json["color"] = json!({"a": [1, 2]});
    json["params"]["color"] = json!("red");
    json["params"]["sampling"]["color"] = json!(null);
    json["stream_options"]["color"] = json!(1.5);
    json["identity"]["color"] = json!([]);
    let decoded = StreamDescription::decode(json.to_string().as_bytes());
    assert_eq!(decoded, Ok(full_description()));
}

/// Promise (Descriptions of streams): a request, in every wire protocol, is equal after being written and read:
/// floats bit for bit, member order of nested JSON.
/// Also held by `gateway/src/records/description/tests.rs :: random_descriptions_survive_json`,
/// `generate/src/request_record.rs`.
#[test]
fn parsed_requests_survive_json() {
    for (protocol, body) in BODIES {
        let request =
            parsed(*protocol, body.as_bytes()).unwrap_or_else(|e| panic!("{body}: {}", e.message));
        let json = serde_json::to_string(&request).expect("JSON");
        let again: GenerateRequest = serde_json::from_str(&json).expect("a request");
        assert_eq!(again, request, "{body}");
        let description = described(*protocol, request);
        let decoded = round_trip(&description);
        assert_eq!(decoded, description, "{body}");
        // Equal text: `==` of maps ignores the order of the members.
        assert_eq!(decoded.encode(), description.encode());
    }
}

#[test]
fn wire_enums_are_encoded_by_name() {
    for protocol in Protocol::ALL {
        for framing in Framing::ALL {
            for reasoning_field in ReasoningField::ALL {
                let description = StreamDescription {
                    protocol,
                    framing,
                    reasoning_field,
                    ..full_description()
                };
                let body = description.encode().expect("short");
                let json: Value = serde_json::from_slice(&body).expect("JSON");
                assert_eq!(json["protocol"], protocol.name());
                assert_eq!(json["framing"], framing.name());
                assert_eq!(json["reasoning_field"], reasoning_field.name());
                assert_eq!(round_trip(&description), description);
            }
        }
    }
    for priority in Priority::ALL {
        let json = serde_json::to_value(priority).expect("JSON");
        assert_eq!(json, priority.name());
    }
}

#[test]
fn member_order_of_nested_json_survives() {
    let tool = r#"{"function":{"z":1,"name":"f","a":{"y":0.1,"x":[1e300,-0.0,5e-324,18446744073709551615]}},"b":null}"#;
    let tool: Value = serde_json::from_str(tool).expect("JSON");
    let prompt = Prompt::Conversation {
        field: "input",
        messages: vec![Message {
            role: "user".to_owned(),
            content: json!([{"type": "text", "text": "a"}]),
            rest: Map::from_iter([("z".to_owned(), json!(1)), ("a".to_owned(), json!(2))]),
        }],
        tools: vec![tool.clone()],
        continues: true,
        kwargs: Map::from_iter([("z".to_owned(), json!(0.1)), ("a".to_owned(), tool.clone())]),
    };
    let description = StreamDescription {
        stored: Some(tool),
        ..with_prompts(vec![prompt])
    };
    let decoded = round_trip(&description);
    assert_eq!(decoded, description);
    assert_eq!(decoded.encode(), description.encode());
}

/// Promise (Descriptions of streams): a description that could not be read later (too long, nested too deeply) is not
/// written.
/// Also held by `gateway/src/records/description/tests.rs :: description_over_the_bound_is_not_encoded`.
#[test]
fn nested_values_survive_or_are_not_encoded() {
    for depth in [50, 110, 121, 122, 123, 124, 125, 126, 127, 128] {
        let nested = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        let message = r#""messages":[{"role":"user","content":"x"}]"#;
        let tool = r#"[{"type":"function","function":{"name":"f","parameters":PLACE}}]"#;
        let call = r#"{"function":{"name":"f","arguments":PLACE}}"#;
        let arguments = serde_json::to_string(&nested).expect("JSON");
        let in_call = call.replace("PLACE", &arguments);
        let bodies = [
            format!(r#"{{{message},"chat_template_kwargs":{{"k":{nested}}}}}"#),
            format!(
                r#"{{{message},"tools":{}}}"#,
                tool.replace("PLACE", &nested)
            ),
            format!(r#"{{{message},"json_schema":{nested}}}"#),
            format!(r#"{{"messages":[{{"role":"assistant","tool_calls":[{in_call}]}}]}}"#),
        ];
        for body in bodies {
            let Ok(request) = parsed(Protocol::Chat, body.as_bytes()) else {
                assert!(depth > 124, "{depth}: {body}");
                continue;
            };
            let description = described(Protocol::Chat, request);
            match description.encode() {
                Ok(_) => assert_eq!(round_trip(&description), description),
                Err(error) => assert!(depth > 121, "{depth}: {error}: {body}"),
            }
        }
    }
}

#[test]
fn prepared_prompts_replace_requested_ones() {
    let mut description = full_description();
    let record = |ids| PromptRecord {
        ids,
        at_text_start: true,
        echo_text: Some("e".to_owned()),
        text: Some("<|im_start|>".to_owned()),
        tools: vec![json!({"b": 1, "a": 0.1})],
        images: vec![ImageRunRecord {
            image: 0,
            run: 1,
            rows: 1..3,
            grid: (1, 2),
            key: "0f".repeat(32),
        }],
        described: Some(Box::new(DescriptionUsage {
            model: "seer".to_owned(),
            prompt_tokens: 90,
            completion_tokens: 8,
            cached: 1,
        })),
    };
    let count = description.prompts.len();
    let prompts = vec![record(vec![1, 2, 3]); count];
    let body = StreamDescription::encode_prepared(&prompts).expect("short");
    assert_eq!(description.set_prepared(&body), Ok(()));
    assert_eq!(description.prompts, RecordedPrompts::Prepared(prompts));
    assert_eq!(round_trip(&description), description);
    let others = [
        vec![record(vec![1]); count + 1],
        vec![record(Vec::new()); count],
        vec![record(vec![1 << 31]); count],
        vec![record(vec![1; description.context_max + 1]); count],
    ];
    for prompts in others {
        let body = StreamDescription::encode_prepared(&prompts).expect("short");
        let before = description.clone();
        assert!(description.set_prepared(&body).is_err());
        assert_eq!(description, before);
    }
}

#[test]
fn description_over_the_bound_is_not_encoded() {
    let text = |bytes: usize| with_prompts(vec![Prompt::Text("x".repeat(bytes))]);
    assert!(text(DESCRIPTION_BYTES_MAX - (8 << 10)).encode().is_ok());
    let error = text(DESCRIPTION_BYTES_MAX).encode();
    assert_eq!(error, Err(DescriptionError::TooLong(DESCRIPTION_BYTES_MAX)));
    let prepared = |ids: usize| {
        let record = PromptRecord {
            ids: vec![100_000; ids],
            ..PromptRecord::default()
        };
        StreamDescription::encode_prepared(&[record])
    };
    assert!(prepared(1 << 20).is_ok());
    assert!(prepared(1 << 21).is_err());
}

/// The largest description with the largest prepared prompts fits in a record.
#[test]
fn rewritten_description_fits_in_a_record() {
    let base = StreamDescription {
        prompts: RecordedPrompts::default(),
        ..full_description()
    };
    let sizes = DESCRIPTION_BYTES_MAX + (DESCRIPTION_BYTES_MAX - OPEN_BYTES_MAX);
    assert!(base.encode().expect("short").len() < DESCRIPTION_BYTES_MAX);
    assert!(sizes <= PREPARED_DESCRIPTION_BYTES_MAX);
}

fn sampling() -> impl Strategy<Value = engine::SamplingParams> {
    let floats = (0f32..=100.0, 0f32..=1.0, 0f32..=1.0, -100f32..=100.0);
    let bias = prop::collection::vec((0u32..1 << 31, -1e6f32..=1e6), 0..5);
    (floats, bias, any::<(u32, u64, bool)>(), 0u32..=20).prop_map(
        |((temperature, top_p, min_p, penalty), logit_bias, (top_k, seed, logprobs), top)| {
            engine::SamplingParams {
                temperature,
                top_p,
                min_p,
                top_k,
                presence_penalty: penalty,
                logit_bias,
                seed,
                logprobs,
                top_logprobs: top,
                ..engine::SamplingParams::default()
            }
        },
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<u64>().prop_map(|bits| json!(f64::from_bits(bits))),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((".*", inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn any_prompt() -> impl Strategy<Value = Prompt> {
    let message = (".*", any_json(), any_json()).prop_map(|(role, content, other)| Message {
        role,
        content,
        rest: Map::from_iter([("z".to_owned(), other)]),
    });
    let conversation = (
        prop::collection::vec(message, 0..4),
        prop::collection::vec(any_json(), 0..3),
        any::<bool>(),
        any_json(),
    );
    let conversation = conversation.prop_map(|(messages, tools, continues, value)| {
        let kwargs = Map::from_iter([("b".to_owned(), value.clone()), ("a".to_owned(), value)]);
        Prompt::Conversation {
            field: "messages",
            messages,
            tools,
            continues,
            kwargs,
        }
    });
    let ids = || prop::collection::vec(0u32..1 << 31, 0..20);
    let plain = prop_oneof![
        ".*".prop_map(Prompt::Text),
        ids().prop_map(Prompt::Ids),
        (".*", ids()).prop_map(|(text, ids)| {
            Prompt::Mixed(vec![MixedPart::Text(text), MixedPart::Ids(ids)])
        }),
        conversation,
    ];
    (plain, ids(), any::<bool>()).prop_map(|(prompt, context, continued)| {
        if continued {
            Prompt::Continued {
                context,
                then: Box::new(prompt),
            }
        } else {
            prompt
        }
    })
}

proptest! {
    #[test]
    fn random_descriptions_survive_json(
        sampling in sampling(), prompt in any_prompt(), stops in prop::collection::vec(".{1,20}", 0..4),
        seed in any::<u64>(), schema in any_json(), stored in any_json().prop_filter("null is absence", |v| !v.is_null()),
    ) {
        let params = GenerationParams {
            sampling,
            stops,
            seed: Some(seed),
            response_format: Some(generate::request::ResponseFormat {
                source: GrammarSource::JsonSchema(schema),
                field: "response_format".to_owned(),
            }),
            ..GenerationParams::default()
        };
        let description = StreamDescription {
            params,
            stored: Some(stored),
            ..with_prompts(vec![prompt])
        };
        let decoded = round_trip(&description);
        prop_assert_eq!(decoded.encode(), description.encode());
        prop_assert_eq!(decoded, description);
    }
}
