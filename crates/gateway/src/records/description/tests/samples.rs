//! Sample descriptions, and requests of each wire protocol.

use crate::records::description::*;
use bytes::Bytes;
use generate::error::ApiError;
use generate::images::ImageRecord;
use generate::model_handle::AdapterUse;
use generate::prompt_limit::Truncation;
use generate::request::{
    BestOf, GenerateRequest, IgnoredFields, MixedPart, PromptPiece, ResponseFormat,
};
use generate::sampling::SamplingDefaults;
use generate::tools::{OfferedTool, ToolCalling};
use serde_json::{Map, json};
use std::time::Duration;
use text::{Capabilities, ConstrainedTool, GrammarSource, Message};
use wire::derived_model::RequestedModel;
use wire::request_body::RequestBody;

/// Bodies of all wire protocols, with many of their fields.
pub(super) const BODIES: &[(Protocol, &str)] = &[
    (
        Protocol::Chat,
        r#"{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"ä\n"}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\":0.1,\"a\":1}"}}]},
            {"role":"tool","tool_call_id":"1","content":"x","name":"f"}],
            "tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"z":{"type":"number","minimum":0.1},"a":{}},"required":["z"]}}}],
            "chat_template_kwargs":{"z":1,"a":0.30000000000000004},"temperature":0.7,"top_p":0.9,"min_p":0.05,
            "logit_bias":{"5":-1.5,"7":100},"stop":["a","\u0000"],"seed":-1,"n":3,"max_tokens":7,"logprobs":true,"top_logprobs":3,
            "stream":true,"stream_options":{"include_usage":true},"deadline_ms":1500,"priority":"high","cache_salt":"s","reasoning":{"max_tokens":5}}"#,
    ),
    (
        Protocol::Chat,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":"required",
            "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}"#,
    ),
    (
        Protocol::Chat,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],
            "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"properties":{"b":{"maximum":1e-7},"a":{}}}}}}"#,
    ),
    (
        Protocol::Completion,
        r#"{"model":"m","prompt":["a","b"],"n":2,"best_of":3,"max_tokens":4,"echo":true,"guided_regex":"[a-z]+"}"#,
    ),
    (
        Protocol::Completion,
        r#"{"model":"m","prompt":[1,2,3],"suffix":null,"logprobs":2,"echo":true,"stop_token_ids":[4,5],"ignore_eos":true,"min_tokens":2}"#,
    ),
    (
        Protocol::Job,
        r#"{"model":"m","prompt":"a","guided_choice":["x","y"],"job_id":"j"}"#,
    ),
    (
        Protocol::Messages,
        r#"{"model":"m","max_tokens":5,"system":"s","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"The ("}]}"#,
    ),
    (
        Protocol::Responses,
        r#"{"model":"m","input":[{"role":"user","content":"x"}],"instructions":"i","background":true,"metadata":{"b":"1","a":"2"},"store":true}"#,
    ),
    (
        Protocol::OllamaChat,
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"format":"json","options":{"temperature":0,"repeat_last_n":-1}}"#,
    ),
    (
        Protocol::OllamaGenerate,
        r#"{"model":"m","prompt":"x","context":[1,2,3],"template":"{{ .System }}{{ .Prompt }}","system":"s","options":{"seed":3}}"#,
    ),
    (
        Protocol::LlamaCompletion,
        r#"{"model":"m","prompt":["a",5,6,"b"],"n_predict":3,"n_probs":2,"logit_bias":[[5,false]],"timings_per_token":true,"stream":true}"#,
    ),
    (
        Protocol::Infill,
        r#"{"input_prefix":"a","input_suffix":"b","prompt":"c","input_extra":[{"filename":"f","text":"d"},{"text":"e"}],"n_predict":4}"#,
    ),
    (
        Protocol::AiSdkUi,
        r#"{"id":"c","messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"x"}]}],"trigger":"submit-message"}"#,
    ),
];

/// The request of a body.
pub(super) fn parsed(protocol: Protocol, body: &[u8]) -> Result<GenerateRequest, ApiError> {
    let body = RequestBody::parse(Bytes::copy_from_slice(body))?;
    let mut fields = body.fields();
    fields.string("model");
    let model = RequestedModel {
        takes_images: false,
        fetches_images: false,
        id: "m",
        derived: None,
        adapters: &generate::model_handle::NO_ADAPTERS,
        sampling: SamplingDefaults::default(),
        stops: &[],
        capabilities: Capabilities {
            thinking: true,
            ..Capabilities::default()
        },
        vocab_size: 300,
    };
    let unknown = |_: &str| Err(ApiError::bad_request("not_found", "no response"));
    let parsed = protocol.parse(fields, model, &unknown)?;
    Ok(parsed.request)
}

/// The description of a request.
pub(super) fn described(protocol: Protocol, request: GenerateRequest) -> StreamDescription {
    StreamDescription {
        protocol,
        priority: request.stream_options.priority,
        n: request.n,
        params: request.params,
        stream_options: request.stream_options,
        prompts: RecordedPrompts::Requested(request.prompts),
        ..full_description()
    }
}

