//! Wire protocols. Their properties are in `protocol_rows`.

use crate::ai_sdk::{self, UiMessageEncoder};
use crate::anthropic::encoder::MessagesEncoder;
use crate::derived_model::{ModelOptions, RequestedModel};
use crate::encoder::Encoder;
use crate::fields::Fields;
use crate::framing::Framing;
use crate::jobs::encoder::JobEncoder;
use crate::llama_cpp::result_encoder::{self, LlamaEncoder};
use crate::llama_cpp::{completion_request, infill_request};
use crate::ollama::encoder::{OllamaEncoder, TextField};
use crate::openai::chat_encoder::{ChatEncoder, ReasoningField};
use crate::openai::completion_encoder::CompletionEncoder;
use crate::request_parser::{
    HistoryLookup, ParseContext, ParsedBody, ReasoningRequestFields, RequestParser,
};
use crate::responses::{self, ResponsesEncoder};
use crate::schema::ResponseSchemas;
use crate::shared::error_response;
use crate::{anthropic, jobs, ollama, openai};
use bytes::Bytes;
use generate::error::ApiError;
use generate::request::Prompt;
use generate::stream_source::StreamSource;
use http::Response;
use std::sync::Arc;
use stream::StreamId;

/// A wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// `/v1/inference`, `/v1/jobs`.
    Job,
    /// `/v1/messages`.
    Messages,
    /// `/v1/responses`.
    Responses,
    /// `/api/chat`.
    OllamaChat,
    /// `/api/generate`.
    OllamaGenerate,
    /// `/v1/ai-sdk/chat`.
    AiSdkUi,
    /// llama.cpp's `/completion`.
    LlamaCompletion,
    /// llama.cpp's `/infill`.
    Infill,
}

/// Name and value of a response header.
pub type ProtocolHeader = (&'static str, &'static str);

/// The state changes of a stream that the encoder receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowState {
    /// No state change.
    Never,
    /// Changes up to the start of prefill, for protocols with a frame for the start.
    UntilStarted,
    /// All state changes.
    Always,
}

/// Server settings that encoders use.
#[derive(Clone, Copy, Debug, Default)]
pub struct EncoderSettings {
    /// Message field that holds reasoning.
    pub reasoning_field: ReasoningField,
}

