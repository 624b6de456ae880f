//! Every route.

use serde_json::{Value, json};

/// One route under one method.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// As OpenAPI has it.
    pub(super) told: Value,
}

/// What an operation answers with where all is well.
#[derive(Clone, Copy)]
enum Gives {
    /// One JSON object of this schema.
    Json(&'static str),
    /// That, or server-sent events of this schema where a stream is asked for.
    JsonOrEvents(&'static str, &'static str),
    /// That, or a line per object; or events, where they are asked for.
    LinesOrJson(&'static str),
    /// Server-sent events of this schema.
    Events(&'static str),
    Text,
    Page,
    /// A WebSocket.
    Socket,
    /// An error: not supported.
    Nothing,
}

use Gives::{Events, Json, JsonOrEvents, LinesOrJson, Nothing, Page, Socket, Text};

/// Method, path, tag, what it does, the schema of its body, its parameters, its answer.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    Gives,
);

/// Parameters of whatever generates.
const GENERATES: &[&str] = &["resumable", "acks", "priority", "deadline"];
const LINES: &[&str] = &["framing", "resumable", "acks", "priority", "deadline"];
const RESUMES: &[&str] = &["after", "last_event", "dialect", "framing", "govern"];
const URGENT: &[&str] = &["priority", "deadline"];
const NONE: &[&str] = &[];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("post", "/v1/chat/completions", "OpenAI", "Create a chat completion", "ChatRequest", GENERATES, JsonOrEvents("Object", "ChunkEvent")),
    ("post", "/v1/completions", "OpenAI", "Create a completion of a prompt", "CompletionRequest", GENERATES, JsonOrEvents("Object", "ChunkEvent")),
    ("post", "/v1/embeddings", "OpenAI", "Create embeddings of texts or token ids", "EmbeddingRequest", URGENT, Json("Object")),
    ("get", "/v1/models", "OpenAI", "List models; in Anthropic's format if the header anthropic-version is sent", "", NONE, Json("Object")),
    ("get", "/v1/models/{id}", "OpenAI", "Get one model; the id may contain slashes", "", NONE, Json("Object")),
    ("post", "/v1/responses", "Responses", "Create a response", "ResponseRequest", GENERATES, JsonOrEvents("Object", "ResponseEvent")),
    ("post", "/v1/responses/input_tokens", "Responses", "Count the input tokens of a response", "ResponseRequest", NONE, Json("Object")),
    ("get", "/v1/responses/{id}", "Responses", "Get a stored response, or replay its events", "", &["stream", "starting_after"], JsonOrEvents("Object", "ResponseEvent")),
    ("delete", "/v1/responses/{id}", "Responses", "Delete a stored response", "", NONE, Json("Object")),
    ("post", "/v1/responses/{id}/cancel", "Responses", "Cancel a background response", "", NONE, Json("Object")),
    ("get", "/v1/responses/{id}/input_items", "Responses", "List the input items of a stored response", "", &["limit", "order", "after"], Json("Object")),
    ("post", "/v1/messages", "Anthropic", "Create a message", "MessageRequest", GENERATES, JsonOrEvents("Object", "MessageEvent")),
    ("post", "/v1/messages/count_tokens", "Anthropic", "Count the input tokens of a message", "MessageRequest", NONE, Json("Object")),
    ("post", "/v1/ai-sdk/chat", "AI SDK", "Answer a chat as a UI message stream", "AiSdkChatRequest", GENERATES, Events("UiMessageChunk")),
    ("get", "/v1/ai-sdk/chat/{id}/stream", "AI SDK", "Read the running answer of a chat again (204 without one)", "", RESUMES, Events("UiMessageChunk")),
    ("post", "/api/chat", "Ollama", "Chat with a model", "OllamaChatRequest", LINES, LinesOrJson("OllamaEvent")),
    ("post", "/api/generate", "Ollama", "Generate a completion of a prompt", "OllamaGenerateRequest", LINES, LinesOrJson("OllamaEvent")),
    ("post", "/api/embed", "Ollama", "Create embeddings", "OllamaEmbedRequest", URGENT, Json("Object")),
    ("post", "/api/embeddings", "Ollama", "Create one embedding, not normalized (legacy)", "Object", URGENT, Json("Object")),
    ("get", "/api/tags", "Ollama", "List local models", "", NONE, Json("Object")),
    ("get", "/api/ps", "Ollama", "List loaded models", "", NONE, Json("Object")),
    ("post", "/api/show", "Ollama", "Show a model's details and metadata", "Object", NONE, Json("Object")),
    ("get", "/api/version", "Ollama", "Get the supported version of Ollama's API", "", NONE, Json("Object")),
    ("get", "/", "Ollama", "Check that the server is running", "", NONE, Text),
    ("post", "/api/pull", "Ollama", "Download a model, with progress", "Object", NONE, LinesOrJson("Object")),
    ("post", "/api/push", "Ollama", "Upload a model (not supported)", "Object", NONE, Nothing),
    ("post", "/api/create", "Ollama", "Create a model from another one", "Object", NONE, LinesOrJson("Object")),
    ("post", "/api/copy", "Ollama", "Copy a model to another name", "Object", NONE, Text),
    ("delete", "/api/delete", "Ollama", "Delete a model; the file is removed with its last name", "Object", NONE, Text),
    ("post", "/api/blobs/{digest}", "Ollama", "Upload a blob (not supported)", "", NONE, Nothing),
    ("post", "/v1/inference", "Jobs", "Run a job and wait for it or stream it", "JobRequest", GENERATES, JsonOrEvents("Object", "JobEvent")),
    ("post", "/v1/jobs", "Jobs", "Submit a background job (202)", "JobRequest", GENERATES, Json("Object")),
    ("get", "/v1/jobs/{id}", "Jobs", "Get a job's status", "", NONE, Json("Object")),
    ("delete", "/v1/jobs/{id}", "Jobs", "Cancel a job, or delete one that has ended (202)", "", NONE, Json("Object")),
    ("get", "/v1/jobs/{id}/stream", "Jobs", "Stream a job's events", "", RESUMES, Events("JobEvent")),
    ("post", "/v1/jobs/{id}/cancel", "Jobs", "Cancel a job (202)", "", NONE, Json("Object")),
    ("get", "/v1/streams", "Streams", "List the caller's streams", "", &["limit", "after"], Json("Object")),
    ("get", "/v1/streams/feed", "Streams", "Stream state changes of all streams", "", NONE, Events("Object")),
    ("get", "/v1/streams/{id}", "Streams", "Get a stream's state", "", NONE, Json("Stream")),
    ("delete", "/v1/streams/{id}", "Streams", "Cancel a stream, or delete one that has ended (202)", "", NONE, Json("Stream")),
    ("get", "/v1/streams/{id}/events", "Streams", "Read a stream again, from a cursor and in any wire protocol", "", RESUMES, Events("Object")),
    ("post", "/v1/streams/{id}/ack", "Streams", "Acknowledge received tokens", "Object", NONE, Json("Stream")),
    ("post", "/v1/streams/{id}/pause", "Streams", "Pause a stream", "", NONE, Json("Stream")),
    ("post", "/v1/streams/{id}/resume", "Streams", "Resume a paused stream", "", NONE, Json("Stream")),
    ("post", "/v1/streams/{id}/control", "Streams", "Update a running stream: sampling parameters, injected tokens, end of reasoning", "Object", NONE, Json("Stream")),
    ("get", "/v1/realtime/streams", "Streams", "Open a WebSocket for multiplexed streams", "", NONE, Socket),
    ("get", "/v1/workflows", "Workflows", "List workflows", "", NONE, Json("Object")),
    ("get", "/v1/workflows/{name}", "Workflows", "Get one workflow", "", NONE, Json("Object")),
    ("post", "/v1/workflows/{name}/runs", "Workflows", "Run a workflow", "Object", GENERATES, JsonOrEvents("Object", "JobEvent")),
    ("get", "/v1/runs/{id}", "Workflows", "Get a run's status", "", NONE, Json("Object")),
    ("post", "/v1/runs/{id}/channels/{channel}", "Workflows", "Write to a channel of a run", "Object", NONE, Json("Object")),
    ("post", "/tokenize", "Vocabulary", "Tokenize text", "TokenizeRequest", NONE, Json("Object")),
    ("post", "/detokenize", "Vocabulary", "Detokenize token ids", "Object", NONE, Json("Object")),
    ("post", "/apply-template", "Vocabulary", "Render the chat template for a conversation", "TokenizeRequest", NONE, Json("Object")),
    ("get", "/health", "Health", "Get health details", "", NONE, Json("Object")),
    ("get", "/health/liveness", "Health", "Liveness probe", "", NONE, Json("Object")),
    ("get", "/health/readiness", "Health", "Readiness probe", "", NONE, Json("Object")),
    ("get", "/v1/ready", "Health", "Readiness, with a link to the loading progress", "", NONE, Json("Object")),
    ("get", "/v1/loading/progress", "Health", "Get or stream the loading progress", "", NONE, JsonOrEvents("Object", "Object")),
    ("get", "/v1/heartbeats/stream", "Health", "Stream periodic statistics", "", NONE, Events("Object")),
    ("get", "/version", "Health", "Get the version", "", NONE, Json("Object")),
    ("get", "/metrics", "Health", "Get all metrics in Prometheus text format", "", NONE, Text),
    ("get", "/openapi.json", "Health", "Get this OpenAPI document", "", NONE, Json("Object")),
    ("get", "/docs", "Health", "Browse this OpenAPI document", "", NONE, Page),
];

/// The groups.
pub(super) fn tags() -> Value {
    let mut names: Vec<&str> = Vec::new();
    for (_, _, tag, ..) in ROWS {
        if !names.contains(tag) {
            names.push(tag);
        }
    }
    names
        .into_iter()
        .map(|name| json!({"name": name}))
        .collect()
}

/// Their paths, some of them twice.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|&(_, path, ..)| path)
}

