//! Requests whose continuation needs state: random numbers, a grammar, tool calls, a reasoning budget, held-back text.

use serde_json::{Value, json};

/// A request, and the route that takes it.
pub(crate) struct Request {
    pub(crate) case: &'static str,
    pub(crate) path: &'static str,
    pub(crate) body: Value,
    /// A control update after the first tokens.
    pub(crate) update: Option<Value>,
    /// Whether the stream is paused over one restart.
    pub(crate) is_paused: bool,
}

impl Request {
    /// A request with these fields more, whose answer is streamed.
    pub(crate) fn streamed(
        (case, path, mut body): (&'static str, &'static str, Value),
        fields: Value,
    ) -> Self {
        body["stream"] = json!(true);
        if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
            body.extend(fields);
        }
        Self {
            case,
            path,
            body,
            update: None,
            is_paused: false,
        }
    }

    fn chat(case: &'static str, text: &str, fields: Value) -> Self {
        let body = json!({
            "messages": [{"role": "user", "content": text}], "seed": 3, "max_tokens": 44,
            "stream_options": {"include_usage": true},
        });
        Self::streamed((case, "/v1/chat/completions", body), fields)
    }
}

const STORY: &str = "Tell me a story about a fox.";

fn weather_tool() -> Value {
    let parameters = json!({
        "type": "object", "required": ["city"], "additionalProperties": false,
        "properties": {"city": {"type": "string", "maxLength": 40}},
    });
    json!([{"type": "function", "function": {
        "name": "get_weather", "description": "The weather in a city", "strict": true, "parameters": parameters,
    }}])
}

fn schema() -> Value {
    let schema = json!({
        "type": "object", "required": ["name", "age", "tags"], "additionalProperties": false,
        "properties": {
            "name": {"type": "string", "minLength": 12, "maxLength": 30},
            "age": {"type": "integer", "minimum": 100, "maximum": 999},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 2, "maxItems": 3},
        },
    });
    json!({"type": "json_schema", "json_schema": {"name": "fox", "strict": true, "schema": schema}})
}

/// Every request with its own kind of state.
pub(crate) fn all_requests() -> Vec<Request> {
    let hot = json!({"temperature": 1.2, "top_p": 0.95, "frequency_penalty": 0.5, "repetition_penalty": 1.1});
    let thinking = json!({
        "chat_template_kwargs": {"enable_thinking": true}, "thinking_token_budget": 20, "temperature": 0.7,
    });
    let stops =
        json!({"stop": ["corner of the worlds", " fox who knew"], "temperature": 0.9, "n": 2});
    let mut requests = vec![
        Request::chat("greedy", STORY, json!({"temperature": 0})),
        Request::chat("sampled, n = 2", STORY, json!({"temperature": 0.9, "n": 2})),
        Request::chat("hot with penalties", STORY, hot),
        Request::chat(
            "schema",
            STORY,
            json!({"response_format": schema(), "temperature": 1}),
        ),
        Request::chat(
            "tool call",
            "What is the weather in Paris?",
            json!({"tools": weather_tool(), "tool_choice": "required", "temperature": 0.5}),
        ),
        Request::chat(
            "log-probabilities",
            STORY,
            json!({"logprobs": true, "top_logprobs": 3, "temperature": 0.9}),
        ),
        Request::chat("stop strings", STORY, stops),
        Request::chat("reasoning", "What is 23 + 45?", thinking),
    ];
    let mut steered = Request::chat("steered", STORY, json!({"temperature": 0.9}));
    steered.update = Some(json!({"temperature": 1.5, "text": " and then it rained"}));
    requests.push(steered);
    let mut paused = Request::chat("paused", STORY, json!({"temperature": 0.9}));
    paused.is_paused = true;
    requests.push(paused);
    let echoed =
        json!({"prompt": "Once upon a time", "echo": true, "logprobs": 2, "max_tokens": 30});
    let row = ("prompt log-probabilities", "/v1/completions", echoed);
    requests.push(Request::streamed(row, json!({"seed": 5})));
    requests
}

/// A plain request in every wire protocol.
pub(crate) fn in_every_protocol() -> Vec<Request> {
    let messages = json!([{"role": "user", "content": STORY}]);
    let ui = json!([{"id": "1", "role": "user", "parts": [{"type": "text", "text": STORY}]}]);
    let options = json!({"num_predict": 30, "seed": 3, "temperature": 0.8});
    let rows = [
        (
            "openai.completions",
            "/v1/completions",
            json!({"prompt": "Once upon", "max_tokens": 30, "seed": 3}),
        ),
        (
            "openai.responses",
            "/v1/responses",
            json!({"input": STORY, "max_output_tokens": 30, "store": false}),
        ),
        (
            "anthropic.messages",
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 30, "model": "millrace-mini", "seed": 3}),
        ),
        (
            "native.job",
            "/v1/inference",
            json!({"messages": messages, "max_tokens": 30, "seed": 3}),
        ),
        (
            "ollama.chat",
            "/api/chat",
            json!({"messages": messages, "model": "millrace-mini", "options": options}),
        ),
        (
            "ollama.generate",
            "/api/generate",
            json!({"prompt": STORY, "model": "millrace-mini", "options": options}),
        ),
        (
            "ai-sdk.ui",
            "/v1/ai-sdk/chat",
            json!({"messages": ui, "max_tokens": 30, "seed": 3}),
        ),
    ];
    let request = |row| Request::streamed(row, json!({"seed": 3}));
    rows.into_iter().map(request).collect()
}
