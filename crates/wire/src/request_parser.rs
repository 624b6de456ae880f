//! The interface of a wire protocol's parser: from the fields of a body to a typed request.

use crate::derived_model::{ModelDefaults, RequestedModel};
use crate::fields::{self, Fields, JsonType};
use crate::shared::job_outcome::JobId;
use crate::stored_request::{History, StoredRequest};
use generate::error::ApiError;
use generate::images::ImagePart;
use generate::model_handle::{ModelAdapters, NO_ADAPTERS};
use generate::request::{GenerateRequest, GenerationParams, Prompt, StreamOptions};
use std::borrow::Cow;

/// Parser of one wire protocol. An error lists all invalid fields.
pub type RequestParser = fn(Fields<'_>, &ParseContext<'_>) -> Result<ParsedBody, ApiError>;

/// Finds a stored response by its id.
pub type HistoryLookup<'a> = dyn Fn(&str) -> Result<Box<dyn History>, ApiError> + 'a;

/// Input of a parser beside the fields.
pub struct ParseContext<'a> {
    /// Number of token ids of the model.
    pub vocab_size: usize,
    /// Adapters that a request may use.
    pub adapters: &'a ModelAdapters,
    /// Defaults of the model, for fields that the request does not set.
    pub defaults: ModelDefaults,
    /// Stored responses that a request may continue.
    pub history: &'a HistoryLookup<'a>,
}

/// A parsed body.
#[derive(Debug, PartialEq)]
pub struct ParsedBody {
    /// The request.
    pub request: GenerateRequest,
    /// Job id chosen by the caller (jobs API).
    pub job_id: Option<JobId>,
    /// The part of the request that is stored (Responses API; chat completions with `store`).
    pub stored_request: Option<StoredRequest>,
}

impl ParseContext<'static> {
    /// A vocabulary of this size, no adapters, no defaults, and no stored responses.
    pub fn of_vocab(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            adapters: &NO_ADAPTERS,
            defaults: ModelDefaults::default(),
            history: &|_| {
                Err(ApiError::bad_request(
                    "not_found",
                    "no responses are stored",
                ))
            },
        }
    }
}

impl ParsedBody {
    /// A request for one answer to each of these prompts, and nothing else.
    pub(crate) fn of_prompts(
        prompts: impl IntoIterator<Item = Prompt>,
        params: GenerationParams,
        stream_options: StreamOptions,
    ) -> Self {
        let prompts = prompts.into_iter().collect();
        let request = GenerateRequest {
            images: Vec::new(),
            prompts,
            n: 1,
            params,
            stream_options,
        };
        Self {
            request,
            job_id: None,
            stored_request: None,
        }
    }

    /// The body with these images, whose numbers the prompts name.
    pub(crate) fn with_images(mut self, images: Vec<ImagePart>) -> Self {
        self.request.images = images;
        self
    }
}

/// Fields by which requests of one wire protocol request reasoning.
#[derive(Clone, Copy)]
pub struct ReasoningRequestFields {
    names: &'static [&'static str],
    are_rejected: bool,
}

impl ReasoningRequestFields {
    /// Fields without effect if the model has no reasoning: the response header of ignored fields names them.
    pub const fn ignored(names: &'static [&'static str]) -> Self {
        Self {
            names,
            are_rejected: false,
        }
    }

    /// Fields that are rejected if the model has no reasoning.
    pub const fn rejected(names: &'static [&'static str]) -> Self {
        Self {
            names,
            are_rejected: true,
        }
    }

    /// The fields that request reasoning of a model that has none.
    ///
    /// # Errors
    /// The protocol rejects such a request.
    pub fn fields_without_effect(
        self,
        fields: &Fields<'_>,
        model: RequestedModel<'_>,
    ) -> Result<Vec<&'static str>, ApiError> {
        if model.capabilities.thinking {
            return Ok(Vec::new());
        }
        let requested = |name: &&&'static str| requests_reasoning(fields, name);
        let ignored: Vec<&'static str> = self.names.iter().filter(requested).copied().collect();
        match ignored.first() {
            Some(name) if self.are_rejected => {
                // The wording of Ollama, by which its clients recognize the error.
                let words = format!("\"{}\" does not support thinking", model.id);
                Err(ApiError::field(name, "unsupported_value", words))
            }
            _ => Ok(ignored),
        }
    }
}

