//! The rows of the field tables: fields that parsers do not read, or of which they reject values. Sources: the request types
//! of `openai`, `anthropic` and `ollama` for Python and JavaScript, in the versions that `cargo xtask clients` pins, and
//! the documentation of llama.cpp's server.

use super::{FieldRow, FieldTable, Treatment};

/// A field that the parser reads, except for values that it rejects.
const fn honored(name: &'static str, words: &'static str) -> FieldRow {
    let treatment = Treatment::Honored(words);
    FieldRow { name, treatment }
}

const fn no_effect(name: &'static str, reason: &'static str) -> FieldRow {
    let treatment = Treatment::NoEffect(reason);
    FieldRow { name, treatment }
}

const fn rejected(
    name: &'static str,
    accepted: &'static [&'static str],
    instead: &'static str,
) -> FieldRow {
    let treatment = Treatment::Rejected { accepted, instead };
    FieldRow { name, treatment }
}

const CACHES_ALONE: &str = "prefixes are always cached";
const ACCOUNTING: &str = "for the caller's own accounting";
const NOT_BILLED: &str = "requests are not billed";
const HINT: &str = "a hint about speed";
const LOADING: &str = "the operator configures how models are loaded";

const NO_SLOTS: &str = "there are no slots";
const NO_MIROSTAT: &str = "mirostat is not supported";
const ALL_FIELDS: &str = "all fields are returned";
const FIXED_ORDER: &str = "the order of samplers is fixed";

const AUDIO: FieldRow = rejected("audio", &[], "");
const BEAM_SEARCH: FieldRow = rejected("use_beam_search", &["false"], "");
const CACHE_KEY: FieldRow = no_effect("prompt_cache_key", CACHES_ALONE);
const CACHE_OPTIONS: FieldRow = no_effect("prompt_cache_options", CACHES_ALONE);
const CACHE_RETENTION: FieldRow = no_effect("prompt_cache_retention", CACHES_ALONE);
const FUNCTIONS: FieldRow = rejected("functions", &["[]"], "use tools");
const FUNCTION_CALL: FieldRow = rejected(
    "function_call",
    &["\"none\"", "\"auto\""],
    "use tool_choice",
);
const NO_LOGPROBS: FieldRow = honored("logprobs", "only `false`");
const NO_TOOLS: FieldRow = honored("tools", "only `[]`: use messages");
const NO_TOP_LOGPROBS: FieldRow = honored("top_logprobs", "only 0");
const ONE_ANSWER: FieldRow = honored("n", "only 1");
const SHIFT: FieldRow = no_effect("shift", "an answer ends where the context does");
const USER: FieldRow = no_effect("user", ACCOUNTING);

/// `/v1/chat/completions`.
pub const CHAT: FieldTable = FieldTable {
    rows: &[
        AUDIO,
        FUNCTION_CALL,
        FUNCTIONS,
        rejected("modalities", &["[\"text\"]", "[]"], "answers are text"),
        rejected("moderation", &[], "moderation is not available"),
        no_effect("prediction", HINT),
        CACHE_KEY,
        CACHE_OPTIONS,
        CACHE_RETENTION,
        no_effect("safety_identifier", ACCOUNTING),
        USER,
        no_effect("verbosity", "a hint about length"),
        rejected("web_search_options", &[], "web search is not available"),
        // Fields of vLLM and llama.cpp.
        rejected("add_generation_prompt", &["true"], ""),
        rejected(
            "best_of",
            &["1"],
            "use n here, or best_of in /v1/completions",
        ),
        rejected("chat_template", &[], "the template is the model's"),
        rejected("continue_final_message", &["false"], "use /v1/messages"),
        rejected("documents", &["[]"], "put them into messages"),
        rejected("echo", &["false"], "use /v1/completions"),
        rejected("prompt_logprobs", &["0"], "use echo in /v1/completions"),
        BEAM_SEARCH,
    ],
};

/// `/v1/completions`.
pub const COMPLETIONS: FieldTable = FieldTable {
    rows: &[
        NO_TOOLS,
        USER,
        // Fields of chat completions, vLLM and llama.cpp.
        AUDIO,
        FUNCTION_CALL,
        FUNCTIONS,
        rejected("prompt_embeds", &[], ""),
        rejected("prompt_logprobs", &["0"], "use echo and logprobs"),
        BEAM_SEARCH,
    ],
};

/// `/v1/responses` and `/v1/responses/input_tokens`.
pub const RESPONSES: FieldTable = FieldTable {
    rows: &[
        ONE_ANSWER,
        no_effect("access_programs", "models are not assigned to programs"),
        no_effect(
            "background_options",
            "background responses start when a slot is free",
        ),
        rejected(
            "context_management",
            &["[]"],
            "conversations are not compacted",
        ),
        rejected("conversation", &[], "use previous_response_id"),
        no_effect("image", "images are parts of messages"),
        honored(
            "include",
            "only `message.output_text.logprobs` adds anything",
        ),
        no_effect(
            "max_tool_calls",
            "limits calls of built-in tools, which are rejected",
        ),
        rejected("moderation", &[], "moderation is not available"),
        rejected("personality", &[], "use instructions"),
        rejected("prompt", &[], "use instructions and input"),
        CACHE_KEY,
        CACHE_OPTIONS,
        CACHE_RETENTION,
        no_effect("safety_identifier", ACCOUNTING),
        USER,
        // Fields of chat completions.
        AUDIO,
        rejected("best_of", &["1"], ""),
        FUNCTION_CALL,
        FUNCTIONS,
    ],
};

