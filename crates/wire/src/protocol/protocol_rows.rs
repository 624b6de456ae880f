//! The properties of each wire protocol: one row per protocol.

use super::{EncoderSettings, FollowState, ProtocolHeader};
use crate::ai_sdk::UiMessageEncoder;
use crate::anthropic::encoder::MessagesEncoder;
use crate::derived_model::ModelOptions;
use crate::encoder::Encoder;
use crate::framing::Framing;
use crate::jobs::encoder::JobEncoder;
use crate::llama_cpp::result_encoder::{self, LlamaEncoder};
use crate::llama_cpp::{completion_request, infill_request};
use crate::ollama::encoder::{OllamaEncoder, TextField};
use crate::openai::chat_encoder::ChatEncoder;
use crate::openai::completion_encoder::CompletionEncoder;
use crate::reasoning_request_fields::ReasoningRequestFields;
use crate::request_parser::RequestParser;
use crate::responses::ResponsesEncoder;
use crate::schema::ResponseSchemas;
use crate::shared::error_response;
use crate::{ai_sdk, anthropic, jobs, ollama, openai, responses};
use bytes::Bytes;
use generate::error::ApiError;
use generate::stream_source::StreamSource;
use http::Response;
use std::sync::Arc;

/// The properties of a protocol.
pub(super) struct ProtocolRow {
    /// Name in `?dialect=` and in the streams API.
    pub(super) name: &'static str,
    /// Path prefixes with error responses of this protocol.
    pub(super) paths: &'static [&'static str],
    pub(super) response_id: ResponseId,
    /// Default framing of streams.
    pub(super) framing: Framing,
    /// Header of every streaming response, by which clients recognize the protocol.
    pub(super) header: Option<ProtocolHeader>,
    pub(super) follows: FollowState,
    /// Whether a terminal frame follows the frame of an error.
    pub(super) has_frame_after_error: bool,
    pub(super) parse: RequestParser,
    pub(super) reasoning: ReasoningRequestFields,
    /// Options of derived models that the protocol has.
    pub(super) model_options: ModelOptions,
    /// Whether the system message of a derived model is added after parsing; else by the parser, or not at all.
    pub(super) adds_model_system: bool,
    /// Whether the response of a request without `stream` begins while the model is loaded.
    pub(super) defers_by_default: bool,
    pub(super) encoder: fn(&Arc<StreamSource>, EncoderSettings) -> Box<dyn Encoder>,
    pub(super) error: fn(&ApiError) -> Response<Bytes>,
    pub(super) schemas: ResponseSchemas,
}

