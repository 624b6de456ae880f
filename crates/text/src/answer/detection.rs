//! Detection of a model's family from the chat template and, where the template shows nothing, from the
//! vocabulary's tokens.

use super::model_family::{AnswerFormat, ReasoningFamily, ToolFamily};

/// Texts that must all occur, and the family that they identify.
type Sign<F> = (&'static [&'static str], F);

/// Signs of tool families in chat templates; the first match counts.
const OF_TEMPLATES: [Sign<ToolFamily>; 18] = [
    (&["<|channel|>", "<|message|>"], ToolFamily::Harmony),
    (&["<|tool_call>"], ToolFamily::Gemma),
    (&["<start_function_call>"], ToolFamily::Gemma),
    (&["[TOOL_CALLS]"], ToolFamily::Mistral),
    (&["<｜tool▁calls▁begin｜>"], ToolFamily::DeepSeek),
    (&["<|tool_calls_section_begin|>"], ToolFamily::KimiK2),
    (&["<minimax:tool_call>"], ToolFamily::MiniMax),
    (&["<arg_key>"], ToolFamily::Glm),
    (&["<function=", "<parameter="], ToolFamily::Qwen3Coder),
    (&["<|start_of_role|>"], ToolFamily::Granite),
    (&["<tool_call>"], ToolFamily::Hermes),
    (&["<|header_start|>"], ToolFamily::Llama4),
    (&["<|start_header_id|>", "tools"], ToolFamily::Llama3),
    (&["<|tool|>"], ToolFamily::Phi4),
    (&["<|/tool_call|>"], ToolFamily::Phi4),
    (&["functools"], ToolFamily::Phi4),
    (&["<start_of_turn>"], ToolFamily::Gemma),
    (&["tools"], ToolFamily::Json),
];

/// Signs of tool families in vocabularies; the first match counts. No other family uses these tokens.
const OF_TOKENS: [Sign<ToolFamily>; 13] = [
    (&["<|channel|>", "<|message|>"], ToolFamily::Harmony),
    (&["<|tool_call>"], ToolFamily::Gemma),
    (&["<start_function_call>"], ToolFamily::Gemma),
    (&["[TOOL_CALLS]"], ToolFamily::Mistral),
    (&["<｜tool▁calls▁begin｜>"], ToolFamily::DeepSeek),
    (&["<|tool_calls_section_begin|>"], ToolFamily::KimiK2),
    (&["<minimax:tool_call>"], ToolFamily::MiniMax),
    (&["<arg_key>"], ToolFamily::Glm),
    (&["<|start_of_role|>", "<|tool_call|>"], ToolFamily::Granite),
    (&["<tool_call>"], ToolFamily::Hermes),
    (&["<|python_start|>"], ToolFamily::Llama4),
    (&["<|python_tag|>"], ToolFamily::Llama3),
    (&["<|tool_call|>"], ToolFamily::Phi4),
];

/// Signs of reasoning families in chat templates.
const THOUGHTS_OF_TEMPLATES: [Sign<ReasoningFamily>; 5] = [
    (&["[THINK]"], ReasoningFamily::Mistral),
    (&["<|channel>"], ReasoningFamily::Gemma),
    (&["◁think▷"], ReasoningFamily::Kimi),
    (&["</think>"], ReasoningFamily::Think),
    (&["<think>"], ReasoningFamily::Think),
];

/// Signs of reasoning families in Granite's chat templates.
const THOUGHTS_OF_GRANITE: [Sign<ReasoningFamily>; 2] = [
    (&["thought process"], ReasoningFamily::Granite),
    (&["think"], ReasoningFamily::Granite),
];

/// Signs of reasoning families in vocabularies.
const THOUGHTS_OF_TOKENS: [Sign<ReasoningFamily>; 4] = [
    (&["[THINK]", "[/THINK]"], ReasoningFamily::Mistral),
    (&["<|channel>", "<channel|>"], ReasoningFamily::Gemma),
    (&["◁think▷", "◁/think▷"], ReasoningFamily::Kimi),
    (&["<think>", "</think>"], ReasoningFamily::Think),
];

impl AnswerFormat {
    /// The format that a chat template shows. Templates render the calls and reasoning of earlier turns, and
    /// models imitate what they were shown.
    pub fn detect(template: &str) -> Self {
        let has = |text: &str| template.contains(text);
        let tools = first(&OF_TEMPLATES, has).unwrap_or_default();
        let of_granite =
            || first(&THOUGHTS_OF_GRANITE, has).filter(|_| tools == ToolFamily::Granite);
        let reasoning = of_granite().or_else(|| first(&THOUGHTS_OF_TEMPLATES, has));
        Self {
            tools,
            reasoning: of_itself(tools, reasoning),
        }
    }

    /// This format, with missing families taken from the tokens of the vocabulary: for a model without a
    /// template, or with a template that shows nothing. `is_token` tests whether a text is a single token.
    #[must_use]
    pub fn or_from_vocabulary(self, is_token: impl Fn(&str) -> bool) -> Self {
        let tools = match self.tools {
            ToolFamily::None => first(&OF_TOKENS, &is_token).unwrap_or_default(),
            shown => shown,
        };
        let reasoning = match self.reasoning {
            ReasoningFamily::None => first(&THOUGHTS_OF_TOKENS, &is_token),
            shown => Some(shown),
        };
        Self {
            tools,
            reasoning: of_itself(tools, reasoning),
        }
    }
}

impl AnswerFormat {
    /// This format with bare JSON calls where no family is known: a model that gets its tools as prompt text
    /// is shown bare JSON, and its answers are parsed as such.
    #[must_use]
    pub fn with_json_fallback(self) -> Self {
        match self.tools {
            ToolFamily::None => Self {
                tools: ToolFamily::Json,
                ..self
            },
            _ => self,
        }
    }
}

/// The first sign whose texts all occur.
fn first<F: Copy>(signs: &[Sign<F>], has: impl Fn(&str) -> bool) -> Option<F> {
    let found = signs
        .iter()
        .find(|(texts, _)| texts.iter().all(|text| has(text)));
    found.map(|&(_, family)| family)
}

/// The reasoning family that goes with a tool family.
fn of_itself(tools: ToolFamily, reasoning: Option<ReasoningFamily>) -> ReasoningFamily {
    match (tools, reasoning.unwrap_or_default()) {
        // Harmony carries reasoning in channels.
        (ToolFamily::Harmony, _) => ReasoningFamily::None,
        (ToolFamily::Granite, ReasoningFamily::Think) => ReasoningFamily::Granite,
        (_, reasoning) => reasoning,
    }
}

#[cfg(test)]
mod tests;