/// `/v1/messages` and `/v1/messages/count_tokens`.
pub const MESSAGES: FieldTable = FieldTable {
    rows: &[
        USER,
        NO_LOGPROBS,
        NO_TOP_LOGPROBS,
        ONE_ANSWER,
        no_effect("betas", "clients send this field as a header"),
        no_effect("billing_policy", NOT_BILLED),
        no_effect("cache_control", CACHES_ALONE),
        rejected("compaction", &[], "conversations are not summarized"),
        rejected("container", &["{}", "[]"], ""),
        honored(
            "context_management",
            "edits that clear have no effect, because nothing is cleared; edits that compact are rejected",
        ),
        no_effect("diagnostics", "answers have no diagnostics"),
        no_effect("fallback_credit_token", NOT_BILLED),
        no_effect(
            "fallbacks",
            "the server has no policy by which a model declines",
        ),
        no_effect("inference_geo", "the server computes where it runs"),
        rejected("mcp_servers", &["[]"], ""),
        no_effect("metadata", ACCOUNTING),
        no_effect("speed", HINT),
        // Rejected with a separate error code: see `message_request`.
        rejected("thread", &[], "send the whole conversation without it"),
        no_effect("user_profile_id", "clients send this field as a header"),
        no_effect("workspace_id", "clients send this field as a header"),
        // Fields of OpenAI's protocols.
        rejected("best_of", &["1"], ""),
    ],
};

/// `/v1/embeddings`.
pub const EMBEDDINGS: FieldTable = FieldTable {
    rows: &[
        USER,
        // Fields of vLLM.
        rejected("messages", &[], "use input"),
        rejected(
            "truncate_prompt_tokens",
            &[],
            "use /api/embed with truncate",
        ),
    ],
};

/// `/v1/rerank`, with the fields of Jina's and Cohere's clients.
pub const RERANK: FieldTable = FieldTable {
    rows: &[
        rejected(
            "max_tokens_per_doc",
            &[],
            "documents are truncated to the context",
        ),
        rejected("rank_fields", &[], "documents have one text"),
        USER,
    ],
};

/// `/api/chat`.
pub const OLLAMA_CHAT: FieldTable = FieldTable {
    rows: &[
        USER,
        rejected("images", &["[]"], "images are members of messages"),
        SHIFT,
    ],
};

/// `/api/generate`.
pub const OLLAMA_GENERATE: FieldTable = FieldTable {
    rows: &[
        USER,
        rejected("height", &["0"], "images are not generated"),
        rejected("steps", &["0"], "images are not generated"),
        rejected("width", &["0"], "images are not generated"),
        SHIFT,
    ],
};

/// `/api/embed`.
pub const OLLAMA_EMBED: FieldTable = FieldTable {
    rows: &[no_effect("options", LOADING)],
};

/// `/api/embeddings`.
pub const OLLAMA_EMBEDDINGS: FieldTable = FieldTable {
    rows: &[no_effect("options", LOADING)],
};

/// `/v1/inference` and `/v1/jobs`.
pub const JOBS: FieldTable = FieldTable {
    rows: &[
        USER,
        NO_LOGPROBS,
        NO_TOP_LOGPROBS,
        ONE_ANSWER,
        AUDIO,
        rejected("best_of", &["1"], "use /v1/completions"),
        FUNCTION_CALL,
        FUNCTIONS,
    ],
};

/// llama.cpp's `/completion`.
pub const LLAMA_COMPLETION: FieldTable = FieldTable {
    rows: &[
        USER,
        NO_TOOLS,
        ONE_ANSWER,
        no_effect("cache_prompt", CACHES_ALONE),
        no_effect("dynatemp_exponent", "dynatemp_range is not supported"),
        rejected("dynatemp_range", &["0", "0.0"], ""),
        no_effect("id_slot", NO_SLOTS),
        rejected("min_keep", &["0"], ""),
        rejected("mirostat", &["0"], "use temperature, top_p and min_p"),
        no_effect("mirostat_eta", NO_MIROSTAT),
        no_effect("mirostat_tau", NO_MIROSTAT),
        rejected("n_indent", &["0"], ""),
        no_effect("n_keep", "an answer ends where the context does"),
        rejected(
            "post_sampling_probs",
            &["false"],
            "n_probs gives the probabilities before sampling",
        ),
        no_effect("response_fields", ALL_FIELDS),
        no_effect("return_progress", "/v1/streams shows the progress"),
        no_effect("samplers", FIXED_ORDER),
        rejected("t_max_predict_ms", &["0", "-1"], "use deadline_ms"),
        rejected("top_n_sigma", &["-1", "-1.0", "0", "0.0"], "use min_p"),
    ],
};

/// llama.cpp's `/infill`.
pub const INFILL: FieldTable = FieldTable {
    rows: &[
        USER,
        NO_TOOLS,
        ONE_ANSWER,
        no_effect("cache_prompt", CACHES_ALONE),
        no_effect("id_slot", NO_SLOTS),
        no_effect("response_fields", ALL_FIELDS),
        no_effect("samplers", FIXED_ORDER),
    ],
};
