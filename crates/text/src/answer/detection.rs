//! Which family a model is of: what its chat template shows, and where that shows nothing the tokens of its vocabulary.

use super::family::{AnswerFormat, ReasoningFamily, ToolFamily};

/// Texts that stand together, and whose they are.
type Sign<F> = (&'static [&'static str], F);

/// What a template holds, and whose calls those are; the first that fits.
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

/// Which tokens a vocabulary has, and whose calls those are; the first that fits. They are tokens that nothing else is
/// written with.
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

/// The same of reasoning, in templates.
const THOUGHTS_OF_TEMPLATES: [Sign<ReasoningFamily>; 5] = [
    (&["[THINK]"], ReasoningFamily::Mistral),
    (&["<|channel>"], ReasoningFamily::Gemma),
    (&["◁think▷"], ReasoningFamily::Kimi),
    (&["</think>"], ReasoningFamily::Think),
    (&["<think>"], ReasoningFamily::Think),
];

/// In Granite's templates.
const THOUGHTS_OF_GRANITE: [Sign<ReasoningFamily>; 2] = [
    (&["thought process"], ReasoningFamily::Granite),
    (&["think"], ReasoningFamily::Granite),
];

/// And in vocabularies.
const THOUGHTS_OF_TOKENS: [Sign<ReasoningFamily>; 4] = [
    (&["[THINK]", "[/THINK]"], ReasoningFamily::Mistral),
    (&["<|channel>", "<channel|>"], ReasoningFamily::Gemma),
    (&["◁think▷", "◁/think▷"], ReasoningFamily::Kimi),
    (&["<think>", "</think>"], ReasoningFamily::Think),
];

impl AnswerFormat {
    /// What a chat template tells of it: templates show how calls and thoughts of earlier turns are
    /// written, and models write as they are shown.
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

    /// The same, with what it leaves open as the tokens of the model's vocabulary tell: for a model without a
    /// template, or one whose template is silent. `is_token`: whether this text is a token of its own.
    #[must_use]
    pub fn or_of_tokens(self, is_token: impl Fn(&str) -> bool) -> Self {
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
    /// The same where nothing shows how calls are written: a model that is told of tools in the conversation's text is
    /// shown bare JSON, and so it is read.
    #[must_use]
    pub fn for_any_template(self) -> Self {
        match self.tools {
            ToolFamily::None => Self {
                tools: ToolFamily::Json,
                ..self
            },
            _ => self,
        }
    }
}

/// The first whose texts are all there.
fn first<F: Copy>(signs: &[Sign<F>], has: impl Fn(&str) -> bool) -> Option<F> {
    let found = signs
        .iter()
        .find(|(texts, _)| texts.iter().all(|text| has(text)));
    found.map(|&(_, family)| family)
}

/// Reasoning as a family that calls so writes it.
fn of_itself(tools: ToolFamily, reasoning: Option<ReasoningFamily>) -> ReasoningFamily {
    match (tools, reasoning.unwrap_or_default()) {
        // Its channels say it.
        (ToolFamily::Harmony, _) => ReasoningFamily::None,
        (ToolFamily::Granite, ReasoningFamily::Think) => ReasoningFamily::Granite,
        (_, reasoning) => reasoning,
    }
}

#[cfg(test)]
mod tests;