/// Source of a response's id.
pub(super) enum ResponseId {
    /// A new id with this prefix.
    Fresh(&'static str),
    /// The stream's id with this prefix.
    Stream(&'static str),
}

pub(super) const CHAT: ProtocolRow = ProtocolRow {
    name: "openai.chat",
    paths: &[],
    response_id: ResponseId::Fresh("chatcmpl-"),
    framing: Framing::Sse,
    header: None,
    follows: FollowState::Never,
    has_frame_after_error: false,
    parse: openai::chat_request::parse,
    defers_by_default: false,
    reasoning: ReasoningRequestFields::ignored(&["reasoning_effort", "reasoning", "thinking"]),
    model_options: ModelOptions::SHARED,
    adds_model_system: true,
    encoder: |source, settings| Box::new(ChatEncoder::new(source, settings.reasoning_field)),
    error: error_response::to_response,
    schemas: openai::chat_encoder::SCHEMAS,
};

pub(super) const COMPLETION: ProtocolRow = ProtocolRow {
    name: "openai.completions",
    response_id: ResponseId::Fresh("cmpl-"),
    parse: openai::completion_request::parse,
    reasoning: ReasoningRequestFields::ignored(&[]),
    adds_model_system: false,
    encoder: |source, _| Box::new(CompletionEncoder::new(source)),
    schemas: openai::completion_encoder::SCHEMAS,
    ..CHAT
};

pub(super) const JOB: ProtocolRow = ProtocolRow {
    name: "native.job",
    paths: &[
        "/v1/inference",
        "/v1/jobs",
        "/v1/workflows",
        "/v1/runs",
        "/v1/heartbeats",
        "/v1/loading",
        "/v1/ready",
        "/health",
    ],
    response_id: ResponseId::Stream(""),
    follows: FollowState::UntilStarted,
    has_frame_after_error: true,
    parse: jobs::request::parse,
    adds_model_system: false,
    encoder: |source, _| Box::new(JobEncoder::new(source)),
    error: jobs::error_response::to_response,
    schemas: jobs::encoder::SCHEMAS,
    ..CHAT
};

pub(super) const MESSAGES: ProtocolRow = ProtocolRow {
    name: "anthropic.messages",
    paths: &["/v1/messages"],
    response_id: ResponseId::Fresh("msg_"),
    parse: anthropic::message_request::parse,
    reasoning: ReasoningRequestFields::ignored(&["thinking"]),
    model_options: ModelOptions::Named(&[
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
        ("num_predict", "max_tokens"),
        ("stop", "stop_sequences"),
    ]),
    encoder: |source, _| Box::new(MessagesEncoder::new(source)),
    error: anthropic::error_response::to_response,
    schemas: anthropic::encoder::SCHEMAS,
    ..CHAT
};

pub(super) const RESPONSES: ProtocolRow = ProtocolRow {
    name: "openai.responses",
    response_id: ResponseId::Stream(responses::ID_PREFIX),
    parse: responses::parse,
    reasoning: ReasoningRequestFields::ignored(&["reasoning"]),
    model_options: ModelOptions::Named(&[
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("num_predict", "max_output_tokens"),
    ]),
    adds_model_system: false,
    encoder: |source, _| Box::new(ResponsesEncoder::new(source)),
    schemas: responses::SCHEMAS,
    ..CHAT
};

pub(super) const OLLAMA_CHAT: ProtocolRow = ProtocolRow {
    name: "ollama.chat",
    paths: &["/api"],
    response_id: ResponseId::Stream(""),
    framing: Framing::Ndjson,
    parse: ollama::chat_request::parse,
    defers_by_default: true,
    reasoning: ReasoningRequestFields::rejected(&["think"]),
    model_options: ModelOptions::All,
    encoder: |source, _| Box::new(OllamaEncoder::new(source, TextField::Message)),
    error: ollama::response_line::to_response,
    schemas: ollama::encoder::SCHEMAS,
    ..CHAT
};

pub(super) const OLLAMA_GENERATE: ProtocolRow = ProtocolRow {
    name: "ollama.generate",
    paths: &[],
    parse: ollama::generate_request::parse,
    adds_model_system: false,
    encoder: |source, _| Box::new(OllamaEncoder::new(source, TextField::Response)),
    ..OLLAMA_CHAT
};

pub(super) const AI_SDK_UI: ProtocolRow = ProtocolRow {
    name: "ai-sdk.ui",
    response_id: ResponseId::Fresh("msg-"),
    header: Some(ai_sdk::HEADER),
    has_frame_after_error: true,
    parse: ai_sdk::parse,
    encoder: |source, _| Box::new(UiMessageEncoder::new(source)),
    schemas: ai_sdk::SCHEMAS,
    ..CHAT
};

pub(super) const LLAMA_COMPLETION: ProtocolRow = ProtocolRow {
    name: "llama.completion",
    paths: &["/completion"],
    parse: completion_request::parse,
    reasoning: ReasoningRequestFields::ignored(&[]),
    adds_model_system: false,
    encoder: |source, _| Box::new(LlamaEncoder::new(source)),
    schemas: result_encoder::SCHEMAS,
    ..CHAT
};

pub(super) const INFILL: ProtocolRow = ProtocolRow {
    name: "llama.infill",
    paths: &["/infill"],
    parse: infill_request::parse,
    ..LLAMA_COMPLETION
};
