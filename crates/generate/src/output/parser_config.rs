//! How the output parser reads an answer: where reasoning is, and where tool calls are.

use crate::constraint::harmony::HarmonyHeaders;
use crate::constraint::reasoning_budget::TokenDelimiters;
use crate::constraint::text_delimiters::TextDelimiters;
use crate::tools::ToolCalling;
use std::sync::Arc;
use stream::StreamId;
use text::{AnswerFormat, AnswerParser, ReasoningFamily, Tokenizer, ToolFamily, ToolSchemas};

/// Digits of a call's id, after the prefix.
const CALL_ID_DIGITS: usize = 24;
/// Length of ids of Mistral's calls: Mistral's templates reject others.
const CALL_ID_DIGITS_MISTRAL: usize = 9;

/// How an answer is parsed. By default all text is content.
#[derive(Clone, Debug, Default)]
pub struct ParserConfig {
    format: AnswerFormat,
    /// Tools of the request, where the answer may call them.
    tools: Option<Arc<ToolSchemas>>,
    /// The prompt ends within reasoning.
    in_reasoning: bool,
    /// Control tokens with texts that the parser needs, sorted.
    shown: Arc<[u32]>,
    /// Delimiters of reasoning that are single tokens.
    marks: Option<TokenDelimiters>,
    /// Delimiters of reasoning that are text.
    spelled: Option<TextDelimiters>,
    /// Headers of Harmony channels.
    channels: Option<HarmonyHeaders>,
    /// Whether the answer may call tools in the model's own syntax.
    calls: bool,
    /// Tool calls are required, and all other text is dropped.
    calls_only: bool,
    /// The answer has a response format.
    structured_output: bool,
    /// Stop strings that end the turn: those of the chat template.
    turn_ends: &'static [&'static str],
}

/// Options of a request that change the syntax of answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParseOptions {
    /// How the answer may call tools.
    pub tool_calling: ToolCalling,
    /// Whether the request has a response format.
    pub structured_output: bool,
}

impl ParserConfig {
    /// The configuration of an answer to a conversation with this rendered prompt and these tools in OpenAI's shape.
    pub fn new(
        format: AnswerFormat,
        tools: &[serde_json::Value],
        prompt: &str,
        tokenizer: &Tokenizer,
        wanted: ParseOptions,
    ) -> Self {
        let marks = TokenDelimiters::find(format, prompt, tokenizer);
        let tools = (!tools.is_empty()).then(|| Arc::new(ToolSchemas::new(tools)));
        let in_channels = format.tools == ToolFamily::Harmony;
        let must = wanted.tool_calling.required;
        let channels = in_channels.then(|| HarmonyHeaders::find(prompt, tokenizer, must));
        let channels = channels.flatten();
        let calls = match format.tools {
            _ if must && channels.is_none() => ToolFamily::Json,
            // With unknown headers, a response format leaves no room for channels. Without a response format an answer is in
            // channels, with tools and without.
            ToolFamily::Harmony if wanted.structured_output && channels.is_none() => {
                ToolFamily::None
            }
            ToolFamily::Harmony => ToolFamily::Harmony,
            family if tools.is_some() => family,
            _ => ToolFamily::None,
        };
        let spelled = match marks {
            None if !in_channels => TextDelimiters::find(format, prompt, tokenizer),
            _ => None,
        };
        // An answer with a response format from the first token on has no reasoning.
        let thinks = !wanted.structured_output || marks.is_some() || spelled.is_some();
        let format = AnswerFormat {
            tools: calls,
            reasoning: if thinks {
                format.reasoning
            } else {
                ReasoningFamily::None
            },
        };
        Self {
            format,
            calls: tools.is_some() && !must,
            calls_only: must,
            structured_output: wanted.structured_output,
            tools,
            in_reasoning: format.opens_reasoning(prompt),
            shown: format.visible_control_ids(tokenizer).into(),
            marks,
            spelled,
            channels,
            turn_ends: &[],
        }
    }

