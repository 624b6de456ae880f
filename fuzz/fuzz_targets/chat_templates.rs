//! Any bytes are a chat template or a clear error, and any conversation is rendered or a clear error.
//!
//! The template goes up to the first zero byte; the text after that is the content of the messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use text::{ChatTemplate, Message, RenderInput, ToolFamily};

/// Bytes of a rendered prompt at most.
const PROMPT_BYTES_MAX: usize = 1 << 20;

fn message(role: &str, content: Value, rest: Value) -> Message {
    Message {
        role: role.to_owned(),
        content,
        rest: rest.as_object().cloned().unwrap_or_else(Map::new),
    }
}

fuzz_target!(
    init: {
        // The engine's panics are caught and become errors; a panic that is not caught still aborts.
        std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    },
    |input: &[u8]| {
        let mut parts = input.splitn(2, |&byte| byte == 0);
        let source = String::from_utf8_lossy(parts.next().unwrap_or_default());
        let content = String::from_utf8_lossy(parts.next().unwrap_or_default());
        let Ok(template) = ChatTemplate::new(&source, "<s>", "</s>") else {
            return;
        };
        let call = json!({"tool_calls": [{"id": "c1", "type": "function", "function": {
            "name": "get_weather", "arguments": {"city": content}
        }}]});
        let messages = [
            message("system", json!(content), json!({})),
            message("user", json!([{"type": "text", "text": content}]), json!({})),
            message("assistant", Value::Null, call),
            message("tool", json!(content), json!({"tool_call_id": "c1"})),
            message("user", json!(content), json!({})),
        ];
        let tools = [json!({"type": "function", "function": {
            "name": "get_weather", "description": content,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}
        }})];
        let kwargs = json!({"enable_thinking": content.is_empty()});
        let input = RenderInput {
            marks_stay: false,
            messages: &messages,
            tools: &tools,
            add_generation_prompt: true,
            kwargs: kwargs.as_object(),
            now_unix_s: 1_753_600_000,
            bytes_max: Some(PROMPT_BYTES_MAX),
        };
        if let Ok(prompt) = template.render(&input) {
            assert!(prompt.len() <= PROMPT_BYTES_MAX);
            assert_eq!(template.render(&input), Ok(prompt), "rendering is deterministic");
        }
        let format = text::AnswerFormat::detect(&source);
        assert!(ToolFamily::from_name(format.tools.name()) == Some(format.tools));
    }
);
