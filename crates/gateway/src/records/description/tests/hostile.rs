//! Descriptions that no version wrote.
//!
//! Promise (Descriptions of streams): no bytes cause a panic, and an edited file gives the engine no value that a
//! parser rejects.
//! Also held by `fuzz/`.

use super::*;

/// The golden description with another value at a path.
fn changed(path: &str, value: Value) -> String {
    let mut json: Value = serde_json::from_str(GOLDEN).expect("JSON");
    *json.pointer_mut(path).expect(path) = value;
    json.to_string()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of values")]
fn values_that_a_parser_rejects_are_rejected() {
    let ids = |count: usize| json!(vec![1; count]);
    for (path, value) in [
        ("/n", json!(0)),
        ("/n", json!(5)),
        ("/n", json!(u64::MAX)),
        ("/kind", json!("other")),
        ("/protocol", json!("openai")),
        ("/framing", json!("Sse")),
        ("/reasoning_field", json!(null)),
        ("/credit_window", json!(u64::MAX)),
        ("/detached_tokens", json!(u64::MAX)),
        ("/response_id", json!("a\r\nb")),
        ("/response_id", json!("a".repeat(5000))),
        ("/created_unix_s", json!(i64::MAX)),
        ("/created_unix_s", json!(-1)),
        ("/opened_unix_us", json!(u64::MAX)),
        ("/deadline_unix_us", json!(u64::MAX)),
        ("/model", json!("a\u{0}")),
        ("/context_max", json!(u64::MAX)),
        ("/body_bytes", json!(u64::MAX)),
        ("/priority", json!("urgent")),
        ("/job_id", json!("../a")),
        ("/params/max_tokens", json!(u64::MAX)),
        ("/params/max_tokens", json!(0)),
        ("/params/stops", json!(vec!["a"; 17])),
        ("/params/stops", json!([""])),
        ("/params/stops", json!(["a".repeat(257)])),
        ("/params/stop_token_ids", ids(65)),
        ("/params/stop_token_ids", json!([1u32 << 31])),
        ("/params/reasoning_budget", json!(u64::MAX)),
        ("/params/constrained_tools/0/name", json!("a\"b")),
        ("/params/constrained_tools/0/place", json!(256)),
        ("/params/response_format/source", json!({"calls": []})),
        (
            "/params/response_format/source",
            json!({"closed_objects": "json_object"}),
        ),
        ("/params/sampling/temperature", json!(-0.1)),
        ("/params/sampling/temperature", json!(null)),
        ("/params/sampling/temperature", json!(1e39)),
        ("/params/sampling/top_p", json!(1.1)),
        ("/params/sampling/min_p", json!(-1)),
        ("/params/sampling/typical_p", json!(2)),
        ("/params/sampling/repetition_penalty", json!(-1)),
        ("/params/sampling/presence_penalty", json!(101)),
        ("/params/sampling/frequency_penalty", json!("1")),
        ("/params/sampling/top_k", json!(1u64 << 32)),
        ("/params/sampling/top_logprobs", json!(65)),
        ("/params/sampling/answered", json!(1)),
        ("/params/sampling/min_tokens", json!(17)),
        ("/params/sampling/dry_multiplier", json!(-0.5)),
        ("/params/sampling/dry_multiplier", json!(1e39)),
        ("/params/sampling/dry_multiplier", json!(null)),
        ("/params/sampling/dry_base", json!(0.5)),
        ("/params/sampling/dry_base", json!(16.5)),
        ("/params/sampling/dry_allowed_length", json!(65_537)),
        ("/params/sampling/dry_allowed_length", json!(-1)),
        ("/params/sampling/dry_window", json!(65_537)),
        ("/params/sampling/xtc_probability", json!(1.5)),
        ("/params/sampling/xtc_threshold", json!(-0.1)),
        ("/params/dry_sequence_breakers", json!(vec!["a"; 33])),
        ("/params/dry_sequence_breakers", json!(["a".repeat(41)])),
        ("/params/sampling/logit_bias", json!(vec![(1, 1.0); 1025])),
        ("/params/sampling/logit_bias", json!([[1u32 << 31, 1.0]])),
        ("/params/sampling/logit_bias", json!([[1, 1e7]])),
        (
            "/stream_options/deadline",
            json!({"secs": 86_401, "nanos": 0}),
        ),
        (
            "/stream_options/deadline",
            json!({"secs": u64::MAX, "nanos": 1_000_000_000}),
        ),
        ("/stream_options/cache_salt", json!("")),
        ("/stream_options/cache_salt", json!("a".repeat(257))),
        ("/stream_options/conversation_id", json!("a".repeat(129))),
        ("/stream_options/webhook", json!("a".repeat(2049))),
        ("/stream_options/best_of/generated", json!(3)),
        ("/stream_options/best_of/returned", json!(3)),
        ("/stream_options/best_of/returned", json!(0)),
        ("/stream_options/repeated_fields", json!("\"a\":1}{")),
        ("/stream_options/repeated_fields", json!("a")),
        ("/prompts/requested/0/conversation/field", json!("password")),
        (
            "/prompts/requested/0/conversation/tools",
            json!(vec![json!({}); 257]),
        ),
        (
            "/prompts/requested/1/continued/context",
            json!([1u32 << 31]),
        ),
        (
            "/prompts/requested/1/continued/then",
            json!({"continued": {"context": [], "then": {"text": ""}}}),
        ),
        ("/prompts/requested/4/ids", json!([-1])),
        ("/prompts/requested/4/ids", json!([u32::MAX])),
        (
            "/prompts/requested/5/mixed",
            json!(vec![json!({"text": "a"}); 4097]),
        ),
        ("/prompts/requested/5/mixed/1/ids", json!([1u32 << 31])),
        ("/prompts/requested/5/mixed/0/text", json!(3)),
        ("/prompts/requested", json!([])),
        ("/prompts/requested", json!(vec![json!({"text": "a"}); 9])),
        ("/prompts", json!({"prepared": [{"ids": []}]})),
        ("/prompts", json!({"prepared": [{"ids": ids(4097)}]})),
        ("/prompts", json!({"prepared": [{"ids": [1u32 << 31]}]})),
    ] {
        let json = changed(path, value);
        assert!(
            StreamDescription::decode(json.as_bytes()).is_err(),
            "{path}: {json}"
        );
    }
}

#[test]
fn wrong_types_and_missing_fields_are_named() {
    for (path, field) in [
        ("/n", "n"),
        ("/owner", "owner"),
        ("/params/sampling/top_p", "params.sampling.top_p"),
        ("/params/stops/0", "params.stops[0]"),
        (
            "/stream_options/best_of/returned",
            "stream_options.best_of.returned",
        ),
        ("/prompts/requested/4/ids/0", "prompts.requested[4].ids[0]"),
        (
            "/prompts/requested/0/conversation/messages/0/role",
            "prompts.requested[0].conversation.messages[0]",
        ),
    ] {
        let json = changed(path, json!({"a": 1}));
        let error = StreamDescription::decode(json.as_bytes()).expect_err(path);
        assert!(error.to_string().starts_with(field), "{error}");
    }
    let json: Value = serde_json::from_str(GOLDEN).expect("JSON");
    for field in ["kind", "owner", "model", "n", "prompts", "params"] {
        let mut json = json.clone();
        json.as_object_mut().expect("an object").shift_remove(field);
        let error = StreamDescription::decode(json.to_string().as_bytes()).expect_err(field);
        assert!(error.to_string().contains(&format!("`{field}`")), "{error}");
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = |open: &str, close: &str| {
        let depth = 1 << 16;
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    for nested in [deep("[", "]"), deep("{\"a\":", "}"), deep("[", "")] {
        assert!(StreamDescription::decode(nested.as_bytes()).is_err());
        for path in [
            "/stored",
            "/prompts/requested/0/conversation/tools/0",
            "/params/response_format/source",
        ] {
            let json = changed(path, json!("PLACE")).replace("\"PLACE\"", &nested);
            assert!(
                StreamDescription::decode(json.as_bytes()).is_err(),
                "{path}"
            );
        }
    }
    let prompt = format!(
        "{}{{\"text\":\"\"}}{}",
        r#"{"continued":{"context":[],"then":"#.repeat(200),
        "}}".repeat(200)
    );
    let json =
        changed("/prompts/requested", json!("PLACE")).replace("\"PLACE\"", &format!("[{prompt}]"));
    assert!(StreamDescription::decode(json.as_bytes()).is_err());
}

#[test]
fn body_over_the_bound_is_not_parsed() {
    let spaces = vec![b' '; PREPARED_DESCRIPTION_BYTES_MAX + 1];
    let most = PREPARED_DESCRIPTION_BYTES_MAX;
    assert_eq!(
        StreamDescription::decode(&spaces),
        Err(DescriptionError::TooLong(most))
    );
}

#[test]
fn values_that_take_more_memory_than_a_request_are_an_error() {
    let lists = |count: usize| {
        let list = format!("[{}[]]", "[],".repeat(count - 1));
        let json = changed("/stored", json!("PLACE")).replace("\"PLACE\"", &list);
        StreamDescription::decode(json.as_bytes()).is_ok()
    };
    let most = 4 * wire::fields::bounds::VALUES_MAX;
    assert!(lists(most - 220) && !lists(most));
    let stored = |count: usize| StreamDescription {
        stored: Some(Value::from(vec![json!([]); count])),
        ..full_description()
    };
    assert!(stored(most - 220).encode().is_ok() && stored(most).encode().is_err());
    let text = format!("\"{}\"", r#"[{:\"\\"#.repeat(most / 2));
    let json = changed("/stored", json!("PLACE")).replace("\"PLACE\"", &text);
    assert!(StreamDescription::decode(json.as_bytes()).is_ok());
}

proptest! {
    #[test]
    fn any_bytes_are_descriptions_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = StreamDescription::decode(&bytes);
        let _ = full_description().set_prepared(&bytes);
    }

    #[test]
    fn changed_bytes_are_descriptions_or_errors(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = GOLDEN.trim_end().as_bytes().to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(description) = StreamDescription::decode(&bytes) {
            prop_assert_eq!(round_trip(&description), description);
        }
        prop_assert!(StreamDescription::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }
}
