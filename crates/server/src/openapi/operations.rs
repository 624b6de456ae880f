//! The operations: every route with its parameters, body and responses.

use super::operation::Success::{
    self, Empty, Events, File, Generation, Json, JsonOrEvents, Lines, Messages, Page, Probe,
    Resumed, TextOrJson, TextOrPage, Unsupported, WebSocket,
};
use crate::embeddings::ollama::{OllamaEmbedding, OllamaEmbeddings};
use crate::embeddings::openai::{EmbeddingList, EmbeddingObject};
use crate::embeddings::rerank::RankedDocuments;
use crate::health::{Health, Heartbeat, Liveness, LoadingEvent, Readiness, ReadyState, Version};
use crate::metrics::MetricsSnapshot;
use crate::routes::cluster::ClusterReport;
use crate::routes::completion_list::CompletionPage;
use crate::routes::generation::MessageTokenCount;
use crate::routes::jobs::{JobGone, JobStatus, SubmittedJob};
use crate::routes::llama_cpp::{Props, Slot};
use crate::routes::models::{LoraAdapter, ScalesSet};
use crate::routes::ollama::generation::ResidenceResponse;
use crate::routes::ollama::models::{
    OllamaLoadedModel, OllamaModel, OllamaModelInfo, OllamaModelList, OllamaVersion,
};
use crate::routes::ollama::pull::OllamaStatus;
use crate::routes::responses::{DeletedResponse, InputTokenCount};
use crate::routes::stream_feed::FeedMessage;
use crate::routes::stream_list::StreamPage;
use crate::routes::streams::StreamGone;
use crate::routes::vocabulary::{AppliedTemplate, Detokenized, TokenOrPiece, Tokenized};
use crate::routes::webhooks::DeletedDelivery;
use crate::routes::workflows::{ChannelWrite, RunDescription};
use gateway::streams::describe::Description;
use gateway::webhooks::DeliveryDescription;
use gateway::workflows::folder::{Workflow, WorkflowList};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};
use wire::anthropic::model_list::{ModelInfo, ModelPage};
use wire::durable_streams::message::{ControlEvent, DurableMessage};
use wire::item_page::{ItemPage, RawItem};
use wire::ollama::response_line::ErrorLine;
use wire::openai::model_list::{ModelList, ModelObject};
use wire::openai::stored_completion::{DeletedCompletion, StoredCompletion, StoredMessage};
use wire::protocol::Protocol;
use wire::schema::{SchemaFn, either, of};
use wire::stored_request::InputItem;

/// Method, path, tag, summary, schema of the body (empty without a body), parameters, and the response without an
/// error.
pub(super) type Operation = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    Success,
);

/// Parameters of operations that generate.
const GENERATES: &[&str] = &["resumable", "durable", "acks", "priority", "deadline"];
const LINES: &[&str] = &[
    "framing",
    "resumable",
    "durable",
    "acks",
    "priority",
    "deadline",
];
const RESUMES: &[&str] = &["after", "last_event", "dialect", "framing", "govern"];
const READS: &[&str] = &["offset", "live", "cursor", "if_none_match"];
const URGENT: &[&str] = &["priority", "deadline"];
const LISTS: &[&str] = &["unread", "stream_limit", "after_stream", "scope"];
const NONE: &[&str] = &[];

const RESPONSE: SchemaFn = |schemas| (Protocol::Responses.schemas().collected)(schemas);
const STREAM: SchemaFn = of::<Description<'static>>;
const OLLAMA_EVENT: SchemaFn = |schemas| (Protocol::OllamaChat.schemas().event)(schemas);

/// The response of `/api/chat` and `/api/generate`: an answer, or the state of a model that was loaded or unloaded.
const OLLAMA_ANSWER: SchemaFn = |schemas: &mut SchemaGenerator| -> Schema {
    let answer = (Protocol::OllamaChat.schemas().collected)(schemas);
    let loaded = of::<ResidenceResponse<'static>>(schemas);
    json_schema!({ "anyOf": [answer, loaded] })
};