    /// This configuration with the stop strings of a chat template.
    #[must_use]
    pub fn with_turn_ends(self, turn_ends: &'static [&'static str]) -> Self {
        Self { turn_ends, ..self }
    }

    /// Indices of the stop strings that end the turn.
    pub fn turn_ends(&self, stops: &[String]) -> Vec<u16> {
        let ends_turn = |&index: &u16| self.turn_ends.contains(&&*stops[usize::from(index)]);
        let count = u16::try_from(stops.len()).unwrap_or(u16::MAX);
        (0..count).filter(ends_turn).collect()
    }

    /// A parser at the beginning of an answer.
    pub fn parser(&self) -> AnswerParser {
        let parser = AnswerParser::new(self.format, self.tools.as_ref(), self.in_reasoning);
        match (self.calls_only, self.structured_output) {
            (true, _) => parser.calls_only(),
            (false, true) => parser.without_bare_calls(),
            (false, false) => parser,
        }
    }

    /// Control tokens with texts that the parser needs, sorted.
    pub fn shown(&self) -> &Arc<[u32]> {
        &self.shown
    }

    /// Delimiters of reasoning that are single tokens.
    pub fn marks(&self) -> Option<&TokenDelimiters> {
        self.marks.as_ref()
    }

    /// Delimiters of reasoning that are text.
    pub fn spelled(&self) -> Option<&TextDelimiters> {
        self.spelled.as_ref()
    }

    /// Headers of Harmony channels.
    pub fn channels(&self) -> Option<&HarmonyHeaders> {
        self.channels.as_ref()
    }

    /// Whether the answer may call tools in the model's own syntax.
    pub fn calls(&self) -> bool {
        self.calls
    }

    /// Ids for the calls of one answer of a stream.
    pub fn call_ids(&self, stream: StreamId, choice: usize) -> CallIds {
        CallIds {
            stream,
            choice,
            is_mistral: self.format.tools == ToolFamily::Mistral,
        }
    }
}

/// Ids for the tool calls of one answer: unique, and equal in every replay.
#[derive(Clone, Copy, Debug)]
pub struct CallIds {
    stream: StreamId,
    choice: usize,
    is_mistral: bool,
}

impl CallIds {
    /// Appends the id of this call.
    pub fn write(&self, index: u32, out: &mut String) {
        let of = format!("{} {} {index}", self.stream, self.choice);
        let digits = blake3::hash(of.as_bytes()).to_hex();
        if self.is_mistral {
            return out.push_str(&digits[..CALL_ID_DIGITS_MISTRAL]);
        }
        out.push_str("call_");
        out.push_str(&digits[..CALL_ID_DIGITS]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use testing::small_vocabulary::tokenizer;

    #[test]
    fn tool_calls_are_parsed_only_with_tools() {
        let format = AnswerFormat::detect("<tool_call> <think> tools");
        let tool = json!({"type": "function", "function": {"name": "f"}});
        for (tools, prompt, calls, thinks) in [
            (&[][..], "x", ToolFamily::None, false),
            (&[tool.clone()][..], "x", ToolFamily::Hermes, false),
            (&[tool][..], "x<think>\n", ToolFamily::Hermes, true),
        ] {
            let reading =
                ParserConfig::new(format, tools, prompt, &tokenizer(), ParseOptions::default());
            assert_eq!(
                (reading.format.tools, reading.in_reasoning),
                (calls, thinks),
                "{prompt}"
            );
        }
    }

    #[test]
    fn call_ids_are_unique_and_stable() {
        let id = |stream: u8, choice, index, is_mistral| {
            let stream = StreamId::from_random([stream; 16]);
            let mut id = String::new();
            let ids = CallIds {
                stream,
                choice,
                is_mistral,
            };
            ids.write(index, &mut id);
            id
        };
        assert_eq!(id(1, 0, 0, false), id(1, 0, 0, false));
        let all = [
            id(1, 0, 0, false),
            id(2, 0, 0, false),
            id(1, 1, 0, false),
            id(1, 0, 1, false),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(one.starts_with("call_") && one.len() == 29, "{one}");
            assert!(!all[..i].contains(one), "{one}");
        }
        let short = id(1, 0, 0, true);
        assert!(short.len() == 9 && short.bytes().all(|b| b.is_ascii_alphanumeric()));
    }
}
