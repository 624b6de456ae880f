//! Dynamo's parsers of reasoning, text and calls together.

use crate::collected::definitions;
use crate::meaning::{Call, Meaning};
use crate::{Rival, Text};
use dynamo_parsers_v2::{
    Tool, ToolCallDelta, UnifiedParserEvent, UnifiedParserInit, UnifiedParserOutput,
    UnifiedParserStartingState, create_tool_parser_for_family, create_unified_parser_for_family,
};

/// By dialect: the family's name there. (Theirs for harmony fetches its vocabulary when it is made, from a
/// place of its own.)
const UNIFIED: [(&str, &str); 4] = [
    ("qwen3-coder", "qwen3_coder"),
    ("kimi-k2", "kimi_k2"),
    ("glm", "glm47"),
    ("gemma 4", "gemma4"),
];

/// Those that leave reasoning in the text.
const CALLS_ONLY: [(&str, &str); 1] = [("minimax", "minimax_m2")];

struct Unified(&'static str);

struct CallsOnly(&'static str);

pub(crate) fn all() -> Vec<(&'static str, Box<dyn Rival>)> {
    let unified =
        UNIFIED.map(|(dialect, name)| (dialect, Box::new(Unified(name)) as Box<dyn Rival>));
    let calls =
        CALLS_ONLY.map(|(dialect, name)| (dialect, Box::new(CallsOnly(name)) as Box<dyn Rival>));
    unified.into_iter().chain(calls).collect()
}

impl Rival for Unified {
    fn read(&self, text: &Text, pieces: &mut dyn Iterator<Item = &str>) -> Result<Meaning, String> {
        let parser = create_unified_parser_for_family(self.0, &tools());
        let mut parser = parser.map_err(|e| e.to_string())?;
        let init = UnifiedParserInit {
            starting_state: match text.in_reasoning {
                true => UnifiedParserStartingState::Reasoning,
                false => UnifiedParserStartingState::None,
            },
            ..UnifiedParserInit::default()
        };
        parser.initialize_request(init).map_err(|e| e.to_string())?;
        let mut out = UnifiedParserOutput::default();
        for piece in pieces {
            parser
                .parse_into(piece, &mut out)
                .map_err(|e| e.to_string())?;
        }
        out.append(&mut parser.finish().map_err(|e| e.to_string())?);
        let mut all = Meaning::default();
        for event in out.events {
            match event {
                UnifiedParserEvent::Text(text) => {
                    all.text.push(' ');
                    all.text.push_str(&text);
                }
                UnifiedParserEvent::Reasoning(text) => all.reasoning.push_str(&text),
                UnifiedParserEvent::ToolCall(delta) => put(&mut all, delta),
                UnifiedParserEvent::MessageStart(_) | UnifiedParserEvent::MessageEnd => {}
            }
        }
        Ok(all)
    }
}

impl Rival for CallsOnly {
    fn read(&self, text: &Text, pieces: &mut dyn Iterator<Item = &str>) -> Result<Meaning, String> {
        let parser = create_tool_parser_for_family(self.0, &tools());
        let mut parser = parser.map_err(|e| e.to_string())?;
        let mut all = Meaning::default();
        let mut add = |result: dynamo_parsers_v2::ToolParseResult| {
            all.text.push_str(&result.normal_text);
            result
                .calls
                .into_iter()
                .for_each(|call| put(&mut all, call));
        };
        for piece in pieces {
            add(parser.push(piece).map_err(|e| e.to_string())?);
        }
        add(parser.finish().map_err(|e| e.to_string())?);
        // Somebody else takes the reasoning away before.
        if !text.ours.reasoning.is_empty() {
            if let Some((_, after)) = all.text.split_once("</think>") {
                all.text = after.to_owned();
            }
            all.reasoning.clone_from(&text.ours.reasoning);
        }
        Ok(all)
    }
}

fn put(all: &mut Meaning, delta: ToolCallDelta) {
    while all.calls.len() <= delta.tool_index {
        all.calls.push(Call::default());
    }
    let call = &mut all.calls[delta.tool_index];
    call.name
        .push_str(delta.name.as_deref().unwrap_or_default());
    call.arguments.push_str(&delta.arguments);
}

fn tools() -> Vec<Tool> {
    let tool = |tool: serde_json::Value| Tool {
        name: tool["function"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        description: None,
        parameters: tool["function"]["parameters"].clone(),
        strict: None,
    };
    definitions().into_iter().map(tool).collect()
}
