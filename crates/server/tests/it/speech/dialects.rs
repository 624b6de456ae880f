//! The dialects that can say all of it.

use super::story::{self, Story};
use crate::support::framing::{self, Event, Why};
use crate::support::named::set_fields;
use serde_json::{Value, json};

/// One of them.
pub(crate) struct Dialect {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    /// The tools of a request, from OpenAI's shape to its own.
    pub(crate) tools: fn(&Value) -> Value,
    pub(crate) events: fn(&str) -> Result<Vec<Event>, Why>,
    pub(crate) frame_end: &'static str,
    pub(crate) story: fn(&[Event]) -> Story,
    /// What a whole answer says.
    pub(crate) whole: fn(&Value) -> Story,
    /// Its word for an answer that calls tools, and for one that was cut short.
    pub(crate) calls: &'static str,
    pub(crate) length: &'static str,
}

impl Dialect {
    /// A request whose answer will be this script.
    pub(crate) fn body(&self, script: &str, over: &Value) -> Value {
        let mut body = json!({
            "messages": [{"role": "user", "content": script}],
            "input": [{"role": "user", "content": script}],
            "tools": (self.tools)(&tools()), "max_tokens": 900, "temperature": 0, "seed": 7,
            "options": {"temperature": 0, "num_predict": 900, "repeat_penalty": 1},
        });
        set_fields(&mut body, over);
        body
    }

    /// The whole events at the beginning of a body.
    pub(crate) fn before_the_cut(&self, body: &str) -> Vec<Event> {
        let end = body.rfind(self.frame_end);
        let end = end.map_or(0, |at| at + self.frame_end.len());
        (self.events)(&body[..end]).expect("whole events")
    }
}

/// What the model may call, in OpenAI's shape.
pub(crate) fn tools() -> Value {
    let weather = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer", "minimum": 0, "maximum": 9},
    }, "required": ["city"], "additionalProperties": false});
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    json!([
        {"type": "function", "function": {"name": "weather", "description": "w", "parameters": weather}},
        {"type": "function", "function": {"name": "now", "parameters": none}},
    ])
}

fn into_schemas(tools: &Value) -> Value {
    each(
        tools,
        |function| json!({"name": function["name"], "input_schema": function["parameters"]}),
    )
}

fn into_flat(tools: &Value) -> Value {
    each(
        tools,
        |function| json!({"type": "function", "name": function["name"], "parameters": function["parameters"]}),
    )
}

/// Each tool so, and strict where it is that.
fn each(tools: &Value, tool: impl Fn(&Value) -> Value) -> Value {
    let tools = tools.as_array().expect("a list").iter();
    tools
        .map(|given| {
            let mut tool = tool(&given["function"]);
            if let Some(strict) = given["function"].get("strict") {
                tool["strict"] = strict.clone();
            }
            tool
        })
        .collect()
}

/// What a whole response says.
fn of_response(whole: &Value) -> Story {
    let mut story = Story {
        end: text(&whole["status"]),
        ..Story::default()
    };
    for item in whole["output"].as_array().expect("output") {
        match item["type"].as_str().expect("a type") {
            "message" => story.text += &text(&item["content"][0]["text"]),
            "reasoning" => story.reasoning += &text(&item["content"][0]["text"]),
            _ => {
                let args = text(&item["arguments"]);
                let args = serde_json::from_str(&args).unwrap_or(Value::String(args));
                story
                    .calls
                    .push((text(&item["call_id"]), text(&item["name"]), args));
            }
        }
    }
    story
}

pub(crate) static DIALECTS: [Dialect; 5] = [
    Dialect {
        name: "openai.chat",
        path: "/v1/chat/completions",
        tools: Value::clone,
        events: framing::sse,
        frame_end: "\n\n",
        story: story::chat,
        whole: |whole| {
            let message = &whole["choices"][0]["message"];
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            Story {
                text: text(&message["content"]),
                reasoning: text(&message["reasoning_content"]),
                calls: calls
                    .map(|call| {
                        let function = &call["function"];
                        let args = text(&function["arguments"]);
                        let args = serde_json::from_str(&args).unwrap_or(Value::String(args));
                        (text(&call["id"]), text(&function["name"]), args)
                    })
                    .collect(),
                end: text(&whole["choices"][0]["finish_reason"]),
            }
        },
        calls: "tool_calls",
        length: "length",
    },
    Dialect {
        name: "native.job",
        path: "/v1/inference",
        tools: Value::clone,
        events: framing::sse,
        frame_end: "\n\n",
        story: story::job,
        whole: |whole| {
            let calls = whole["tool_calls"].as_array().into_iter().flatten();
            Story {
                text: text(&whole["text"]),
                reasoning: text(&whole["reasoning"]),
                calls: calls
                    .map(|call| {
                        let args = text(&call["arguments"]);
                        let args = serde_json::from_str(&args).unwrap_or(Value::String(args));
                        (text(&call["id"]), text(&call["name"]), args)
                    })
                    .collect(),
                end: text(&whole["stop_reason"]),
            }
        },
        calls: "EOS",
        length: "MAX_TOKENS",
    },
    Dialect {
        name: "anthropic.messages",
        path: "/v1/messages",
        tools: into_schemas,
        events: framing::sse,
        frame_end: "\n\n",
        story: story::messages,
        whole: |whole| {
            let mut story = Story {
                end: text(&whole["stop_reason"]),
                ..Story::default()
            };
            for block in whole["content"].as_array().expect("content") {
                match block["type"].as_str().expect("a type") {
                    "text" => story.text += &text(&block["text"]),
                    "thinking" => story.reasoning += &text(&block["thinking"]),
                    _ => story.calls.push((
                        text(&block["id"]),
                        text(&block["name"]),
                        block["input"].clone(),
                    )),
                }
            }
            story
        },
        calls: "tool_use",
        length: "max_tokens",
    },
    Dialect {
        name: "openai.responses",
        path: "/v1/responses",
        tools: into_flat,
        events: framing::sse,
        frame_end: "\n\n",
        story: story::responses,
        whole: of_response,
        calls: "completed",
        length: "incomplete",
    },
    Dialect {
        name: "ollama.chat",
        path: "/api/chat",
        tools: Value::clone,
        events: framing::lines,
        frame_end: "\n",
        story: story::ollama,
        whole: |whole| {
            let line = Event::Data {
                id: None,
                name: None,
                data: whole.to_string(),
            };
            story::ollama(&[line])
        },
        calls: "stop",
        length: "length",
    },
];

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
