//! smg's parsers: one of reasoning, and what it leaves as text to one of calls.

use crate::collected::definitions;
use crate::meaning::{Call, Meaning};
use crate::{Rival, Text};
use openai_protocol::common::Tool;
use tool_parser::types::ToolCallItem;

/// By dialect: the names that smg's gateway gives them.
const NAMES: [(&str, &str, &str); 14] = [
    ("hermes", "qwen3", "qwen"),
    ("qwen3-coder", "qwen3", "qwen_xml"),
    ("llama3", "base", "llama"),
    ("llama4", "base", "pythonic"),
    ("mistral", "base", "mistral"),
    ("mistral before v11", "base", "mistral"),
    ("deepseek v3", "deepseek_v31", "deepseek"),
    ("deepseek v3.1", "deepseek_v31", "deepseek31"),
    ("kimi-k2", "kimi_k25", "kimik2"),
    ("kimi-vl", "kimi", "kimik2"),
    ("glm", "glm45", "glm45_moe"),
    ("minimax", "base", "minimax_m2"),
    ("gemma 4", "gemma4", "gemma4"),
    ("json", "base", "json"),
];

struct Smg {
    reasoning: &'static str,
    tools: &'static str,
}

pub(crate) fn all() -> Vec<(&'static str, Box<dyn Rival>)> {
    let rival = |(dialect, reasoning, tools)| {
        let rival: Box<dyn Rival> = Box::new(Smg { reasoning, tools });
        (dialect, rival)
    };
    NAMES.into_iter().map(rival).collect()
}

impl Rival for Smg {
    fn read(&self, text: &Text, pieces: &mut dyn Iterator<Item = &str>) -> Result<Meaning, String> {
        let reasoning = reasoning_parser::ParserFactory::new();
        let mut reasoning = reasoning
            .registry()
            .create_parser(self.reasoning)
            .ok_or("no such parser of reasoning")?;
        let calls = tool_parser::ParserFactory::new();
        let mut calls = calls
            .registry()
            .create_parser(self.tools)
            .ok_or("no such parser of calls")?;
        let tools: Vec<Tool> = definitions()
            .into_iter()
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?;
        if text.in_reasoning {
            reasoning.mark_reasoning_started();
            reasoning.mark_think_start_stripped();
        }
        let mut all = Meaning::default();
        let first = pieces.next().unwrap_or_default();
        if first.len() == text.text.len() {
            let parsed = reasoning.detect_and_parse_reasoning(first);
            let parsed = parsed.map_err(|e| e.to_string())?;
            all.reasoning = parsed.reasoning_text;
            let whole = calls.parse_complete_with_tools(&parsed.normal_text, &tools);
            let (text, made) = now(whole).map_err(|e| e.to_string())?;
            all.text = text;
            all.calls.extend(made.into_iter().map(|call| Call {
                name: call.function.name,
                arguments: call.function.arguments,
            }));
            return Ok(all);
        }
        for piece in std::iter::once(first).chain(pieces) {
            let parsed = reasoning.parse_reasoning_streaming_incremental(piece);
            let parsed = parsed.map_err(|e| e.to_string())?;
            all.reasoning.push_str(&parsed.reasoning_text);
            if !parsed.normal_text.is_empty() {
                let more = now(calls.parse_incremental(&parsed.normal_text, &tools));
                add(&mut all, more.map_err(|e| e.to_string())?);
            }
        }
        let rest = reasoning.flush().map_err(|e| e.to_string())?;
        all.reasoning.push_str(&rest.reasoning_text);
        if !rest.normal_text.is_empty() {
            let more = now(calls.parse_incremental(&rest.normal_text, &tools));
            add(&mut all, more.map_err(|e| e.to_string())?);
        }
        let items = calls.get_unstreamed_tool_args().unwrap_or_default();
        items.into_iter().for_each(|item| put(&mut all, item));
        all.text.push_str(&calls.take_unstreamed_normal_text());
        Ok(all)
    }
}

fn add(all: &mut Meaning, more: tool_parser::StreamingParseResult) {
    all.text.push_str(&more.normal_text);
    more.calls.into_iter().for_each(|item| put(all, item));
}

fn put(all: &mut Meaning, item: ToolCallItem) {
    while all.calls.len() <= item.tool_index {
        all.calls.push(Call::default());
    }
    let call = &mut all.calls[item.tool_index];
    call.name.push_str(item.name.as_deref().unwrap_or_default());
    call.arguments.push_str(&item.parameters);
}

/// Their parsers are futures that wait for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}
