//! The rows of the field tables. Sources: the request types of `openai`, `anthropic` and `ollama` for Python and
//! JavaScript, in the versions that `cargo xtask clients` pins.

use super::{FieldRow, FieldTable, Treatment};

pub(super) const fn honored(name: &'static str) -> FieldRow {
    honored_but(name, "")
}

/// A field that is honored, except for values that the parser rejects.
const fn honored_but(name: &'static str, words: &'static str) -> FieldRow {
    let treatment = Treatment::Honored(words);
    FieldRow { name, treatment }
}

pub(super) const fn no_effect(name: &'static str, reason: &'static str) -> FieldRow {
    let treatment = Treatment::NoEffect(reason);
    FieldRow { name, treatment }
}

pub(super) const fn rejected(
    name: &'static str,
    accepted: &'static [&'static str],
    instead: &'static str,
) -> FieldRow {
    let treatment = Treatment::Rejected { accepted, instead };
    FieldRow { name, treatment }
}

pub(super) const CACHES_ALONE: &str = "prefixes are always cached";
const ACCOUNTING: &str = "for the caller's own accounting";
const NOT_BILLED: &str = "requests are not billed";
const HINT: &str = "a hint about speed";
const LOADING: &str = "the operator configures how models are loaded";

/// `/v1/chat/completions`.
pub const CHAT: FieldTable = FieldTable {
    rows: &[
        rejected("audio", &[], ""),
        honored("frequency_penalty"),
        rejected(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        rejected("functions", &["[]"], "use tools"),
        honored("logit_bias"),
        honored("logprobs"),
        honored("max_completion_tokens"),
        honored("max_tokens"),
        honored("messages"),
        honored("metadata"),
        rejected("modalities", &["[\"text\"]", "[]"], "answers are text"),
        honored("model"),
        rejected("moderation", &[], "moderation is not available"),
        honored("n"),
        honored("parallel_tool_calls"),
        no_effect("prediction", HINT),
        honored("presence_penalty"),
        no_effect("prompt_cache_key", CACHES_ALONE),
        no_effect("prompt_cache_options", CACHES_ALONE),
        no_effect("prompt_cache_retention", CACHES_ALONE),
        honored("reasoning_effort"),
        honored("response_format"),
        no_effect("safety_identifier", ACCOUNTING),
        honored("seed"),
        honored("service_tier"),
        honored("stop"),
        honored("store"),
        honored("stream"),
        honored("stream_options"),
        honored("temperature"),
        honored("tool_choice"),
        honored("tools"),
        honored("top_logprobs"),
        honored("top_p"),
        no_effect("user", ACCOUNTING),
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
        honored("return_token_ids"),
        honored("timings_per_token"),
        honored("truncate_prompt_tokens"),
        rejected("use_beam_search", &["false"], ""),
    ],
};

/// `/v1/completions`.
pub const COMPLETIONS: FieldTable = FieldTable {
    rows: &[
        honored("best_of"),
        honored("echo"),
        honored("frequency_penalty"),
        honored("logit_bias"),
        honored("logprobs"),
        honored("max_tokens"),
        honored("model"),
        honored("n"),
        honored("presence_penalty"),
        honored("prompt"),
        honored("seed"),
        honored("stop"),
        honored("stream"),
        honored("stream_options"),
        honored("suffix"),
        honored("temperature"),
        honored("top_p"),
        no_effect("user", ACCOUNTING),
        // Fields of chat completions, vLLM and llama.cpp.
        rejected("audio", &[], ""),
        rejected(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        rejected("functions", &["[]"], "use tools"),
        rejected("prompt_embeds", &[], ""),
        rejected("prompt_logprobs", &["0"], "use echo and logprobs"),
        honored("return_token_ids"),
        honored("timings_per_token"),
        honored("truncate_prompt_tokens"),
        rejected("use_beam_search", &["false"], ""),
    ],
};

/// `/v1/responses` and `/v1/responses/input_tokens`.
pub const RESPONSES: FieldTable = FieldTable {
    rows: &[
        no_effect("access_programs", "models are not assigned to programs"),
        honored("background"),
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
        no_effect("image", "parts other than text are rejected"),
        honored_but(
            "include",
            "only `message.output_text.logprobs` adds anything",
        ),
        honored("input"),
        honored("instructions"),
        honored("max_output_tokens"),
        no_effect(
            "max_tool_calls",
            "limits calls of built-in tools, which are rejected",
        ),
        honored("metadata"),
        honored("model"),
        rejected("moderation", &[], "moderation is not available"),
        honored("parallel_tool_calls"),
        rejected("personality", &[], "use instructions"),
        honored("previous_response_id"),
        rejected("prompt", &[], "use instructions and input"),
        no_effect("prompt_cache_key", CACHES_ALONE),
        no_effect("prompt_cache_options", CACHES_ALONE),
        no_effect("prompt_cache_retention", CACHES_ALONE),
        honored("reasoning"),
        no_effect("safety_identifier", ACCOUNTING),
        honored("service_tier"),
        honored("store"),
        honored("stream"),
        honored("stream_options"),
        honored("temperature"),
        honored("text"),
        honored("tool_choice"),
        honored("tools"),
        honored("top_logprobs"),
        honored("top_p"),
        honored("truncation"),
        no_effect("user", ACCOUNTING),
        // Fields of chat completions.
        rejected("audio", &[], ""),
        rejected("best_of", &["1"], ""),
        rejected(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        rejected("functions", &["[]"], "use tools"),
    ],
};

/// `/v1/messages` and `/v1/messages/count_tokens`.
pub const MESSAGES: FieldTable = FieldTable {
    rows: &[
        no_effect("betas", "clients send this field as a header"),
        no_effect("billing_policy", NOT_BILLED),
        no_effect("cache_control", CACHES_ALONE),
        rejected("compaction", &[], "conversations are not summarized"),
        rejected("container", &["{}", "[]"], ""),
        honored_but(
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
        honored("max_tokens"),
        rejected("mcp_servers", &["[]"], ""),
        honored("messages"),
        no_effect("metadata", ACCOUNTING),
        honored("model"),
        honored("output_config"),
        honored("output_format"),
        honored("service_tier"),
        no_effect("speed", HINT),
        honored("stop_sequences"),
        honored("stream"),
        honored("system"),
        honored("temperature"),
        honored("thinking"),
        // Rejected with a separate error code: see `message_request`.
        rejected("thread", &[], "send the whole conversation without it"),
        honored("tool_choice"),
        honored("tools"),
        honored("top_k"),
        honored("top_p"),
        no_effect("user_profile_id", "clients send this field as a header"),
        no_effect("workspace_id", "clients send this field as a header"),
        // Fields of OpenAI's protocols.
        rejected("best_of", &["1"], ""),
    ],
};

/// `/v1/embeddings`.
pub const EMBEDDINGS: FieldTable = FieldTable {
    rows: &[
        honored("dimensions"),
        honored("encoding_format"),
        honored("input"),
        honored("model"),
        no_effect("user", ACCOUNTING),
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
        honored("documents"),
        rejected(
            "max_tokens_per_doc",
            &[],
            "documents are truncated to the context",
        ),
        honored("model"),
        honored("query"),
        rejected("rank_fields", &[], "documents have one text"),
        honored("return_documents"),
        honored("top_n"),
        no_effect("user", ACCOUNTING),
    ],
};

/// `/api/chat`.
pub const OLLAMA_CHAT: FieldTable = FieldTable {
    rows: &[
        honored("format"),
        honored("keep_alive"),
        honored("logprobs"),
        honored("messages"),
        honored("model"),
        honored("options"),
        honored("stream"),
        honored("think"),
        honored("tools"),
        honored("top_logprobs"),
        rejected("images", &["[]"], ""),
        no_effect("shift", "an answer ends where the context does"),
        honored("truncate"),
    ],
};

/// `/api/generate`.
pub const OLLAMA_GENERATE: FieldTable = FieldTable {
    rows: &[
        honored("context"),
        honored("format"),
        rejected("height", &["0"], "images are not generated"),
        rejected("images", &["[]"], ""),
        honored("keep_alive"),
        honored("logprobs"),
        honored("model"),
        honored("options"),
        honored("prompt"),
        honored("raw"),
        rejected("steps", &["0"], "images are not generated"),
        honored("stream"),
        honored("suffix"),
        honored("system"),
        honored("template"),
        honored("think"),
        honored("top_logprobs"),
        rejected("width", &["0"], "images are not generated"),
        no_effect("shift", "an answer ends where the context does"),
        honored("truncate"),
    ],
};

/// `/api/embed`.
pub const OLLAMA_EMBED: FieldTable = FieldTable {
    rows: &[
        honored("dimensions"),
        honored("input"),
        honored("keep_alive"),
        honored("model"),
        no_effect("options", LOADING),
        honored("truncate"),
    ],
};

/// `/api/embeddings`.
pub const OLLAMA_EMBEDDINGS: FieldTable = FieldTable {
    rows: &[
        honored("keep_alive"),
        honored("model"),
        no_effect("options", LOADING),
        honored("prompt"),
    ],
};

/// `/v1/inference` and `/v1/jobs`. The protocol is this server's own, so only rejected fields have rows.
pub const JOBS: FieldTable = FieldTable {
    rows: &[
        rejected("audio", &[], ""),
        rejected("best_of", &["1"], "use /v1/completions"),
        rejected(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        rejected("functions", &["[]"], "use tools"),
    ],
};
