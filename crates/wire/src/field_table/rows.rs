//! The tables. Sources: the request types of `openai`, `anthropic` and `ollama` for Python and JavaScript, in the
//! versions that `cargo xtask clients` pins.

use super::{FieldRow, FieldTable, Treatment};

const fn honored(name: &'static str) -> FieldRow {
    honored_but(name, "")
}

/// Honored, with values that the parser refuses.
const fn honored_but(name: &'static str, words: &'static str) -> FieldRow {
    let treatment = Treatment::Honored(words);
    FieldRow { name, treatment }
}

const fn no_effect(name: &'static str, reason: &'static str) -> FieldRow {
    let treatment = Treatment::NoEffect(reason);
    FieldRow { name, treatment }
}

const fn refused(
    name: &'static str,
    accepted: &'static [&'static str],
    instead: &'static str,
) -> FieldRow {
    let treatment = Treatment::Refused { accepted, instead };
    FieldRow { name, treatment }
}

const CACHES_ALONE: &str = "prefixes are cached without being asked";
const ACCOUNTING: &str = "for the caller's own accounting";
const NOT_BILLED: &str = "nobody is billed here";
const HINT: &str = "a hint about speed";
const LOADING: &str = "how a model is loaded is the operator's";

/// `/v1/chat/completions`.
pub const CHAT: FieldTable = FieldTable {
    rows: &[
        refused("audio", &[], ""),
        honored("frequency_penalty"),
        refused(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        refused("functions", &["[]"], "use tools"),
        honored("logit_bias"),
        honored("logprobs"),
        honored("max_completion_tokens"),
        honored("max_tokens"),
        honored("messages"),
        no_effect("metadata", ACCOUNTING),
        refused("modalities", &["[\"text\"]", "[]"], "answers are text"),
        honored("model"),
        refused("moderation", &[], "nothing here moderates"),
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
        no_effect("store", "chat completions are not kept; responses are"),
        honored("stream"),
        honored("stream_options"),
        honored("temperature"),
        honored("tool_choice"),
        honored("tools"),
        honored("top_logprobs"),
        honored("top_p"),
        no_effect("user", ACCOUNTING),
        no_effect("verbosity", "a hint about length"),
        refused("web_search_options", &[], "nothing here searches the web"),
        // vLLM's and llama.cpp's.
        refused("add_generation_prompt", &["true"], ""),
        refused(
            "best_of",
            &["1"],
            "use n here, or best_of in /v1/completions",
        ),
        refused("chat_template", &[], "the template is the model's"),
        refused("continue_final_message", &["false"], "use /v1/messages"),
        refused("documents", &["[]"], "put them into messages"),
        refused("echo", &["false"], "use /v1/completions"),
        refused("prompt_logprobs", &["0"], "use echo in /v1/completions"),
        refused("use_beam_search", &["false"], ""),
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
        refused("suffix", &["\"\""], ""),
        honored("temperature"),
        honored("top_p"),
        no_effect("user", ACCOUNTING),
        // Of chat, vLLM and llama.cpp.
        refused("audio", &[], ""),
        refused(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        refused("functions", &["[]"], "use tools"),
        refused("prompt_embeds", &[], ""),
        refused("prompt_logprobs", &["0"], "use echo and logprobs"),
        refused("use_beam_search", &["false"], ""),
    ],
};

/// `/v1/responses` and `/v1/responses/input_tokens`.
pub const RESPONSES: FieldTable = FieldTable {
    rows: &[
        no_effect("access_programs", "no model here belongs to a program"),
        honored("background"),
        no_effect(
            "background_options",
            "background responses begin when there is room",
        ),
        refused(
            "context_management",
            &["[]"],
            "nothing here compacts a conversation",
        ),
        refused("conversation", &[], "use previous_response_id"),
        no_effect("image", "parts that are no text are refused"),
        honored_but(
            "include",
            "only `message.output_text.logprobs` adds anything",
        ),
        honored("input"),
        honored("instructions"),
        honored("max_output_tokens"),
        no_effect(
            "max_tool_calls",
            "it counts calls of built-in tools, which are refused",
        ),
        honored("metadata"),
        honored("model"),
        refused("moderation", &[], "nothing here moderates"),
        honored("parallel_tool_calls"),
        refused("personality", &[], "use instructions"),
        honored("previous_response_id"),
        refused("prompt", &[], "use instructions and input"),
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
        honored_but("truncation", "`auto` is refused"),
        no_effect("user", ACCOUNTING),
        // Of chat.
        refused("audio", &[], ""),
        refused("best_of", &["1"], ""),
        refused(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        refused("functions", &["[]"], "use tools"),
    ],
};

/// `/v1/messages` and `/v1/messages/count_tokens`.
pub const MESSAGES: FieldTable = FieldTable {
    rows: &[
        no_effect("betas", "a client sends it as a header"),
        no_effect("billing_policy", NOT_BILLED),
        no_effect("cache_control", CACHES_ALONE),
        refused("compaction", &[], "nothing here summarizes a conversation"),
        refused("container", &["{}", "[]"], ""),
        honored_but(
            "context_management",
            "edits that clear have no effect, as nothing is ever cleared; edits that compact are refused",
        ),
        no_effect("diagnostics", "an answer without them is one that has none"),
        no_effect("fallback_credit_token", NOT_BILLED),
        no_effect(
            "fallbacks",
            "no model here declines by a policy of the server",
        ),
        no_effect("inference_geo", "a server computes where it runs"),
        honored("max_tokens"),
        refused("mcp_servers", &["[]"], ""),
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
        // With a code of its own: see `message_request`.
        refused("thread", &[], "send the whole conversation without it"),
        honored("tool_choice"),
        honored("tools"),
        honored("top_k"),
        honored("top_p"),
        no_effect("user_profile_id", "a client sends it as a header"),
        no_effect("workspace_id", "a client sends it as a header"),
        // Of OpenAI's formats.
        refused("best_of", &["1"], ""),
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
        // vLLM's.
        refused("messages", &[], "use input"),
        refused(
            "truncate_prompt_tokens",
            &[],
            "use /api/embed with truncate",
        ),
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
        refused("images", &["[]"], ""),
        no_effect("shift", "an answer ends where the context does"),
        no_effect("truncate", "a conversation that is too long is a 400"),
    ],
};

/// `/api/generate`.
pub const OLLAMA_GENERATE: FieldTable = FieldTable {
    rows: &[
        honored("context"),
        honored("format"),
        refused("height", &["0"], "images are not made here"),
        refused("images", &["[]"], ""),
        honored("keep_alive"),
        honored("logprobs"),
        honored("model"),
        honored("options"),
        honored("prompt"),
        honored("raw"),
        refused("steps", &["0"], "images are not made here"),
        honored("stream"),
        refused("suffix", &["\"\""], ""),
        honored("system"),
        honored("template"),
        honored("think"),
        honored("top_logprobs"),
        refused("width", &["0"], "images are not made here"),
        no_effect("shift", "an answer ends where the context does"),
        no_effect("truncate", "a prompt that is too long is a 400"),
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

/// `/v1/inference` and `/v1/jobs`. The format is this server's own: only what it refuses has a row.
pub const JOBS: FieldTable = FieldTable {
    rows: &[
        refused("audio", &[], ""),
        refused("best_of", &["1"], "use /v1/completions"),
        refused(
            "function_call",
            &["\"none\"", "\"auto\""],
            "use tool_choice",
        ),
        refused("functions", &["[]"], "use tools"),
    ],
};
