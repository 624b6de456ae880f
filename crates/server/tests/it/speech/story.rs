//! What an answer says, whichever dialect says it.

use crate::support::framing::Event;
use serde_json::Value;
use std::collections::BTreeMap;

/// A call: id, name, arguments.
pub(crate) type Call = (String, String, Value);

/// What an answer says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Story {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
    /// How it ended, in the dialect's word.
    pub(crate) end: String,
}

/// The same, with arguments as they come.
#[derive(Default)]
struct Telling {
    story: Story,
    calls: BTreeMap<u64, (String, String, String)>,
}

impl Telling {
    fn start(&mut self, index: u64, call: &Value) {
        let text = |name: &str| call[name].as_str().expect("a call has a name").to_owned();
        let call = (text("id"), text("name"), String::new());
        self.calls.insert(index, call);
    }

    fn args(&mut self, index: u64, fragment: &Value) {
        let fragment = fragment.as_str().expect("arguments are text");
        let call = self.calls.get_mut(&index).expect("it has begun");
        call.2.push_str(fragment);
    }

    fn told(mut self) -> Story {
        for (id, name, args) in self.calls.into_values() {
            let args = serde_json::from_str(&args).unwrap_or(Value::String(args));
            self.story.calls.push((id, name, args));
        }
        self.story
    }
}

fn push(to: &mut String, text: &Value) {
    to.push_str(text.as_str().unwrap_or_default());
}

/// The JSON of events, `[DONE]` and comments left out.
fn frames(events: &[Event]) -> impl Iterator<Item = Value> {
    events.iter().filter_map(|event| match event {
        Event::Data { data, .. } if data != "[DONE]" => {
            Some(serde_json::from_str(data).expect("JSON"))
        }
        _ => None,
    })
}

/// OpenAI's chat.
pub(crate) fn chat(events: &[Event]) -> Story {
    let mut telling = Telling::default();
    for frame in frames(events) {
        let choice = &frame["choices"][0];
        let delta = &choice["delta"];
        push(&mut telling.story.text, &delta["content"]);
        push(&mut telling.story.reasoning, &delta["reasoning_content"]);
        push(&mut telling.story.end, &choice["finish_reason"]);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().expect("a call has an index");
            if call["type"] == "function" {
                let mut named = call["function"].clone();
                named["id"] = call["id"].clone();
                telling.start(index, &named);
            }
            telling.args(index, &call["function"]["arguments"]);
        }
    }
    telling.told()
}

/// A job, whose figures add up.
pub(crate) fn job(events: &[Event]) -> Story {
    let (mut telling, mut next) = (Telling::default(), 0);
    for frame in frames(events) {
        let index = frame["call"].as_u64().unwrap_or(0);
        match frame["type"].as_str().expect("a type") {
            "token" if frame["kind"] == "reasoning" => {
                push(&mut telling.story.reasoning, &frame["t"]);
            }
            "token" => push(&mut telling.story.text, &frame["t"]),
            "tool_call" => telling.start(index, &frame),
            "tool_args" => telling.args(index, &frame["t"]),
            "end" => push(&mut telling.story.end, &frame["stop_reason"]),
            _ => {}
        }
        if let Some(i) = frame["i"].as_u64() {
            assert_eq!(i, next, "{frame}");
            next = i + frame["n"].as_u64().unwrap_or(1);
        }
    }
    telling.told()
}

/// Anthropic's messages. What opens a block may be told again.
pub(crate) fn messages(events: &[Event]) -> Story {
    let mut telling = Telling::default();
    let mut kinds = BTreeMap::new();
    for frame in frames(events) {
        let index = frame["index"].as_u64();
        let (block, delta) = (&frame["content_block"], &frame["delta"]);
        match frame["type"].as_str().expect("a type") {
            "content_block_start" => {
                let index = index.expect("an index");
                kinds.insert(index, block["type"].clone());
                if block["type"] == "tool_use" {
                    telling.start(index, block);
                }
            }
            "content_block_delta" => {
                let index = index.expect("an index");
                let (kind, _) = (&kinds[&index], ());
                match delta["type"].as_str().expect("a type") {
                    "text_delta" if kind == "text" => {
                        push(&mut telling.story.text, &delta["text"]);
                    }
                    "thinking_delta" if kind == "thinking" => {
                        push(&mut telling.story.reasoning, &delta["thinking"]);
                    }
                    "signature_delta" if kind == "thinking" => {}
                    "input_json_delta" if kind == "tool_use" => {
                        telling.args(index, &delta["partial_json"]);
                    }
                    other => panic!("{other} in a block of {kind}"),
                }
            }
            "message_delta" => push(&mut telling.story.end, &delta["stop_reason"]),
            _ => {}
        }
    }
    let indices: Vec<u64> = kinds.into_keys().collect();
    assert!(
        indices.iter().copied().eq(0..indices.len() as u64),
        "blocks are counted: {indices:?}"
    );
    telling.told()
}

/// Responses. What begins an item, but a call, may be told again; its last event tells everything.
pub(crate) fn responses(events: &[Event]) -> Story {
    let mut telling = Telling::default();
    let mut last = Value::Null;
    for frame in frames(events) {
        let index = || frame["output_index"].as_u64().expect("an index");
        let (delta, item) = (&frame["delta"], &frame["item"]);
        match frame["type"].as_str().expect("a type") {
            "response.output_text.delta" => push(&mut telling.story.text, delta),
            "response.reasoning_text.delta" => push(&mut telling.story.reasoning, delta),
            "response.output_item.added" if item["type"] == "function_call" => {
                let mut named = item.clone();
                named["id"] = item["call_id"].clone();
                telling.start(index(), &named);
            }
            "response.function_call_arguments.delta" => telling.args(index(), delta),
            "response.completed" | "response.incomplete" | "response.failed" => {
                push(&mut telling.story.end, &frame["response"]["status"]);
                last = frame["response"]["output"].clone();
            }
            _ => {}
        }
    }
    let told = telling.told();
    let said = |kind: &str| -> String {
        let items = last.as_array().into_iter().flatten();
        let items = items.filter(|item| item["type"] == kind);
        let texts = items.map(|item| item["content"][0]["text"].as_str().expect("text"));
        texts.collect()
    };
    assert_eq!(
        (said("message"), said("reasoning")),
        (told.text.clone(), told.reasoning.clone())
    );
    told
}

/// Ollama's chat, whose calls are whole.
pub(crate) fn ollama(events: &[Event]) -> Story {
    let mut story = Story::default();
    for frame in frames(events) {
        let message = &frame["message"];
        push(&mut story.text, &message["content"]);
        push(&mut story.reasoning, &message["thinking"]);
        push(&mut story.end, &frame["done_reason"]);
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            assert!(function["arguments"].is_object(), "{frame}");
            story.calls.push((
                text(&call["id"]),
                text(&function["name"]),
                function["arguments"].clone(),
            ));
        }
    }
    story
}
