//! Wire protocols. Their properties are in `protocol_rows`.

mod protocol_rows;

use crate::encoder::Encoder;
use crate::fields::Fields;
use crate::framing::Framing;
use crate::model_defaults::RequestedModel;
use crate::openai::chat_encoder::ReasoningField;
#[cfg(test)]
use crate::reasoning_request_fields::ReasoningRequestFields;
use crate::request_parser::{HistoryLookup, ParseContext, ParsedBody};
use crate::schema::ResponseSchemas;
use bytes::Bytes;
use generate::error::ApiError;
use generate::request::Prompt;
use generate::stream_source::StreamSource;
use http::Response;
use protocol_rows::{
    AI_SDK_UI, CHAT, COMPLETION, INFILL, JOB, LLAMA_COMPLETION, MESSAGES, OLLAMA_CHAT,
    OLLAMA_GENERATE, ProtocolRow, RESPONSES, ResponseId,
};
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
