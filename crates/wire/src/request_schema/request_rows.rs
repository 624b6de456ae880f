//! The bodies that parsers of this crate read.

use super::BodyParser::{Other, Protocol};
use super::RequestSchema;
use crate::control_request::{Acknowledgement, ChannelWriteRequest, ControlRequest, RunRequest};
use crate::embeddings_request::{self, EmbedRoute, EmbeddingModel};
use crate::fields::Fields;
use crate::ollama::{self, store_request};
use crate::{
    ai_sdk, anthropic, jobs, llama_cpp, openai, rerank_request, responses, stored_request,
    vocabulary_request,
};
use generate::error::ApiError;
use generate::request::CHOICES_MAX;

/// Size of any vocabulary, context or vector.
pub(super) const ANY_NUMBER: usize = u32::MAX as usize;

const ANY_EMBEDDING_MODEL: EmbeddingModel = EmbeddingModel {
    vocab_size: ANY_NUMBER,
    dimensions: ANY_NUMBER,
};

/// Bodies with the model's name in one of the fields.
const MODEL: &str = r#"{"model": ""}"#;
const NAME: &str = r#"{"name": ""}"#;

/// Rows: name, required fields, fields of which one is required, whether `model` is read for the model lookup, bodies
/// that together make the parser read all of its fields (without them, an empty object is enough), parser.
macro_rules! bodies {
    ($($name:literal $required:tt $(or $alternatives:tt)? $(model $names_model:literal)? $(samples $samples:tt)? => $parser:expr;)*) => {
        &[$(RequestSchema {
            name: $name,
            required: &$required,
            parser: $parser,
            $(alternatives: &$alternatives,)?
            $(names_model: $names_model,)?
            $(samples: &$samples,)?
            ..DEFAULT
        }),*]
    };
}

/// A body whose parser reads all fields of an empty object and requires none of them.
const DEFAULT: RequestSchema = RequestSchema {
    name: "",
    required: &[],
    alternatives: &[],
    names_model: true,
    samples: &["{}"],
    parser: Other(|_| Ok(())),
};

/// All bodies that a parser of this crate reads.
#[expect(clippy::needless_update, reason = "a row may have all columns")]
pub const REQUESTS: &[RequestSchema] = bodies! {
    "ChatRequest" ["messages"] => Protocol(openai::completion_request::parse_chat);
    "MetadataUpdate" ["metadata"] model false => Other(|fields| stored_request::parse_update(fields).map(drop));
    "CompletionRequest" ["prompt"] => Protocol(openai::completion_request::parse);
    "ResponseRequest" ["input"] => Protocol(responses::parse);
    "MessageRequest" ["messages", "max_tokens"] samples ["{}", r#"{"tool_choice": {}}"#] => Protocol(anthropic::message_request::parse);
    "MessageTokensRequest" ["messages"] samples ["{}", r#"{"tool_choice": {}, "thinking": {"type": "enabled"}}"#]
        => Other(|fields| anthropic::message_request::parse_prompt(fields).map(drop));
    "AiSdkChatRequest" ["messages"] => Protocol(ai_sdk::parse);
    "JobRequest" [] or ["prompt", "messages"] samples ["{}", r#"{"messages": []}"#, r#"{"prompt": ""}"#] => Protocol(jobs::request::parse);
    "LlamaCompletionRequest" ["prompt"] => Protocol(llama_cpp::completion_request::parse);
    "InfillRequest" ["input_prefix", "input_suffix"] => Protocol(llama_cpp::infill_request::parse);
    "OllamaChatRequest" [] => Protocol(ollama::request::parse_chat);
    "OllamaGenerateRequest" [] samples ["{}", r#"{"raw": true}"#] => Protocol(ollama::request::parse_generate);
    "StreamUpdateRequest" [] model false => Other(|mut fields| {
        ControlRequest::from_fields(&mut fields);
        fields.finish()
    });
    "EmbeddingRequest" ["input"] => Other(|fields| embeddings_request::parse_openai(fields, ANY_EMBEDDING_MODEL).map(drop));
    "RerankRequest" ["query", "documents"] => Other(|fields| rerank_request::parse(fields).map(drop));
    "OllamaEmbedRequest" [] => Other(|fields| parse_ollama_embeddings(fields, EmbedRoute::Embed));
    "OllamaEmbeddingsRequest" [] => Other(|fields| parse_ollama_embeddings(fields, EmbedRoute::Embeddings));
    "OllamaShowRequest" [] or ["model", "name"] model false => Other(|fields| store_request::parse_show(fields).map(drop));
    "OllamaPullRequest" [] or ["model", "name"] model false samples [MODEL, NAME] => Other(|fields| store_request::parse_pull(fields).map(drop));
    "OllamaDeleteRequest" [] or ["model", "name"] model false samples [MODEL, NAME] => Other(|fields| store_request::parse_delete(fields).map(drop));
    "OllamaCopyRequest" ["source", "destination"] model false samples [r#"{"source": "", "destination": ""}"#]
        => Other(|fields| store_request::parse_copy(fields).map(drop));
    "OllamaCreateRequest" ["from"] or ["model", "name"] model false samples [r#"{"model": "", "from": "", "parameters": {}}"#, NAME]
        => Other(|fields| store_request::parse_create(fields).map(drop));
    "TokenizeRequest" [] or ["content", "prompt", "messages"] samples ["{}", r#"{"messages": []}"#]
        => Other(|fields| vocabulary_request::parse_tokenize(fields).map(drop));
    "DetokenizeRequest" ["tokens"] => Other(|fields| vocabulary_request::parse_detokenize(fields, ANY_NUMBER, |_| 0).map(drop));
    "ApplyTemplateRequest" ["messages"] => Other(|fields| vocabulary_request::parse_apply_template(fields, true).map(drop));
    "StreamAcknowledgement" [] or ["index", "end"] model false => Other(|fields| Acknowledgement::parse(fields, CHOICES_MAX - 1).map(drop));
    "WorkflowRunRequest" [] => Other(|fields| RunRequest::parse(fields, ANY_NUMBER).map(drop));
    "ChannelWriteRequest" [] model false => Other(|fields| ChannelWriteRequest::parse(fields).map(drop));
};

fn parse_ollama_embeddings(fields: Fields<'_>, route: EmbedRoute) -> Result<(), ApiError> {
    embeddings_request::parse_ollama(fields, route, ANY_EMBEDDING_MODEL).map(drop)
}
