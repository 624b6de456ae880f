//! Any bytes are a description of a stream, prepared prompts or control updates, or a clear error; a description that is
//! decoded is encoded to bytes that are decoded to the same description. An accepted request of each wire protocol
//! survives the description.
//!
//! The first byte chooses what the rest is: `0` a description, `1` prepared prompts, `2` control updates, from `3` on a
//! body of each wire protocol.
#![no_main]

use bytes::Bytes;
use gateway::records::{ControlState, DescriptionError, RecordedPrompts, StreamDescription};
use generate::error::ApiError;
use generate::model_handle::NO_ADAPTERS;
use generate::request::GenerateRequest;
use generate::sampling::SamplingDefaults;
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::LazyLock;
use text::Capabilities;
use wire::derived_model::{DerivedModel, RequestedModel};
use wire::protocol::Protocol;
use wire::request_body::RequestBody;

/// A description for the prompts and parameters of others.
static BARE: LazyLock<StreamDescription> = LazyLock::new(|| {
    let old = include_bytes!("../../crates/gateway/src/records/description/tests/old.json");
    StreamDescription::decode(old).expect("a description")
});

/// Defaults of each kind, for a model named `derived`.
static DERIVED: LazyLock<DerivedModel> = LazyLock::new(|| {
    let options = json!({
        "temperature": 0.5, "num_predict": 9, "stop": ["a", "b"], "seed": 3, "min_tokens": 4, "top_k": 5,
    });
    DerivedModel {
        parent: "fake".to_owned(),
        system: Some("s".to_owned()),
        template: Some("{{ .System }}{{ .Prompt }}".to_owned()),
        adapter: None,
        options: options.as_object().cloned().unwrap_or_default(),
    }
});

fn check_round_trip(description: &StreamDescription) {
    let body = match description.encode() {
        Ok(body) => body,
        // Nested deeper than the limit for decoding, or longer than escapes leave room for.
        Err(DescriptionError::Invalid(_) | DescriptionError::TooLong(_)) => return,
    };
    match StreamDescription::decode(&body) {
        Ok(decoded) => {
            // Bytes are compared, too: `==` of objects ignores the order of members.
            assert!(
                decoded == *description,
                "{}",
                String::from_utf8_lossy(&body)
            );
            assert_eq!(decoded.encode(), Ok(body));
        }
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&body)),
    }
}

fn check_prepared(body: &[u8]) {
    let mut description = BARE.clone();
    if description.set_prepared(body).is_ok() {
        let RecordedPrompts::Prepared(prompts) = &description.prompts else {
            panic!("prompts are prepared");
        };
        let again = StreamDescription::encode_prepared(prompts).expect("decoded before");
        let mut other = BARE.clone();
        assert_eq!(other.set_prepared(&again), Ok(()));
        assert!(other == description);
        check_round_trip(&description);
    }
}

fn check_control_state(body: &[u8]) {
    if let Ok(state) = ControlState::decode(body) {
        // The encoded text may be longer than the input: absent fields are encoded with their defaults.
        if let Ok(body) = state.encode() {
            assert_eq!(ControlState::decode(&body), Ok(state));
        }
    }
}

fn parse(protocol: Protocol, body: &[u8]) -> Result<GenerateRequest, ApiError> {
    let body = RequestBody::parse(Bytes::copy_from_slice(body))?;
    let mut fields = body.fields();
    let name = fields.string("model");
    let model = RequestedModel {
        takes_images: true,
        id: "fake",
        derived: (name.as_deref() == Some("derived")).then(|| &*DERIVED),
        adapters: &NO_ADAPTERS,
        sampling: SamplingDefaults::default(),
        stops: &[],
        capabilities: Capabilities {
            thinking: true,
            ..Capabilities::default()
        },
        vocab_size: 300,
    };
    let unknown = |_: &str| Err(ApiError::bad_request("not_found", "no response"));
    protocol
        .parse(fields, model, &unknown)
        .map(|parsed| parsed.request)
}

fn check_request(protocol: Protocol, body: &[u8]) {
    let Ok(request) = parse(protocol, body) else {
        return;
    };
    check_round_trip(&StreamDescription {
        protocol,
        priority: request.stream_options.priority,
        n: request.n,
        params: request.params,
        stream_options: request.stream_options,
        prompts: RecordedPrompts::Requested(request.prompts),
        ..BARE.clone()
    });
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind.wrapping_sub(b'0') {
        0 => {
            if let Ok(description) = StreamDescription::decode(rest) {
                check_round_trip(&description);
            }
        }
        1 => check_prepared(rest),
        2 => check_control_state(rest),
        kind => {
            let protocols = Protocol::ALL.len();
            check_request(Protocol::ALL[usize::from(kind - 3) % protocols], rest);
        }
    }
});