/// Whether a field is present and does not turn reasoning off.
fn requests_reasoning(fields: &Fields<'_>, name: &str) -> bool {
    let Some(raw) = fields.raw(name) else {
        return false;
    };
    let word = |name: &str| {
        let object = fields::as_object(raw)?;
        object.text(name).map(Cow::into_owned)
    };
    match fields::json_type(raw) {
        JsonType::Bool => raw.get() == "true",
        JsonType::String => fields::as_text(raw).as_deref() != Some("none"),
        JsonType::Object => {
            let enabled = fields::as_object(raw).and_then(|object| object.get("enabled"));
            word("type").as_deref() != Some("disabled")
                && word("effort").as_deref() != Some("none")
                && enabled.is_none_or(|enabled| enabled.get() != "false")
        }
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use serde_json::json;
    use stream::StreamId;
    use text::Capabilities;

    /// Token ids of the vocabulary of tests.
    const VOCAB: usize = 300;

    struct EmptyHistory;

    impl History for EmptyHistory {
        fn id(&self) -> Option<StreamId> {
            None
        }

        fn items(&self) -> Box<dyn Iterator<Item = &str> + '_> {
            Box::new(std::iter::empty())
        }
    }

    /// A small vocabulary, and a response without items under any id.
    pub(crate) fn context() -> ParseContext<'static> {
        ParseContext {
            history: &|_| Ok(Box::new(EmptyHistory)),
            ..ParseContext::of_vocab(VOCAB)
        }
    }

    /// The request in a body.
    pub(crate) fn parsed_request(
        parse: RequestParser,
        body: &[u8],
    ) -> Result<GenerateRequest, ApiError> {
        parse(Fields::parse(body)?, &context()).map(|parsed| parsed.request)
    }

    #[test]
    fn reasoning_is_requested_unless_turned_off() {
        for (value, want) in [
            (json!(true), true),
            (json!(false), false),
            (json!(null), false),
            (json!("high"), true),
            (json!("none"), false),
            (json!({"type": "enabled", "budget_tokens": 1024}), true),
            (json!({"type": "disabled"}), false),
            (json!({"effort": "low"}), true),
            (json!({"effort": "none"}), false),
            (json!({"enabled": false}), false),
        ] {
            let body = json!({"thinking": value}).to_string();
            let fields = Fields::parse(body.as_bytes()).expect("fields");
            assert_eq!(requests_reasoning(&fields, "thinking"), want, "{value}");
        }
    }

    #[test]
    fn each_protocol_ignores_or_rejects_its_reasoning_fields() {
        let body = json!({"reasoning_effort": "low", "reasoning": {"effort": "low"}, "thinking": true, "think": true});
        let body = body.to_string();
        let fields = Fields::parse(body.as_bytes()).expect("fields");
        let shared = Ok(vec!["reasoning_effort", "reasoning", "thinking"]);
        let rejected = || Err("\"tiny\" does not support thinking".to_owned());
        for (protocol, want) in [
            (Protocol::Chat, shared.clone()),
            (Protocol::Job, shared.clone()),
            (Protocol::AiSdkUi, shared),
            (Protocol::Completion, Ok(Vec::new())),
            (Protocol::LlamaCompletion, Ok(Vec::new())),
            (Protocol::Infill, Ok(Vec::new())),
            (Protocol::Messages, Ok(vec!["thinking"])),
            (Protocol::Responses, Ok(vec!["reasoning"])),
            (Protocol::OllamaChat, rejected()),
            (Protocol::OllamaGenerate, rejected()),
        ] {
            let model = RequestedModel {
                takes_images: false,
                fetches_images: false,
                id: "tiny",
                derived: None,
                adapters: &generate::model_handle::NO_ADAPTERS,
                sampling: generate::sampling::SamplingDefaults::default(),
                stops: &[],
                capabilities: Capabilities {
                    thinking: false,
                    ..Capabilities::default()
                },
                vocab_size: 300,
            };
            let ignored = protocol
                .reasoning_fields()
                .fields_without_effect(&fields, model);
            assert_eq!(
                ignored.map_err(|error| error.message.to_string()),
                want,
                "{protocol:?}"
            );
        }
    }
}
