//! The table of dialects: how each is asked, and how its text is told.

use serde_json::{Value, json};

/// One wire format.
pub(crate) struct Dialect {
    /// As `?dialect=` has it.
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    /// Turns a request, as OpenAI's chat has it, into its own.
    pub(crate) shape: fn(&mut Value),
    /// What stands before the text of each piece of an answer.
    pub(crate) piece: &'static str,
    /// Asks for log-probabilities, where it has them.
    pub(crate) logprobs: Option<fn(&mut Value)>,
    /// It can be asked for several answers.
    pub(crate) several: bool,
    /// It can be asked for counts; otherwise they are always told.
    pub(crate) counts: bool,
}

/// All there are.
pub(crate) static DIALECTS: [Dialect; 10] = [
    Dialect {
        name: "ai-sdk.ui",
        path: "/v1/ai-sdk/chat",
        shape: into_parts,
        piece: "\"type\":\"text-delta\"",
        logprobs: None,
        several: false,
        counts: false,
    },
    Dialect {
        name: "openai.chat",
        path: "/v1/chat/completions",
        shape: |_| {},
        piece: "\"delta\":{\"content\":\"",
        logprobs: Some(|body| {
            body["logprobs"] = json!(true);
            body["top_logprobs"] = json!(1);
        }),
        several: true,
        counts: true,
    },
    Dialect {
        name: "openai.completions",
        path: "/v1/completions",
        shape: into_prompt,
        piece: "\"text\":\"hel",
        logprobs: Some(|body| body["logprobs"] = json!(1)),
        several: true,
        counts: true,
    },
    Dialect {
        name: "openai.responses",
        path: "/v1/responses",
        shape: |body| {
            rename(body, "messages", "input");
            rename(body, "max_tokens", "max_output_tokens");
        },
        piece: "\"delta\":\"hel",
        logprobs: Some(|body| {
            body["include"] = json!(["message.output_text.logprobs"]);
            body["top_logprobs"] = json!(1);
        }),
        several: false,
        counts: false,
    },
    Dialect {
        name: "anthropic.messages",
        path: "/v1/messages",
        shape: |body| rename(body, "stop", "stop_sequences"),
        piece: "\"type\":\"text_delta\"",
        logprobs: None,
        several: false,
        counts: false,
    },
    Dialect {
        name: "ollama.chat",
        path: "/api/chat",
        shape: into_options,
        piece: "\"content\":\"hel",
        logprobs: Some(logprobs_of_ollama),
        several: false,
        counts: false,
    },
    Dialect {
        name: "ollama.generate",
        path: "/api/generate",
        shape: |body| {
            into_prompt(body);
            into_options(body);
        },
        piece: "\"response\":\"hel",
        logprobs: Some(logprobs_of_ollama),
        several: false,
        counts: false,
    },
    Dialect {
        name: "llama.completion",
        path: "/completion",
        shape: |body| {
            into_prompt(body);
            rename(body, "max_tokens", "n_predict");
            body["top_k"] = json!(0);
        },
        piece: "\"content\":\"hel",
        logprobs: Some(|body| body["n_probs"] = json!(1)),
        several: false,
        counts: false,
    },
    Dialect {
        name: "llama.infill",
        path: "/infill",
        shape: into_gap,
        piece: "\"content\":\"hel",
        logprobs: None,
        several: false,
        counts: false,
    },
    Dialect {
        name: "native.job",
        path: "/v1/inference",
        shape: into_prompt,
        piece: "\"t\":\"hel",
        logprobs: None,
        several: false,
        counts: false,
    },
];

fn rename(body: &mut Value, from: &str, to: &str) {
    let fields = body.as_object_mut().expect("a body");
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

/// The last message alone.
fn into_prompt(body: &mut Value) {
    let fields = body.as_object_mut().expect("a body");
    let messages = fields.remove("messages").expect("messages");
    fields.insert("prompt".to_owned(), messages[0]["content"].clone());
}

/// What says how the answer is made is among the options; and Ollama's defaults are not OpenAI's.
fn into_options(body: &mut Value) {
    rename(body, "max_tokens", "num_predict");
    let mut options = json!({"repeat_penalty": 1});
    for name in ["temperature", "stop", "logit_bias", "num_predict"] {
        if let Some(value) = body.as_object_mut().expect("a body").remove(name) {
            options[name] = value;
        }
    }
    body["options"] = options;
}

/// The prompt before a gap with nothing behind it; llama.cpp's defaults are not OpenAI's.
fn into_gap(body: &mut Value) {
    into_prompt(body);
    rename(body, "prompt", "input_prefix");
    rename(body, "max_tokens", "n_predict");
    body["input_suffix"] = json!("");
    body["top_k"] = json!(0);
}

fn logprobs_of_ollama(body: &mut Value) {
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(1);
}

/// Messages of the AI SDK have parts.
fn into_parts(body: &mut Value) {
    for message in body["messages"].as_array_mut().into_iter().flatten() {
        let text = message["content"].take();
        message["parts"] = json!([{"type": "text", "text": text}]);
    }
}
