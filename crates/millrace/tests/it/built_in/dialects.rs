//! The dialects, as far as these tests speak them.

use serde_json::{Value, json};

/// What an answer says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// Names and arguments.
    pub(crate) calls: Vec<(String, Value)>,
}

/// One of them.
pub(crate) struct Dialect {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    /// A request in its words; ours are OpenAI's, and `thinking`.
    pub(crate) spelled: fn(&Value) -> Value,
    /// What a whole answer says.
    pub(crate) whole: fn(&Value) -> Said,
    /// The text that one event or line adds.
    delta: fn(&Value) -> &Value,
    /// Whether it writes lines, not events.
    lines: bool,
}

/// `body` with these fields too.
pub(crate) fn with(body: &Value, fields: Value) -> Value {
    let mut body = body.clone();
    if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
        body.extend(fields);
    }
    body
}

/// The likeliest tokens, and enough of them.
fn plain(body: &Value) -> Value {
    let mut body = with(body, json!({"temperature": 0, "max_tokens": 600}));
    if let Some(thinking) = body
        .as_object_mut()
        .and_then(|body| body.remove("thinking"))
    {
        body["chat_template_kwargs"] = json!({"enable_thinking": thinking});
    }
    body
}

fn anthropic(body: &Value) -> Value {
    let mut body = with(body, json!({"temperature": 0, "max_tokens": 1600}));
    let fields = body.as_object_mut().unwrap();
    if let Some(stop) = fields.remove("stop") {
        fields.insert("stop_sequences".to_owned(), stop);
    }
    if fields.remove("thinking").is_some() {
        // With thoughts, Anthropic's own temperature is 1: the likeliest token alone is left by other means.
        fields.remove("temperature");
        fields.insert("top_k".to_owned(), json!(1));
        fields.insert(
            "thinking".to_owned(),
            json!({"type": "enabled", "budget_tokens": 1024}),
        );
    }
    if let Some(tools) = fields.remove("tools") {
        let own = |tool: &Value| {
            let function = &tool["function"];
            json!({"name": function["name"], "description": function["description"], "input_schema": function["parameters"]})
        };
        let tools: Vec<_> = tools.as_array().unwrap().iter().map(own).collect();
        fields.insert("tools".to_owned(), json!(tools));
    }
    body
}

fn ollama(body: &Value) -> Value {
    let mut options = json!({"temperature": 0, "num_predict": 600, "repeat_penalty": 1});
    let mut body = with(body, json!({}));
    let fields = body.as_object_mut().unwrap();
    if let Some(stop) = fields.remove("stop") {
        options["stop"] = stop;
    }
    if let Some(thinking) = fields.remove("thinking") {
        fields.insert("think".to_owned(), thinking);
    }
    with(&body, json!({"options": options, "model": "millrace-mini"}))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Calls in a list of OpenAI's, whose arguments are text, or Ollama's, whose are not.
fn calls(list: &Value) -> Vec<(String, Value)> {
    let calls = list.as_array().into_iter().flatten();
    calls
        .map(|call| {
            let function = if call["function"].is_object() {
                &call["function"]
            } else {
                call
            };
            let arguments = match &function["arguments"] {
                Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
                other => other.clone(),
            };
            (text(&function["name"]), arguments)
        })
        .collect()
}

pub(crate) static DIALECTS: [Dialect; 4] = [
    Dialect {
        name: "OpenAI's",
        path: "/v1/chat/completions",
        spelled: plain,
        whole: |whole| {
            let message = &whole["choices"][0]["message"];
            Said {
                text: text(&message["content"]),
                reasoning: text(&message["reasoning_content"]),
                calls: calls(&message["tool_calls"]),
            }
        },
        delta: |event| &event["choices"][0]["delta"]["content"],
        lines: false,
    },
    Dialect {
        name: "Anthropic's",
        path: "/v1/messages",
        spelled: anthropic,
        whole: |whole| {
            let mut said = Said::default();
            for block in whole["content"].as_array().into_iter().flatten() {
                said.text += block["text"].as_str().unwrap_or_default();
                said.reasoning += block["thinking"].as_str().unwrap_or_default();
                if block["type"] == "tool_use" {
                    said.calls
                        .push((text(&block["name"]), block["input"].clone()));
                }
            }
            said
        },
        delta: |event| &event["delta"]["text"],
        lines: false,
    },
    Dialect {
        name: "Ollama's",
        path: "/api/chat",
        spelled: ollama,
        whole: |whole| {
            let message = &whole["message"];
            Said {
                text: text(&message["content"]),
                reasoning: text(&message["thinking"]),
                calls: calls(&message["tool_calls"]),
            }
        },
        delta: |line| &line["message"]["content"],
        lines: true,
    },
    Dialect {
        name: "jobs'",
        path: "/v1/inference",
        spelled: plain,
        whole: |whole| Said {
            text: text(&whole["text"]),
            reasoning: text(&whole["reasoning"]),
            calls: calls(&whole["tool_calls"]),
        },
        delta: |event| match event["kind"].as_str() {
            Some("reasoning") => &Value::Null,
            _ if event["type"] == "token" => &event["t"],
            _ => &Value::Null,
        },
        lines: false,
    },
];

/// A reply's body, its chunks put together.
pub(crate) fn body_of(reply: &str) -> String {
    let (head, mut rest) = reply.split_once("\r\n\r\n").expect("a head");
    if !head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        return rest.to_owned();
    }
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        body += &after[..size];
        rest = after[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    body
}

/// The JSON of each event or line, with the place after it.
fn parts<'a>(dialect: &Dialect, body: &'a str) -> Vec<(&'a str, Value, Option<String>)> {
    let end = if dialect.lines { "\n" } else { "\n\n" };
    let part = |part: &'a str| {
        let field = |name: &str| part.lines().find_map(|line| line.strip_prefix(name));
        let data = if dialect.lines {
            part.trim()
        } else {
            field("data: ")?
        };
        let value: Value = serde_json::from_str(data).ok()?;
        let place = value["cursor"]
            .as_str()
            .or(field("id: "))
            .map(str::to_owned);
        Some((part, value, place))
    };
    body.split_inclusive(end).filter_map(part).collect()
}

/// The text of a stream.
pub(crate) fn streamed(dialect: &Dialect, body: &str) -> String {
    let parts = parts(dialect, body);
    let texts = parts
        .iter()
        .filter_map(|(_, value, _)| (dialect.delta)(value).as_str());
    texts.collect()
}

/// A stream's first half, and the place where it ends.
pub(crate) fn cut(dialect: &Dialect, body: &str) -> (String, String) {
    let parts = parts(dialect, body);
    let half = &parts[..parts.len() / 2];
    let upto = half
        .iter()
        .rposition(|(_, _, place)| place.is_some())
        .expect("a place");
    let before = half[..=upto].iter().map(|(part, _, _)| *part).collect();
    (before, half[upto].2.clone().expect("it has one"))
}
