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
    /// It says that it is not supported.
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
    ("post", "/v1/chat/completions", "OpenAI", "Answers a conversation", "ChatRequest", GENERATES, JsonOrEvents("Object", "ChunkEvent")),
    ("post", "/v1/completions", "OpenAI", "Goes on after a prompt", "CompletionRequest", GENERATES, JsonOrEvents("Object", "ChunkEvent")),
    ("post", "/v1/embeddings", "OpenAI", "Texts as vectors", "EmbeddingRequest", URGENT, Json("Object")),
    ("get", "/v1/models", "OpenAI", "The models; in Anthropic's shape for who sends anthropic-version", "", NONE, Json("Object")),
    ("get", "/v1/models/{id}", "OpenAI", "One model; its name may have slashes", "", NONE, Json("Object")),
    ("post", "/v1/responses", "Responses", "Creates a response", "ResponseRequest", GENERATES, JsonOrEvents("Object", "ResponseEvent")),
    ("post", "/v1/responses/input_tokens", "Responses", "Counts a prompt's tokens", "ResponseRequest", NONE, Json("Object")),
    ("get", "/v1/responses/{id}", "Responses", "A response that is kept, or its events", "", &["stream", "starting_after"], JsonOrEvents("Object", "ResponseEvent")),
    ("delete", "/v1/responses/{id}", "Responses", "Forgets a response", "", NONE, Json("Object")),
    ("post", "/v1/responses/{id}/cancel", "Responses", "Stops a response", "", NONE, Json("Object")),
    ("get", "/v1/responses/{id}/input_items", "Responses", "What a response was asked", "", &["limit", "order", "after"], Json("Object")),
    ("post", "/v1/messages", "Anthropic", "Answers a conversation", "MessageRequest", GENERATES, JsonOrEvents("Object", "MessageEvent")),
    ("post", "/v1/messages/count_tokens", "Anthropic", "Counts a prompt's tokens", "MessageRequest", NONE, Json("Object")),
    ("post", "/api/chat", "Ollama", "Answers a conversation", "OllamaChatRequest", LINES, LinesOrJson("OllamaEvent")),
    ("post", "/api/generate", "Ollama", "Goes on after a prompt", "OllamaGenerateRequest", LINES, LinesOrJson("OllamaEvent")),
    ("post", "/api/embed", "Ollama", "Texts as vectors", "OllamaEmbedRequest", URGENT, Json("Object")),
    ("post", "/api/embeddings", "Ollama", "One text as a vector, not normed", "Object", URGENT, Json("Object")),
    ("get", "/api/tags", "Ollama", "The models", "", NONE, Json("Object")),
    ("get", "/api/ps", "Ollama", "The models that are loaded", "", NONE, Json("Object")),
    ("post", "/api/show", "Ollama", "What a model's file says of it", "Object", NONE, Json("Object")),
    ("get", "/api/version", "Ollama", "Whose API this is", "", NONE, Json("Object")),
    ("get", "/", "Ollama", "Somebody is there", "", NONE, Text),
    ("post", "/api/pull", "Ollama", "Fetches a model; how far it is, line by line", "Object", NONE, LinesOrJson("Object")),
    ("post", "/api/push", "Ollama", "Pushes a model", "Object", NONE, Nothing),
    ("post", "/api/create", "Ollama", "Makes a model of another one", "Object", NONE, LinesOrJson("Object")),
    ("post", "/api/copy", "Ollama", "Gives a model another name", "Object", NONE, Text),
    ("delete", "/api/delete", "Ollama", "Takes a name away, and its file with the last", "Object", NONE, Text),
    ("post", "/api/blobs/{digest}", "Ollama", "Stores a blob", "", NONE, Nothing),
    ("post", "/v1/inference", "Jobs", "Runs a job for its client", "JobRequest", GENERATES, JsonOrEvents("Object", "JobEvent")),
    ("post", "/v1/jobs", "Jobs", "Runs a job without a client (202)", "JobRequest", GENERATES, Json("Object")),
    ("get", "/v1/jobs/{id}", "Jobs", "How far a job is", "", NONE, Json("Object")),
    ("delete", "/v1/jobs/{id}", "Jobs", "Stops a job, or forgets one that has ended (202)", "", NONE, Json("Object")),
    ("get", "/v1/jobs/{id}/stream", "Jobs", "A job's events", "", RESUMES, Events("JobEvent")),
    ("post", "/v1/jobs/{id}/cancel", "Jobs", "Stops a job (202)", "", NONE, Json("Object")),
    ("get", "/v1/streams", "Streams", "The caller's streams", "", &["limit", "after"], Json("Object")),
    ("get", "/v1/streams/feed", "Streams", "What happens to all streams", "", NONE, Events("Object")),
    ("get", "/v1/streams/{id}", "Streams", "How far a stream is", "", NONE, Json("Stream")),
    ("delete", "/v1/streams/{id}", "Streams", "Stops a stream, or forgets one that has ended (202)", "", NONE, Json("Stream")),
    ("get", "/v1/streams/{id}/events", "Streams", "A stream once more, in any dialect", "", RESUMES, Events("Object")),
    ("post", "/v1/streams/{id}/ack", "Streams", "The client has so many tokens", "Object", NONE, Json("Stream")),
    ("post", "/v1/streams/{id}/pause", "Streams", "Has a stream stand still", "", NONE, Json("Stream")),
    ("post", "/v1/streams/{id}/resume", "Streams", "Has it go on", "", NONE, Json("Stream")),
    ("post", "/v1/streams/{id}/control", "Streams", "Tells a running stream other sampling, or what to go on from", "Object", NONE, Json("Stream")),
    ("get", "/v1/realtime/streams", "Streams", "Several streams over one WebSocket", "", NONE, Socket),
    ("get", "/v1/workflows", "Workflows", "The programs there are", "", NONE, Json("Object")),
    ("get", "/v1/workflows/{name}", "Workflows", "One program", "", NONE, Json("Object")),
    ("post", "/v1/workflows/{name}/runs", "Workflows", "Runs a program", "Object", GENERATES, JsonOrEvents("Object", "JobEvent")),
    ("get", "/v1/runs/{id}", "Workflows", "How far a run is", "", NONE, Json("Object")),
    ("post", "/v1/runs/{id}/channels/{channel}", "Workflows", "Writes into a channel of a run", "Object", NONE, Json("Object")),
    ("post", "/tokenize", "Vocabulary", "Text as ids", "TokenizeRequest", NONE, Json("Object")),
    ("post", "/detokenize", "Vocabulary", "Ids as text", "Object", NONE, Json("Object")),
    ("post", "/apply-template", "Vocabulary", "A conversation as the model sees it", "TokenizeRequest", NONE, Json("Object")),
    ("get", "/health", "Health", "How things stand", "", NONE, Json("Object")),
    ("get", "/health/liveness", "Health", "Is it alive", "", NONE, Json("Object")),
    ("get", "/health/readiness", "Health", "Does it answer", "", NONE, Json("Object")),
    ("get", "/v1/ready", "Health", "Does it answer, and where to see how far it is", "", NONE, Json("Object")),
    ("get", "/v1/loading/progress", "Health", "How far loading is", "", NONE, JsonOrEvents("Object", "Object")),
    ("get", "/v1/heartbeats/stream", "Health", "Figures, again and again", "", NONE, Events("Object")),
    ("get", "/version", "Health", "Which release of Millrace this is", "", NONE, Json("Object")),
    ("get", "/metrics", "Health", "All figures, for Prometheus", "", NONE, Text),
    ("get", "/openapi.json", "Health", "This description", "", NONE, Json("Object")),
    ("get", "/docs", "Health", "A page that shows it", "", NONE, Page),
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
            return json!({"501": {"description": "Not supported by this server; the words say what instead"}});
        }
    };
    let status = if later { "202" } else { "200" };
    let refused = |name: &str| json!({"$ref": format!("#/components/responses/{errors}{name}")});
    let mut told = json!({
        status: {"description": "As asked", "content": content},
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
