//! Every route that takes a JSON body and does not change which models there are, with a body that is well-formed.

use serde_json::Value;

/// A route and the text of a body for it.
pub(super) struct Route {
    pub(super) path: &'static str,
    body: &'static str,
}

impl Route {
    /// A body that is well-formed.
    pub(super) fn body(&self) -> Value {
        serde_json::from_str(self.body).expect("JSON in the table")
    }
}

const fn route(path: &'static str, body: &'static str) -> Route {
    Route { path, body }
}

/// Text generation first, then what computes something else.
pub(super) const ROUTES: &[Route] = &[
    route(
        "/v1/chat/completions",
        r#"{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "n": 1, "temperature": 1,
            "top_p": 1, "seed": 1, "stop": ["x"], "stream": false, "logprobs": false, "logit_bias": {}, "tools": [],
            "response_format": {"type": "text"}, "stream_options": null}"#,
    ),
    route(
        "/v1/completions",
        r#"{"prompt": "hi", "max_tokens": 2, "n": 1, "best_of": 1, "echo": false, "logprobs": 0, "suffix": null, "stop": "x"}"#,
    ),
    route(
        "/v1/responses",
        r#"{"input": "hi", "max_output_tokens": 16, "store": false, "instructions": "x", "tools": [], "text": {},
            "reasoning": {}, "previous_response_id": null}"#,
    ),
    route("/v1/responses/input_tokens", r#"{"input": "hi"}"#),
    route(
        "/v1/messages",
        r#"{"model": "fake", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}], "system": "x",
            "stop_sequences": ["x"], "tools": [], "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}}"#,
    ),
    route(
        "/v1/messages/count_tokens",
        r#"{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "system": "x"}"#,
    ),
    route(
        "/api/chat",
        r#"{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 2},
            "stream": false, "format": "", "keep_alive": "5m", "think": false, "tools": []}"#,
    ),
    route(
        "/api/generate",
        r#"{"model": "fake", "prompt": "hi", "options": {"num_predict": 2}, "stream": false, "context": [97],
            "template": "{{ .Prompt }}", "system": "x", "raw": false, "suffix": "", "images": []}"#,
    ),
    route(
        "/v1/inference",
        r#"{"prompt": "hi", "max_tokens": 2, "stream": false, "temperature": 1, "metadata": {}}"#,
    ),
    route(
        "/completion",
        r#"{"prompt": ["hi", 97], "n_predict": 2, "stream": false, "stop": ["x"], "return_tokens": true, "n_probs": 1,
            "logit_bias": [[97, 1]], "timings_per_token": false}"#,
    ),
    route(
        "/infill",
        r#"{"input_prefix": "hi", "input_suffix": "x", "prompt": "a", "input_extra": [{"filename": "f", "text": "b"}],
            "n_predict": 2, "stream": false, "stop": ["x"], "return_tokens": true}"#,
    ),
    route("/v1/jobs", r#"{"prompt": "hi", "max_tokens": 2}"#),
    route(
        "/v1/embeddings",
        r#"{"input": ["hi"], "encoding_format": "float", "dimensions": 4}"#,
    ),
    route(
        "/api/embed",
        r#"{"model": "fake", "input": ["hi"], "truncate": true}"#,
    ),
    route("/api/embeddings", r#"{"model": "fake", "prompt": "hi"}"#),
    route("/api/show", r#"{"model": "fake", "verbose": false}"#),
    route("/tokenize", r#"{"content": "hi", "add_special": true}"#),
    route("/detokenize", r#"{"tokens": [97, 98]}"#),
    route(
        "/apply-template",
        r#"{"messages": [{"role": "user", "content": "hi"}]}"#,
    ),
];