/// A description with a value in each field.
pub(super) fn full_description() -> StreamDescription {
    StreamDescription {
        kind: DescriptionKind::Generation,
        owner: u64::MAX,
        protocol: Protocol::Chat,
        framing: Framing::Sse,
        reasoning_field: ReasoningField::Both,
        explicit_acks: true,
        credit_window: 1024,
        detached_tokens: 4096,
        response_id: "chatcmpl-1".to_owned(),
        created_unix_s: 1_753_600_000,
        opened_unix_us: 1_753_600_000_000_001,
        deadline_unix_us: Some(1_753_600_060_000_000),
        model: "small".to_owned(),
        model_key: "small:latest".to_owned(),
        identity: ModelIdentity {
            weights: "0a".to_owned(),
            tokenizer: "0b".to_owned(),
            template: "0c".to_owned(),
            arithmetic: "scalar".to_owned(),
        },
        context_max: 4096,
        n: 2,
        params: full_params(),
        stream_options: full_options(),
        priority: Priority::High,
        prompts: RecordedPrompts::Requested(all_prompts()),
        images: vec![ImageRecord {
            sha256: "0f".repeat(32),
            bytes: 12,
            kind: "PNG".to_owned(),
            detail: "low".to_owned(),
            path: "messages[0].content[1]".to_owned(),
        }],
        body_bytes: 300,
        job_id: Some("job-1".to_owned()),
        stored: Some(json!({"z": 1, "a": [0.1]})),
    }
}

/// A description with these prompts, each answered once.
pub(super) fn with_prompts(prompts: Vec<Prompt>) -> StreamDescription {
    let full = full_description();
    StreamDescription {
        n: 1,
        prompts: RecordedPrompts::Requested(prompts),
        stream_options: StreamOptions {
            best_of: None,
            ..full.stream_options
        },
        ..full
    }
}

fn full_params() -> GenerationParams {
    GenerationParams {
        sampling: engine::SamplingParams {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.95,
            min_p: 1e-7,
            typical_p: 0.3,
            repetition_penalty: 1.1,
            presence_penalty: -0.5,
            frequency_penalty: 0.1,
            penalty_window: 128,
            dry_multiplier: 0.75,
            dry_base: 1.5,
            dry_allowed_length: 3,
            dry_window: 64,
            dry_breakers: engine::DryBreakers::default(),
            xtc_probability: 0.25,
            xtc_threshold: 0.125,
            logit_bias: vec![(5, -1.5), (7, 100.0)],
            seed: 0,
            min_tokens: 1,
            ignore_eos: true,
            answered: 0,
            logprobs: true,
            top_logprobs: 3,
        },
        max_tokens: Some(16),
        dry_sequence_breakers: vec!["\n".to_owned()],
        stops: vec!["\u{20AC}\"\n".to_owned()],
        stop_token_ids: vec![4, 5],
        ignore_eos: true,
        seed: Some(u64::MAX),
        response_format: Some(ResponseFormat {
            source: GrammarSource::JsonSchema(json!({"type": "object", "minProperties": 1.5})),
            field: "response_format".to_owned(),
        }),
        closed_objects: Some(false),
        lora: vec![AdapterUse {
            name: "sql".into(),
            scale: -0.1,
        }],
        tool_calling: ToolCalling {
            required: false,
            single_call: true,
        },
        constrained_tools: vec![ConstrainedTool {
            name: "f".to_owned(),
            arguments: Some(json!({"type": "object"})),
            strict: true,
            place: 0,
        }],
        reasoning_budget: Some(5),
        prompt_logprobs: true,
        truncation: Truncation::LastTokens(Some(7)),
        continued: None,
    }
}

fn full_options() -> StreamOptions {
    StreamOptions {
        stream: true,
        include_usage: true,
        continuous_usage: true,
        echo: true,
        return_context: true,
        priority: Priority::Low,
        deadline: Some(Duration::from_millis(60_500)),
        service_tier_given: true,
        background: true,
        repeated_fields: Some("\"metadata\":{\"b\":1}".into()),
        best_of: Some(BestOf {
            returned: 1,
            generated: 2,
            logprobs: true,
        }),
        conversation_id: Some("c".into()),
        webhook: Some("https://hooks.example.com/".into()),
        ignored_fields: IgnoredFields::new("user, x"),
        offered_tools: vec![OfferedTool::new(Some("n"), "f", true)],
        cache_salt: Some("s".into()),
        return_token_ids: true,
        timings: true,
    }
}

fn all_prompts() -> Vec<Prompt> {
    let conversation = Prompt::Conversation {
        field: "messages",
        messages: vec![Message {
            role: "user".to_owned(),
            content: "hi".into(),
            rest: Map::from_iter([("name".to_owned(), "n".into())]),
        }],
        tools: vec![json!({"type": "function", "function": {"name": "f"}})],
        continues: false,
        kwargs: Map::from_iter([("z".to_owned(), json!(0.1)), ("a".to_owned(), json!(1))]),
    };
    vec![
        conversation.clone(),
        Prompt::Continued {
            context: vec![1, 2],
            then: Box::new(conversation),
        },
        Prompt::Pieces(vec![
            PromptPiece::Template("<s>".to_owned()),
            PromptPiece::User("u".into()),
        ]),
        Prompt::Text("t".to_owned()),
        Prompt::Ids(vec![3]),
        Prompt::Mixed(vec![
            MixedPart::Text("a".to_owned()),
            MixedPart::Ids(vec![4]),
        ]),
    ]
}
