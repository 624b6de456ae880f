//! The bodies that parsers of this crate read.

use super::{RequestSchema, details};
use crate::acknowledgement::Acknowledgement;
use crate::control_request::ControlRequest;
use crate::embeddings_request::{self, EmbedRoute, EmbeddingModel};
use crate::fields::Fields;
use crate::metadata;
use crate::ollama::store_request;
use crate::request_parser::ParseContext;
use crate::workflow_request::{ChannelWriteRequest, RunRequest};
use crate::{
    ai_sdk, anthropic, jobs, llama_cpp, ollama, openai, rerank_request, responses,
    vocabulary_request,
};
use generate::error::ApiError;
use generate::request::CHOICES_MAX;

/// Size of any vocabulary, context or vector.
const ANY_NUMBER: usize = u32::MAX as usize;

const ANY_EMBEDDING_MODEL: EmbeddingModel = EmbeddingModel {
    vocab_size: ANY_NUMBER,
    dimensions: ANY_NUMBER,
};

/// Bodies with the model's name in either field.
const MODEL_SAMPLES: &[&str] = &[r#"{"model": ""}"#, r#"{"name": ""}"#];

/// A body whose parser reads all fields of an empty object and requires none of them.
const DEFAULT: RequestSchema = RequestSchema {
    name: "",
    required: &[],
    alternatives: &[],
    names_model: true,
    samples: &["{}"],
    parse: |_| Ok(()),
    details: &[],
};

/// All bodies that a parser of this crate reads.
pub const REQUESTS: [RequestSchema; 28] = [
    RequestSchema {
        name: "ChatRequest",
        required: &["messages"],
        parse: |fields| openai::chat_request::parse(fields, &any_context()).map(drop),
        details: &[
            details::GENERATION,
            details::TRUNCATION,
            details::CHAT,
            details::METADATA,
        ],
        ..DEFAULT
    },
    RequestSchema {
        name: "MetadataUpdate",
        required: &["metadata"],
        names_model: false,
        parse: |fields| metadata::parse_update(fields).map(drop),
        details: &[details::METADATA, details::CLEARED_METADATA],
        ..DEFAULT
    },
    RequestSchema {
        name: "CompletionRequest",
        required: &["prompt"],
        parse: |fields| openai::completion_request::parse(fields, &any_context()).map(drop),
        details: &[
            details::GENERATION,
            details::TRUNCATION,
            details::COMPLETION,
        ],
        ..DEFAULT
    },
    RequestSchema {
        name: "ResponseRequest",
        required: &["input"],
        parse: |fields| responses::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::RESPONSE, details::METADATA],
        ..DEFAULT
    },
    RequestSchema {
        name: "MessageRequest",
        required: &["messages", "max_tokens"],
        samples: &["{}", r#"{"tool_choice": {}}"#],
        parse: |fields| anthropic::message_request::parse(fields, &any_context()).map(drop),
        details: &[
            details::GENERATION,
            details::MESSAGE,
            details::MESSAGE_SAMPLING,
        ],
        ..DEFAULT
    },
    RequestSchema {
        name: "MessageTokensRequest",
        required: &["messages"],
        samples: &[
            "{}",
            r#"{"tool_choice": {}, "thinking": {"type": "enabled"}}"#,
        ],
        parse: |fields| anthropic::message_request::parse_prompt(fields).map(drop),
        details: &[details::MESSAGE],
        ..DEFAULT
    },
    RequestSchema {
        name: "AiSdkChatRequest",
        required: &["messages"],
        parse: |fields| ai_sdk::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::AI_SDK],
        ..DEFAULT
    },
    RequestSchema {
        name: "JobRequest",
        alternatives: &["prompt", "messages"],
        samples: &["{}", r#"{"messages": []}"#, r#"{"prompt": ""}"#],
        parse: |fields| jobs::request::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::CHAT, details::JOB],
        ..DEFAULT
    },
    RequestSchema {
        name: "LlamaCompletionRequest",
        required: &["prompt"],
        parse: |fields| llama_cpp::completion_request::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::LLAMA_COMPLETION],
        ..DEFAULT
    },
    RequestSchema {
        name: "InfillRequest",
        required: &["input_prefix", "input_suffix"],
        parse: |fields| llama_cpp::infill_request::parse(fields, &any_context()).map(drop),
        details: &[details::GENERATION, details::INFILL],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaChatRequest",
        parse: |fields| ollama::chat_request::parse(fields, &any_context()).map(drop),
        details: &[details::STREAM, details::OLLAMA, details::OLLAMA_CHAT],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaGenerateRequest",
        samples: &["{}", r#"{"raw": true}"#],
        parse: |fields| ollama::generate_request::parse(fields, &any_context()).map(drop),
        details: &[details::STREAM, details::OLLAMA],
        ..DEFAULT
    },
    RequestSchema {
        name: "StreamUpdateRequest",
        names_model: false,
        parse: |mut fields| {
            ControlRequest::from_fields(&mut fields);
            fields.finish()
        },
        details: &[details::UPDATE],
        ..DEFAULT
    },
    RequestSchema {
        name: "EmbeddingRequest",
        required: &["input"],
        parse: |fields| embeddings_request::parse_openai(fields, ANY_EMBEDDING_MODEL).map(drop),
        details: &[details::STREAM, details::EMBEDDINGS],
        ..DEFAULT
    },
    RequestSchema {
        name: "RerankRequest",
        required: &["query", "documents"],
        parse: |fields| rerank_request::parse(fields).map(drop),
        details: &[details::STREAM, details::RERANK],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaEmbedRequest",
        required: &["input"],
        parse: |fields| parse_ollama_embeddings(fields, EmbedRoute::Embed),
        details: &[details::EMBEDDINGS, details::OLLAMA_EMBEDDINGS],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaEmbeddingsRequest",
        required: &["prompt"],
        parse: |fields| parse_ollama_embeddings(fields, EmbedRoute::Embeddings),
        details: &[details::OLLAMA_EMBEDDINGS],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaShowRequest",
        alternatives: &["model", "name"],
        names_model: false,
        parse: |fields| store_request::parse_show(fields).map(drop),
        details: &[details::MODEL_NAME],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaPullRequest",
        alternatives: &["model", "name"],
        names_model: false,
        samples: MODEL_SAMPLES,
        parse: |fields| store_request::parse_pull(fields).map(drop),
        details: &[details::MODEL_NAME, details::STORED_MODEL],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaDeleteRequest",
        alternatives: &["model", "name"],
        names_model: false,
        samples: MODEL_SAMPLES,
        parse: |fields| store_request::parse_delete(fields).map(drop),
        details: &[details::MODEL_NAME, details::STORED_MODEL],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaCopyRequest",
        required: &["source", "destination"],
        names_model: false,
        samples: &[r#"{"source": "", "destination": ""}"#],
        parse: |fields| store_request::parse_copy(fields).map(drop),
        details: &[details::STORED_MODEL],
        ..DEFAULT
    },
    RequestSchema {
        name: "OllamaCreateRequest",
        required: &["from"],
        alternatives: &["model", "name"],
        names_model: false,
        samples: &[
            r#"{"model": "", "from": "", "parameters": {}}"#,
            r#"{"name": ""}"#,
        ],
        parse: |fields| store_request::parse_create(fields).map(drop),
        details: &[details::MODEL_NAME, details::STORED_MODEL, details::CREATE],
    },
    RequestSchema {
        name: "TokenizeRequest",
        alternatives: &["content", "prompt", "messages"],
        samples: &["{}", r#"{"messages": []}"#],
        parse: |fields| vocabulary_request::parse_tokenize(fields).map(drop),
        details: &[details::CHAT],
        ..DEFAULT
    },
    RequestSchema {
        name: "DetokenizeRequest",
        required: &["tokens"],
        parse: |fields| vocabulary_request::parse_detokenize(fields, ANY_NUMBER, |_| 0).map(drop),
        details: &[details::DETOKENIZE],
        ..DEFAULT
    },
    RequestSchema {
        name: "ApplyTemplateRequest",
        required: &["messages"],
        parse: |fields| vocabulary_request::parse_apply_template(fields).map(drop),
        details: &[details::CHAT],
        ..DEFAULT
    },
    RequestSchema {
        name: "StreamAcknowledgement",
        alternatives: &["index", "end"],
        names_model: false,
        parse: |fields| Acknowledgement::parse(fields, CHOICES_MAX - 1).map(drop),
        ..DEFAULT
    },
    RequestSchema {
        name: "WorkflowRunRequest",
        parse: |fields| RunRequest::parse(fields, ANY_NUMBER).map(drop),
        details: &[details::WORKFLOW_RUN],
        ..DEFAULT
    },
    RequestSchema {
        name: "ChannelWriteRequest",
        names_model: false,
        parse: |fields| ChannelWriteRequest::parse(fields).map(drop),
        details: &[details::CHANNEL_WRITE],
        ..DEFAULT
    },
];

fn parse_ollama_embeddings(fields: Fields<'_>, route: EmbedRoute) -> Result<(), ApiError> {
    embeddings_request::parse_ollama(fields, route, ANY_EMBEDDING_MODEL).map(drop)
}

/// A context for bodies of any model.
fn any_context() -> ParseContext<'static> {
    ParseContext::of_vocab(ANY_NUMBER)
}
