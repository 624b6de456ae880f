//! Any bytes are a request of each wire protocol or a clear error, and an accepted request is within its bounds.
//!
//! The first byte chooses the parser (`0` is the first); the rest is the body. A parser is deterministic, and its memory
//! is bounded by the length of the body.
#![no_main]

#[path = "request_bodies/request_bounds.rs"]
mod request_bounds;

use bytes::Bytes;
use generate::error::{ApiError, Blame};
use generate::model_handle::NO_ADAPTERS;
use generate::request::{GenerateRequest, IgnoredFields, Prompt};
use generate::sampling::SamplingDefaults;
use libfuzzer_sys::fuzz_target;
use request_bounds::{check_prompt, check_request};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::LazyLock;
use stream::StreamId;
use testing::heap::{CountingAllocator, take_thread_peak, thread_held};
use text::Capabilities;
use wire::control_request::ControlRequest;
use wire::derived_model::{DerivedModel, RequestedModel};
use wire::fields::Fields;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::stored_request::History;
use wire::{anthropic, embeddings_input, field_table, realtime_command};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The parsers: one for each protocol, control updates, embeddings, prompts to count, messages of a WebSocket.
const PARSERS: usize = Protocol::ALL.len() + 4;
/// Token ids of the vocabulary.
const VOCAB: usize = 300;
/// Errors that concern the body as a whole.
const CODES_WITHOUT_FIELD: [&str; 2] = ["invalid_json", "invalid_utf8"];
/// Invalid fields of one error.
const PROBLEMS_MAX: usize = 64;
/// Bytes of an invalid value that are repeated.
const SHOWN_BYTES_MAX: usize = 32;
/// Bytes of memory for each byte of a body, and for any body: values of three bytes take up to 200 bytes, and required
/// tool calls copy the tools' schemas.
const PEAK_BYTES_PER_BYTE: usize = 512;
const PEAK_BYTES_BASE: usize = 64 << 10;

/// Defaults of each kind.
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

/// Earlier items of a conversation, under the one id that is known.
struct OneResponse;

impl History for OneResponse {
    fn id(&self) -> Option<StreamId> {
        None
    }

    fn items(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        const ITEMS: [&str; 2] = [
            r#"{"type":"message","role":"user","content":"hi"}"#,
            r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ho"}]}"#,
        ];
        Box::new(ITEMS.into_iter())
    }
}

fn history(id: &str) -> Result<Box<dyn History>, ApiError> {
    match id {
        "resp_1" => Ok(Box::new(OneResponse)),
        _ => Err(ApiError::field(
            "previous_response_id",
            "not_found",
            "is not known",
        )),
    }
}

/// A request of a protocol. A model named `derived` has defaults, one named `plain` has no reasoning and reads text only.
fn parse(protocol: Protocol, body: &[u8]) -> Result<GenerateRequest, ApiError> {
    let body = RequestBody::parse(Bytes::copy_from_slice(body))?;
    let mut fields = body.fields();
    let name = fields.string("model");
    let model = RequestedModel {
        takes_images: name.as_deref() != Some("plain"),
        id: "fake",
        derived: (name.as_deref() == Some("derived")).then(|| &*DERIVED),
        sampling: SamplingDefaults::default(),
        stops: &[],
        capabilities: Capabilities {
            thinking: name.as_deref() != Some("plain"),
            ..Capabilities::default()
        },
        adapters: &NO_ADAPTERS,
        vocab_size: VOCAB,
    };
    let parsed = protocol.parse(fields, model, &history)?;
    let items = parsed
        .stored_request
        .map(|stored| stored.items)
        .unwrap_or_default();
    // Stored items are read again when the conversation goes on.
    assert!(
        items.iter().all(|item| item.contains_key("type")),
        "{items:?}"
    );
    Ok(parsed.request)
}

fn parse_embeddings(body: &[u8]) -> Result<Vec<Prompt>, ApiError> {
    let mut fields = Fields::parse(body)?;
    let prompts = embeddings_input::read_inputs(&mut fields, "input", VOCAB);
    let _: IgnoredFields = fields.finish_request(&field_table::EMBEDDINGS)?;
    Ok(prompts)
}

/// Parses twice: equal results, clear errors, bounded memory. Returns what was parsed.
fn check<T: Debug>(
    protocol: Protocol,
    body: &[u8],
    parse: impl Fn() -> Result<T, ApiError>,
) -> Option<T> {
    let held = thread_held();
    take_thread_peak();
    let first = parse();
    let peak = usize::try_from(take_thread_peak() - held).unwrap_or(0);
    let bound = PEAK_BYTES_BASE + body.len() * PEAK_BYTES_PER_BYTE;
    assert!(peak <= bound, "{peak} bytes for a body of {}", body.len());
    let (first_text, second_text) = (format!("{first:?}"), format!("{:?}", parse()));
    assert_eq!(first_text, second_text, "parsing is deterministic");
    first.map_err(|error| check_error(&error, protocol)).ok()
}

/// An error names its fields, or concerns the body as a whole; the protocol can represent the error.
fn check_error(error: &ApiError, protocol: Protocol) {
    assert_eq!(error.blame, Blame::Caller, "{error:?}");
    let has_code = CODES_WITHOUT_FIELD.contains(&error.code);
    assert!(has_code == error.problems.is_empty(), "{error:?}");
    assert!(error.problems.len() <= PROBLEMS_MAX, "{error:?}");
    for problem in &error.problems {
        assert!(!problem.constraint.is_empty(), "{error:?}");
        let shown = problem.value.as_deref().unwrap_or_default();
        assert!(shown.len() <= SHOWN_BYTES_MAX, "{error:?}");
    }
    let response = protocol.error::<Vec<u8>>(error);
    assert!(response.status().is_client_error(), "{error:?}");
    let body: Value = serde_json::from_slice(response.body()).expect("errors are JSON");
    assert!(body.is_object(), "{body}");
}

fn run(kind: usize, body: &[u8]) {
    if let Some(&protocol) = Protocol::ALL.get(kind) {
        if let Some(request) = check(protocol, body, || parse(protocol, body)) {
            check_request(&request, VOCAB, body.len());
        }
        return;
    }
    match kind - Protocol::ALL.len() {
        0 => {
            check(Protocol::Job, body, || ControlRequest::parse(body));
        }
        1 => {
            let prompts = check(Protocol::Chat, body, || parse_embeddings(body));
            let prompts = prompts.unwrap_or_default();
            assert!(prompts.len() <= embeddings_input::INPUTS_MAX);
            prompts
                .iter()
                .for_each(|prompt| check_prompt(prompt, 0, VOCAB));
        }
        2 => {
            let parse = || anthropic::message_request::parse_prompt(Fields::parse(body)?);
            if let Some((prompt, images)) = check(Protocol::Messages, body, parse) {
                let images = images.len();
                prompt.iter().for_each(|prompt| check_prompt(prompt, images, VOCAB));
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(body) {
                check(Protocol::Job, body, || {
                    realtime_command::parse_message(text).command
                });
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    if let Some((&kind, body)) = input.split_first() {
        run(usize::from(kind.wrapping_sub(b'0')) % PARSERS, body);
    }
});