/// An encoder, and the properties of its response body.
pub struct Encoding {
    /// The encoder.
    pub encoder: Box<dyn Encoder>,
    /// Framing of the stream.
    pub framing: Framing,
    /// Header of the streaming response, by which clients recognize the protocol.
    pub header: Option<ProtocolHeader>,
    /// State changes that the encoder receives.
    pub follows: FollowState,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 10] = [
        Self::Chat,
        Self::Completion,
        Self::Job,
        Self::Messages,
        Self::Responses,
        Self::OllamaChat,
        Self::OllamaGenerate,
        Self::AiSdkUi,
        Self::LlamaCompletion,
        Self::Infill,
    ];

    const fn row(self) -> &'static ProtocolRow {
        match self {
            Self::Chat => &CHAT,
            Self::Completion => &COMPLETION,
            Self::Job => &JOB,
            Self::Messages => &MESSAGES,
            Self::Responses => &RESPONSES,
            Self::OllamaChat => &OLLAMA_CHAT,
            Self::OllamaGenerate => &OLLAMA_GENERATE,
            Self::AiSdkUi => &AI_SDK_UI,
            Self::LlamaCompletion => &LLAMA_COMPLETION,
            Self::Infill => &INFILL,
        }
    }

    /// Name of the protocol, as `?dialect=` has it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The protocol with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == name)
    }

    /// The protocol of error responses for a path without a route; default: OpenAI's.
    pub fn of_path(path: &str) -> Self {
        let has = |protocol: &Self| protocol.row().paths.iter().any(|root| is_under(path, root));
        Self::ALL.into_iter().find(has).unwrap_or(Self::Chat)
    }

    /// Parses the fields of a request, except `model`.
    ///
    /// # Errors
    /// All invalid fields at once; reasoning, if the protocol rejects what the model lacks.
    pub fn parse(
        self,
        fields: Fields<'_>,
        model: RequestedModel<'_>,
        history: &HistoryLookup<'_>,
    ) -> Result<ParsedBody, ApiError> {
        let row = self.row();
        let fields = if model.takes_images {
            fields
        } else {
            fields.for_text_only()
        };
        let fields = if model.fetches_images {
            fields.fetching_images()
        } else {
            fields
        };
        let ignored = row.reasoning.fields_without_effect(&fields, model)?;
        let defaults = model
            .derived
            .map(|derived| derived.defaults(row.model_options, model.vocab_size));
        let mut defaults = defaults.unwrap_or_default();
        let adapter = model.derived.and_then(|derived| derived.adapter.as_deref());
        defaults.options = defaults.options.or(&model.sampling.options());
        defaults.options.lora = Some(model.adapters.of_model(adapter)?);
        let context = ParseContext {
            vocab_size: model.vocab_size,
            adapters: model.adapters,
            defaults,
            history,
        };
        let mut parsed = (row.parse)(fields, &context)?;
        if row.adds_model_system {
            context.defaults.apply(&mut parsed.request);
        }
        if parsed.request.prompts.iter().any(Prompt::is_conversation) {
            parsed.request.params.add_stops(model.stops);
        }
        parsed.request.stream_options.ignored_fields.add(&ignored);
        Ok(parsed)
    }

    /// Fields that request reasoning.
    #[cfg(test)]
    pub(crate) fn reasoning_fields(self) -> ReasoningRequestFields {
        self.row().reasoning
    }

    /// Id of the response of a stream. `fresh` creates an id with a prefix.
    pub fn response_id(self, id: StreamId, fresh: impl FnOnce(&str) -> String) -> String {
        match self.row().response_id {
            ResponseId::Fresh(prefix) => fresh(prefix),
            ResponseId::Stream(prefix) => format!("{prefix}{id}"),
        }
    }

    /// The error response.
    pub fn error<B: From<Bytes>>(self, error: &ApiError) -> Response<B> {
        (self.row().error)(error).map(B::from)
    }

    /// Schemas of the protocol's responses.
    pub fn schemas(self) -> ResponseSchemas {
        self.row().schemas
    }

    /// Whether the response of a request without `stream` begins while the model is loaded.
    pub fn defers_by_default(self) -> bool {
        self.row().defers_by_default
    }

    /// Default framing of streams.
    pub fn framing(self) -> Framing {
        self.row().framing
    }

    /// Whether a terminal frame follows the frame of an error.
    pub fn has_frame_after_error(self) -> bool {
        self.row().has_frame_after_error
    }

    /// An encoder in this protocol; the request may have come in another protocol.
    pub fn encoding(
        self,
        source: &Arc<StreamSource>,
        framing: Framing,
        settings: EncoderSettings,
    ) -> Encoding {
        let row = self.row();
        Encoding {
            encoder: (row.encoder)(source, settings),
            framing,
            header: row.header,
            follows: row.follows,
        }
    }
}

fn is_under(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The properties of a protocol.
struct ProtocolRow {
    /// Name in `?dialect=` and in the streams API.
    name: &'static str,
    /// Path prefixes with error responses of this protocol.
    paths: &'static [&'static str],
    response_id: ResponseId,
    /// Default framing of streams.
    framing: Framing,
    /// Header of every streaming response, by which clients recognize the protocol.
    header: Option<ProtocolHeader>,
    follows: FollowState,
    /// Whether a terminal frame follows the frame of an error.
    has_frame_after_error: bool,
    parse: RequestParser,
    reasoning: ReasoningRequestFields,
    /// Options of derived models that the protocol has.
    model_options: ModelOptions,
    /// Whether the system message of a derived model is added after parsing; else by the parser, or not at all.
    adds_model_system: bool,
    /// Whether the response of a request without `stream` begins while the model is loaded.
    defers_by_default: bool,
    encoder: fn(&Arc<StreamSource>, EncoderSettings) -> Box<dyn Encoder>,
    error: fn(&ApiError) -> Response<Bytes>,
    schemas: ResponseSchemas,
}