/// All of them.
pub(super) fn all() -> impl Iterator<Item = Operation> {
    ROWS.iter().map(|row| Operation {
        method: row.0,
        path: row.1,
        told: told(row),
    })
}

fn told(&(method, path, tag, summary, body, parameters, gives): &Row) -> Value {
    let in_path = path.split(['{', '}']).skip(1).step_by(2).map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let shared = parameters
        .iter()
        .map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
    let mut told = json!({
        "operationId": name_of(method, path),
        "tags": [tag],
        "summary": summary,
        "parameters": in_path.chain(shared).collect::<Vec<_>>(),
        "responses": answers(gives, summary.contains("(202)"), shape_of_errors(tag)),
    });
    if !body.is_empty() {
        let content = json!({"application/json": {"schema": schema(body)}});
        told["requestBody"] = json!({"required": true, "content": content});
    }
    if tag == "Health" && (path.starts_with("/health") || super::is_open(path)) {
        told["security"] = json!([]);
    }
    told
}

/// `post /v1/jobs/{id}/cancel` is `post_v1_jobs_id_cancel`.
fn name_of(method: &str, path: &str) -> String {
    let words = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    std::iter::once(method)
        .chain(words)
        .collect::<Vec<_>>()
        .join("_")
}

fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Whose errors a group's are: each format has a shape of its own.
fn shape_of_errors(tag: &str) -> &'static str {
    match tag {
        "Anthropic" => "Anthropic",
        "Ollama" => "Ollama",
        "Jobs" | "Workflows" => "Jobs",
        _ => "",
    }
}