#[rustfmt::skip]
pub(super) const OPERATIONS: &[Operation] = &[
    ("post", "/v1/chat/completions", "OpenAI", "Create a chat completion", "ChatRequest", GENERATES, Generation(Protocol::Chat)),
    ("get", "/v1/chat/completions", "OpenAI", "List stored chat completions; metadata[name]=value filters by metadata", "", &["model", "metadata", "item_limit", "oldest_first", "after_item", "scope"], Json(200, of::<CompletionPage<'static>>)),
    ("get", "/v1/chat/completions/{id}", "OpenAI", "Get a stored chat completion", "", NONE, Json(200, of::<StoredCompletion<'static>>)),
    ("post", "/v1/chat/completions/{id}", "OpenAI", "Replace the metadata of a stored chat completion", "MetadataUpdate", NONE, Json(200, of::<StoredCompletion<'static>>)),
    ("delete", "/v1/chat/completions/{id}", "OpenAI", "Delete a stored chat completion", "", NONE, Json(200, of::<DeletedCompletion>)),
    ("get", "/v1/chat/completions/{id}/messages", "OpenAI", "List the messages of a stored chat completion's request", "", &["item_limit", "oldest_first", "after_item"], Json(200, of::<ItemPage<'static, RawItem<StoredMessage>>>)),
    ("post", "/v1/completions", "OpenAI", "Create a completion of a prompt", "CompletionRequest", GENERATES, Generation(Protocol::Completion)),
    ("post", "/v1/embeddings", "OpenAI", "Create embeddings of texts or token ids", "EmbeddingRequest", URGENT, Json(200, of::<EmbeddingList<'static, Vec<EmbeddingObject>>>)),
    ("post", "/v1/rerank", "Rerank", "Score documents for a query, best first", "RerankRequest", URGENT, Json(200, of::<RankedDocuments<'static>>)),
    ("get", "/v1/models", "OpenAI", "List models; in Anthropic's format if the header anthropic-version is sent", "", &["anthropic_version", "model_limit", "after_id", "before_id"], Json(200, either::<ModelList<'static>, ModelPage<'static>>)),
    ("get", "/v1/models/{id}", "OpenAI", "Get one model; the id may contain slashes", "", &["anthropic_version"], Json(200, either::<ModelObject<'static>, ModelInfo<'static>>)),
    ("post", "/v1/responses", "Responses", "Create a response", "ResponseRequest", GENERATES, Generation(Protocol::Responses)),
    ("post", "/v1/responses/input_tokens", "Responses", "Count the input tokens of a response", "ResponseRequest", NONE, Json(200, of::<InputTokenCount>)),
    ("get", "/v1/responses/{id}", "Responses", "Get a stored response, or replay its events", "", &["stream", "starting_after"], Generation(Protocol::Responses)),
    ("delete", "/v1/responses/{id}", "Responses", "Delete a stored response", "", NONE, Json(200, of::<DeletedResponse>)),
    ("post", "/v1/responses/{id}/cancel", "Responses", "Cancel a background response", "", NONE, Json(200, RESPONSE)),
    ("get", "/v1/responses/{id}/input_items", "Responses", "List the input items of a stored response", "", &["item_limit", "order", "after_item"], Json(200, of::<ItemPage<'static, RawItem<InputItem>>>)),
    ("post", "/v1/messages", "Anthropic", "Create a message", "MessageRequest", GENERATES, Generation(Protocol::Messages)),
    ("post", "/v1/messages/count_tokens", "Anthropic", "Count the input tokens of a message", "MessageTokensRequest", NONE, Json(200, of::<MessageTokenCount>)),
    ("post", "/v1/ai-sdk/chat", "AI SDK", "Answer a chat as a UI message stream", "AiSdkChatRequest", GENERATES, Generation(Protocol::AiSdkUi)),
    ("get", "/v1/ai-sdk/chat/{id}/stream", "AI SDK", "Read the running answer of a chat again (204 without one)", "", RESUMES, Resumed(&[Protocol::AiSdkUi])),
    ("post", "/api/chat", "Ollama", "Chat with a model", "OllamaChatRequest", LINES, Lines(OLLAMA_ANSWER, OLLAMA_EVENT)),
    ("post", "/api/generate", "Ollama", "Generate a completion of a prompt", "OllamaGenerateRequest", LINES, Lines(OLLAMA_ANSWER, OLLAMA_EVENT)),
    ("post", "/api/embed", "Ollama", "Create embeddings", "OllamaEmbedRequest", URGENT, Json(200, of::<OllamaEmbeddings<'static, Vec<Vec<f32>>>>)),
    ("post", "/api/embeddings", "Ollama", "Create one embedding, not normalized (legacy)", "OllamaEmbeddingsRequest", URGENT, Json(200, of::<OllamaEmbedding>)),
    ("get", "/api/tags", "Ollama", "List local models", "", NONE, Json(200, of::<OllamaModelList<OllamaModel>>)),
    ("get", "/api/ps", "Ollama", "List loaded models", "", NONE, Json(200, of::<OllamaModelList<OllamaLoadedModel>>)),
    ("post", "/api/show", "Ollama", "Show a model's details and metadata", "OllamaShowRequest", NONE, Json(200, of::<OllamaModelInfo<'static>>)),
    ("get", "/api/version", "Ollama", "Get the supported version of Ollama's API", "", NONE, Json(200, of::<OllamaVersion>)),
    ("get", "/", "Ollama", "Check that the server is running; the web page for browsers", "", NONE, TextOrPage),
    ("get", "/page/{version}/{file}", "Page", "Get a file of the web page", "", NONE, File),
    ("post", "/api/pull", "Ollama", "Download a model, with progress", "OllamaPullRequest", NONE, Lines(of::<OllamaStatus>, either::<OllamaStatus, ErrorLine<'static>>)),
    ("post", "/api/push", "Ollama", "Upload a model (not supported)", "", NONE, Unsupported),
    ("post", "/api/create", "Ollama", "Create a model from another one", "OllamaCreateRequest", NONE, Lines(of::<OllamaStatus>, of::<OllamaStatus>)),
    ("post", "/api/copy", "Ollama", "Copy a model to another name", "OllamaCopyRequest", NONE, Empty),
    ("delete", "/api/delete", "Ollama", "Delete a model; the file is removed with its last name", "OllamaDeleteRequest", NONE, Empty),
    ("post", "/api/blobs/{digest}", "Ollama", "Upload a blob (not supported)", "", NONE, Unsupported),
    ("post", "/v1/inference", "Jobs", "Run a job and wait for it or stream it", "JobRequest", GENERATES, Generation(Protocol::Job)),
    ("post", "/v1/jobs", "Jobs", "Submit a background job", "JobRequest", GENERATES, Json(202, of::<SubmittedJob>)),
    ("get", "/v1/jobs/{id}", "Jobs", "Get a job's status", "", NONE, Json(200, of::<JobStatus<'static>>)),
    ("delete", "/v1/jobs/{id}", "Jobs", "Cancel a job, or delete one that has ended", "", NONE, Json(202, either::<JobStatus<'static>, JobGone<'static>>)),
    ("get", "/v1/jobs/{id}/stream", "Jobs", "Stream a job's events", "", RESUMES, Resumed(&Protocol::ALL)),
    ("post", "/v1/jobs/{id}/cancel", "Jobs", "Cancel a job", "", NONE, Json(202, either::<JobStatus<'static>, JobGone<'static>>)),
    ("get", "/v1/streams", "Streams", "List the caller's streams, or those with an unread end", "", LISTS, Json(200, of::<StreamPage<'static>>)),
    ("get", "/v1/streams/feed", "Streams", "Stream state changes of the caller's streams; with the scope admin of all streams, and metrics", "", &["scope"], Events(of::<FeedMessage<'static>>)),
    ("get", "/v1/streams/{id}", "Streams", "Get a stream's state", "", NONE, Json(200, STREAM)),
    ("delete", "/v1/streams/{id}", "Streams", "Cancel a stream, or delete one that has ended", "", NONE, Json(202, either::<Description<'static>, StreamGone<'static>>)),
    ("get", "/v1/streams/{id}/events", "Streams", "Read a stream again, from a cursor and in any wire protocol", "", RESUMES, Resumed(&Protocol::ALL)),
    ("get", "/v1/stream/{id}", "Streams", "Read a stream's messages after an offset (Durable Streams protocol)", "", READS, Messages(of::<DurableMessage<'static>>, of::<ControlEvent>)),
    ("head", "/v1/stream/{id}", "Streams", "Get the offset after a stream's last message (Durable Streams protocol)", "", NONE, Empty),
    ("post", "/v1/streams/{id}/ack", "Streams", "Acknowledge received tokens, or the end", "StreamAcknowledgement", NONE, Json(200, STREAM)),
    ("post", "/v1/streams/{id}/pause", "Streams", "Pause a stream", "", NONE, Json(200, STREAM)),
    ("post", "/v1/streams/{id}/resume", "Streams", "Resume a paused stream", "", NONE, Json(200, STREAM)),
    ("post", "/v1/streams/{id}/control", "Streams", "Update a running stream: sampling parameters, injected tokens, end of reasoning", "StreamUpdateRequest", NONE, Json(200, STREAM)),
    ("get", "/v1/realtime/streams", "Streams", "Open a WebSocket for multiplexed streams", "", NONE, WebSocket),
    ("get", "/v1/workflows", "Workflows", "List workflows", "", NONE, Json(200, of::<WorkflowList>)),
    ("get", "/v1/workflows/{name}", "Workflows", "Get one workflow", "", NONE, Json(200, of::<Workflow>)),
    ("post", "/v1/workflows/{name}/runs", "Workflows", "Run a workflow", "WorkflowRunRequest", GENERATES, Generation(Protocol::Job)),
    ("get", "/v1/runs/{id}", "Workflows", "Get a run's status", "", NONE, Json(200, of::<RunDescription<'static>>)),
    ("post", "/v1/runs/{id}/channels/{channel}", "Workflows", "Write to a channel of a run", "ChannelWriteRequest", NONE, Json(200, of::<ChannelWrite>)),
    ("get", "/v1/webhooks/deliveries", "Webhooks", "List events that are not delivered, and dead letters", "", &["delivery_status", "item_limit", "oldest_first", "after_item"], Json(200, of::<ItemPage<'static, RawItem<DeliveryDescription>>>)),
    ("get", "/v1/webhooks/deliveries/{id}", "Webhooks", "Get a delivery", "", NONE, Json(200, of::<DeliveryDescription>)),
    ("delete", "/v1/webhooks/deliveries/{id}", "Webhooks", "Delete a delivery", "", NONE, Json(200, of::<DeletedDelivery>)),
    ("post", "/v1/webhooks/deliveries/{id}/redeliver", "Webhooks", "Deliver an event again", "", NONE, Json(202, of::<DeliveryDescription>)),
    ("get", "/lora-adapters", "Vocabulary", "List adapters (LoRA) and their default scales", "", NONE, Json(200, of::<Vec<LoraAdapter>>)),
    ("post", "/lora-adapters", "Vocabulary", "Set the default scales of adapters: the body is a list of id and scale", "", NONE, Json(200, of::<ScalesSet>)),
    ("post", "/completion", "llama.cpp", "Create a completion of a prompt in llama.cpp's format", "LlamaCompletionRequest", GENERATES, Generation(Protocol::LlamaCompletion)),
    ("post", "/infill", "llama.cpp", "Fill the gap between two texts", "InfillRequest", GENERATES, Generation(Protocol::Infill)),
    ("get", "/props", "llama.cpp", "Get properties of the model that the server was started with", "", NONE, Json(200, of::<Props>)),
    ("get", "/slots", "llama.cpp", "List the slots of that model; those of the caller's choices with their progress", "", &["fail_on_no_slot"], Json(200, of::<Vec<Slot>>)),
    ("post", "/tokenize", "Vocabulary", "Tokenize text", "TokenizeRequest", NONE, Json(200, of::<Tokenized<Vec<TokenOrPiece<'static>>, Vec<String>>>)),
    ("post", "/detokenize", "Vocabulary", "Detokenize token ids", "DetokenizeRequest", NONE, Json(200, of::<Detokenized<'static>>)),
    ("post", "/apply-template", "Vocabulary", "Render the chat template for a conversation", "ApplyTemplateRequest", NONE, Json(200, of::<AppliedTemplate<'static>>)),
    ("get", "/health", "Health", "Get health details; 503 while the model is loaded and during the shutdown", "", NONE, Probe(of::<Health<'static>>)),
    ("get", "/health/liveness", "Health", "Liveness probe; 503 while an engine is stuck", "", NONE, Probe(of::<Liveness>)),
    ("get", "/health/readiness", "Health", "Readiness probe", "", NONE, Probe(of::<Readiness>)),
    ("get", "/v1/ready", "Health", "Readiness, with a link to the loading progress", "", NONE, Probe(of::<ReadyState>)),
    ("get", "/v1/loading/progress", "Health", "Get or stream the loading progress", "", NONE, JsonOrEvents(of::<LoadingEvent>, of::<LoadingEvent>)),
    ("get", "/v1/heartbeats/stream", "Health", "Stream periodic statistics", "", NONE, Events(of::<Heartbeat>)),
    ("get", "/version", "Health", "Get the version", "", NONE, Json(200, of::<Version>)),
    ("get", "/v1/cluster", "Health", "Get the instances of the cluster, with their models and loads", "", NONE, Json(200, of::<ClusterReport>)),
    ("get", "/metrics", "Health", "Get all metrics in Prometheus text format", "", &["metrics_scope"], TextOrJson(of::<MetricsSnapshot>)),
    ("get", "/openapi.json", "Health", "Get this OpenAPI document", "", NONE, Json(200, of::<Map<String, Value>>)),
    ("get", "/docs", "Health", "Browse this OpenAPI document", "", NONE, Page),
];