/// Source of a response's id.
enum ResponseId {
    /// A new id with this prefix.
    Fresh(&'static str),
    /// The stream's id with this prefix.
    Stream(&'static str),
}

const CHAT: ProtocolRow = ProtocolRow {
    name: "openai.chat",
    paths: &[],
    response_id: ResponseId::Fresh("chatcmpl-"),
    framing: Framing::Sse,
    header: None,
    follows: FollowState::Never,
    has_frame_after_error: false,
    parse: openai::completion_request::parse_chat,
    defers_by_default: false,
    reasoning: ReasoningRequestFields::ignored(&["reasoning_effort", "reasoning", "thinking"]),
    model_options: ModelOptions::SHARED,
    adds_model_system: true,
    encoder: |source, settings| Box::new(ChatEncoder::new(source, settings.reasoning_field)),
    error: error_response::to_response,
    schemas: openai::chat_encoder::SCHEMAS,
};

const COMPLETION: ProtocolRow = ProtocolRow {
    name: "openai.completions",
    response_id: ResponseId::Fresh("cmpl-"),
    parse: openai::completion_request::parse,
    reasoning: ReasoningRequestFields::ignored(&[]),
    adds_model_system: false,
    encoder: |source, _| Box::new(CompletionEncoder::new(source)),
    schemas: openai::completion_encoder::SCHEMAS,
    ..CHAT
};

const JOB: ProtocolRow = ProtocolRow {
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
    error: jobs::request::to_response,
    schemas: jobs::encoder::SCHEMAS,
    ..CHAT
};

const MESSAGES: ProtocolRow = ProtocolRow {
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

const RESPONSES: ProtocolRow = ProtocolRow {
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

const OLLAMA_CHAT: ProtocolRow = ProtocolRow {
    name: "ollama.chat",
    paths: &["/api"],
    response_id: ResponseId::Stream(""),
    framing: Framing::Ndjson,
    parse: ollama::request::parse_chat,
    defers_by_default: true,
    reasoning: ReasoningRequestFields::rejected(&["think"]),
    model_options: ModelOptions::All,
    encoder: |source, _| Box::new(OllamaEncoder::new(source, TextField::Message)),
    error: ollama::response_line::to_response,
    schemas: ollama::encoder::SCHEMAS,
    ..CHAT
};

const OLLAMA_GENERATE: ProtocolRow = ProtocolRow {
    name: "ollama.generate",
    paths: &[],
    parse: ollama::request::parse_generate,
    adds_model_system: false,
    encoder: |source, _| Box::new(OllamaEncoder::new(source, TextField::Response)),
    ..OLLAMA_CHAT
};

const AI_SDK_UI: ProtocolRow = ProtocolRow {
    name: "ai-sdk.ui",
    response_id: ResponseId::Fresh("msg-"),
    header: Some(ai_sdk::HEADER),
    has_frame_after_error: true,
    parse: ai_sdk::parse,
    encoder: |source, _| Box::new(UiMessageEncoder::new(source)),
    schemas: ai_sdk::SCHEMAS,
    ..CHAT
};

const LLAMA_COMPLETION: ProtocolRow = ProtocolRow {
    name: "llama.completion",
    paths: &["/completion"],
    parse: completion_request::parse,
    reasoning: ReasoningRequestFields::ignored(&[]),
    adds_model_system: false,
    encoder: |source, _| Box::new(LlamaEncoder::new(source)),
    schemas: result_encoder::SCHEMAS,
    ..CHAT
};

const INFILL: ProtocolRow = ProtocolRow {
    name: "llama.infill",
    paths: &["/infill"],
    parse: infill_request::parse,
    ..LLAMA_COMPLETION
};

#[cfg(test)]
mod description_tests;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod tests {
    use super::is_under;

    #[test]
    fn protocol_row_covers_the_path_and_paths_below_it() {
        let rows = [
            ("/v1/jobs", true),
            ("/v1/jobs/", true),
            ("/v1/jobs/7/stream", true),
            ("/v1/jobsite", false),
            ("/v1/job", false),
            ("/x/v1/jobs", false),
        ];
        for (path, want) in rows {
            assert_eq!(is_under(path, "/v1/jobs"), want, "{path}");
        }
    }
}