fn answers(gives: Gives, later: bool, errors: &str) -> Value {
    let events = |name: &str| {
        let data = json!({"type": "string", "contentMediaType": "application/json", "contentSchema": schema(name)});
        let fields = json!({"data": data, "event": {"type": "string"}, "id": {"type": "string"}});
        json!({"itemSchema": {"type": "object", "properties": fields, "required": ["data"]}})
    };
    let json = |name: &str| json!({"schema": schema(name)});
    let text = json!({"schema": {"type": "string"}});
    let content = match gives {
        Json(name) => json!({"application/json": json(name)}),
        JsonOrEvents(whole, event) => {
            json!({"application/json": json(whole), "text/event-stream": events(event)})
        }
        LinesOrJson(name) => json!({
            "application/x-ndjson": {"itemSchema": schema(name)},
            "application/json": json(name),
            "text/event-stream": events(name),
        }),
        Events(name) => json!({"text/event-stream": events(name)}),
        Text => json!({"text/plain": text}),
        Page => json!({"text/html": text}),
        Socket => return json!({"101": {"description": "A WebSocket: see docs/realtime.md"}}),
        Nothing => {
            return json!({"501": {"description": "Not supported by this server; the error message names an alternative"}});
        }
    };
    let status = if later { "202" } else { "200" };
    let refused = |name: &str| json!({"$ref": format!("#/components/responses/{errors}{name}")});
    let mut told = json!({
        status: {"description": "Success", "content": content},
        "4XX": refused("Refused"),
        "503": refused("Unavailable"),
        "504": refused("Late"),
    });
    if errors == "Anthropic" {
        // Its own status for a server that has no room.
        told["529"] = refused("Unavailable");
    }
    told
}
