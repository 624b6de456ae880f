//! The layers of each fenced crate: its top-level modules from the lowest layer up, as its imports have them.

/// One layer: modules that may name each other and those of the layers before it.
pub(super) type Layer = &'static [&'static str];

/// Crate and layers. Modules that are not listed are on the highest layer; the crate's root file is on none.
pub(super) const LAYERS: [(&str, &[Layer]); 6] = [
    ("cpu", &CPU),
    ("engine", &ENGINE),
    ("gateway", &GATEWAY),
    ("server", &SERVER),
    ("weights", &WEIGHTS),
    ("wire", &WIRE),
];

const CPU: [Layer; 5] = [
    &["norm"],
    // The forward pass of decoders.
    &["decoder"],
    // Encoders of images, which a decoder may have.
    &["tower"],
    &["decoder_model"],
    // The forward pass of encoders.
    &["encoder"],
];

/// Crate, and modules of one layer that may not name each other.
pub(super) const SIBLINGS: [(&str, Layer); 1] = [("wire", &WIRE_PROTOCOLS)];

const ENGINE: [Layer; 9] = [
    // Leaf values.
    &[
        "dry_breakers",
        "embedding",
        "idle_list",
        "plan",
        "remote_record",
        "terms",
    ],
    // Pages, states, statistics.
    &[
        "fair_share",
        "pages",
        "prefix_index",
        "states",
        "stats",
        "step_time",
    ],
    // Requests and settings.
    &[
        "config",
        "disk_cache",
        "media",
        "progress",
        "request",
        "request_state",
        "speculation",
        "validate",
    ],
    // The next token of one sequence.
    &["sampler", "sequence"],
    // Submission to the engine's thread.
    &["inbox"],
    // Requests of other threads and of other processes.
    &["handle", "remote"],
    // The choice of the sequences that run.
    &["scheduler"],
    // One step.
    &["step_execution"],
    &["engine"],
];

const GATEWAY: [Layer; 7] = [
    // Leaf values.
    &[
        "id_generator",
        "job_names",
        "lifetime_stats",
        "locks",
        "media",
        "requested_delivery",
    ],
    // Records of streams as bytes, and callers.
    &["keys", "records"],
    &["owners_slot"],
    // Streams with their records in the journal.
    &["streams"],
    // Models, and limits and metrics of everything below.
    &["limits", "metrics", "models"],
    // What is built on streams.
    &[
        "ended",
        "generation",
        "lifecycle",
        "stored",
        "webhooks",
        "workflows",
    ],
    &[
        "described_images",
        "handles",
        "pending_generation",
        "remote_images",
        "requested_images",
    ],
];

const SERVER: [Layer; 8] = [
    // Log lines of requests.
    &["request_line"],
    // Other instances of the cluster.
    &["peers"],
    &["config", "metrics"],
    // Requests and responses, and the state that handlers share.
    &["access", "app", "request", "response"],
    // Sockets, and handlers.
    &["connection", "health", "routes"],
    // Handlers that use other handlers.
    &["accept_loop", "embeddings", "realtime"],
    // The API description.
    &["openapi"],
    &["router"],
];

const WEIGHTS: [Layer; 6] = [
    // Formats and leaf values.
    &["file_stamp", "gguf"],
    // Configurations, and how files store tensors.
    &["config", "packed_file", "tensor_entry"],
    &["encoder", "load_error"],
    // Configurations of towers, which refuse a text model by a load error.
    &["vision"],
    // Files of models and of adapters.
    &["adapters", "files", "safetensors"],
    // The tensors of each architecture.
    &["parameters"],
];

const WIRE: [Layer; 7] = [
    // JSON, fields, times, schemas.
    &[
        "base64",
        "clock",
        "cursor",
        "field_table",
        "fields",
        "json",
        "schema",
    ],
    // Parts of requests and of frames.
    &[
        "control_request",
        "request_body",
        "response_format",
        "tool_definitions",
    ],
    // Framing, queries and stored requests.
    &["framing", "item_page", "stored_request"],
    // What protocols share: fields, messages and their parts, ends, errors.
    &[
        "derived_model",
        "embeddings_input",
        "request_parser",
        "shared",
    ],
    // Encoders.
    &["encoder"],
    // The wire protocols, which do not name each other.
    &WIRE_PROTOCOLS,
    // Tables over all protocols.
    &["protocol", "realtime_command", "request_schema"],
];

const WIRE_PROTOCOLS: [&str; 12] = [
    "ai_sdk",
    "anthropic",
    "durable_streams",
    "embeddings_request",
    "jobs",
    "llama_cpp",
    "ollama",
    "openai",
    "realtime_encoder",
    "rerank_request",
    "responses",
    "vocabulary_request",
];
