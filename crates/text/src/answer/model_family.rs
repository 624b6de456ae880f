//! Families of models by the syntax of their answers, and the detection of a model's family from the chat template and,
//! where the template shows nothing, from the vocabulary's tokens.

#[cfg(test)]
mod tests;

use super::family_syntax;
use super::family_syntax::{FamilySyntax, ReasoningDelimiters};
use crate::Tokenizer;

/// Syntax of tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolFamily {
    /// No tool calls: all output is content.
    #[default]
    None,
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`: Hermes, Qwen 2.5 and 3, and many more.
    Hermes,
    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>`: Qwen3-Coder, Qwen 3.5.
    Qwen3Coder,
    /// `{"name": .., "parameters": {..}}`, after `<|python_tag|>` or bare; `<function=NAME>{..}</function>`.
    Llama3,
    /// `[name(key=value)]`.
    Llama4,
    /// `[TOOL_CALLS]`, old and new.
    Mistral,
    /// V3, R1, V3.1.
    DeepSeek,
    /// Phi-4 mini.
    Phi4,
    /// Granite 3 and 4.
    Granite,
    /// Kimi K2.
    KimiK2,
    /// GLM-4.5 and later.
    Glm,
    /// MiniMax M2.
    MiniMax,
    /// Gemma 3 (fences), 4, FunctionGemma.
    Gemma,
    /// gpt-oss: Harmony channels. Reasoning comes in a channel too, so the reasoning family is ignored.
    Harmony,
    /// Bare JSON, for models without a call syntax of their own.
    Json,
}

/// Syntax of reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningFamily {
    /// No reasoning: all output is content.
    #[default]
    None,
    /// `<think>`.
    Think,
    /// `[THINK]`.
    Mistral,
    /// `<think>` or "Here is my thought process:".
    Granite,
    /// `<|channel>thought`.
    Gemma,
    /// `◁think▷`: Kimi before K2.
    Kimi,
}

/// Syntax of a model's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerFormat {
    /// Syntax of tool calls.
    pub tools: ToolFamily,
    /// Syntax of reasoning.
    pub reasoning: ReasoningFamily,
}

/// A family, its name, and its syntax.
type FamilyRow<F, S> = (F, &'static str, Option<&'static S>);

static TOOLS: [FamilyRow<ToolFamily, FamilySyntax>; 15] = [
    (ToolFamily::None, "none", None),
    (ToolFamily::Hermes, "hermes", Some(&family_syntax::HERMES)),
    (
        ToolFamily::Qwen3Coder,
        "qwen3-coder",
        Some(&family_syntax::QWEN3_CODER),
    ),
    (ToolFamily::Llama3, "llama3", Some(&family_syntax::LLAMA3)),
    (ToolFamily::Llama4, "llama4", Some(&family_syntax::LLAMA4)),
    (
        ToolFamily::Mistral,
        "mistral",
        Some(&family_syntax::MISTRAL),
    ),
    (
        ToolFamily::DeepSeek,
        "deepseek",
        Some(&family_syntax::DEEPSEEK),
    ),
    (ToolFamily::Phi4, "phi4", Some(&family_syntax::PHI4)),
    (
        ToolFamily::Granite,
        "granite",
        Some(&family_syntax::GRANITE),
    ),
    (ToolFamily::KimiK2, "kimi-k2", Some(&family_syntax::KIMI_K2)),
    (ToolFamily::Glm, "glm", Some(&family_syntax::GLM)),
    (
        ToolFamily::MiniMax,
        "minimax",
        Some(&family_syntax::MINIMAX),
    ),
    (ToolFamily::Gemma, "gemma", Some(&family_syntax::GEMMA)),
    (ToolFamily::Harmony, "harmony", None),
    (ToolFamily::Json, "json", Some(&family_syntax::JSON)),
];

static THOUGHTS: [FamilyRow<ReasoningFamily, ReasoningDelimiters>; 6] = [
    (ReasoningFamily::None, "none", None),
    (ReasoningFamily::Think, "think", Some(&family_syntax::THINK)),
    (
        ReasoningFamily::Mistral,
        "mistral",
        Some(&family_syntax::BRACKETS),
    ),
    (
        ReasoningFamily::Granite,
        "granite",
        Some(&family_syntax::GRANITE_THOUGHTS),
    ),
    (
        ReasoningFamily::Gemma,
        "gemma",
        Some(&family_syntax::CHANNEL),
    ),
    (
        ReasoningFamily::Kimi,
        "kimi",
        Some(&family_syntax::TRIANGLES),
    ),
];

impl ToolFamily {
    /// All families by name.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        TOOLS.iter().map(|&(family, name, _)| (name, family))
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all()
            .find(|(known, _)| *known == name)
            .map(|row| row.1)
    }

    /// The name of this family.
    pub fn name(self) -> &'static str {
        row_of(&TOOLS, self).1
    }

    pub(super) fn syntax(self) -> Option<&'static FamilySyntax> {
        row_of(&TOOLS, self).2
    }
}

impl ReasoningFamily {
    /// All families by name.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        THOUGHTS.iter().map(|&(family, name, _)| (name, family))
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all()
            .find(|(known, _)| *known == name)
            .map(|row| row.1)
    }

    /// The name of this family.
    pub fn name(self) -> &'static str {
        row_of(&THOUGHTS, self).1
    }

    pub(super) fn thoughts(self) -> Option<&'static ReasoningDelimiters> {
        row_of(&THOUGHTS, self).2
    }
}

/// The row of a family. The first row is that of no family.
fn row_of<F: Copy + PartialEq, S: 'static>(rows: &[FamilyRow<F, S>], family: F) -> FamilyRow<F, S> {
    *rows.iter().find(|row| row.0 == family).unwrap_or(&rows[0])
}

impl AnswerFormat {
    /// Whether the prompt ends inside a reasoning block that the template opened.
    pub fn opens_reasoning(self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        let thoughts = self.reasoning.thoughts();
        thoughts.is_some_and(|thoughts| thoughts.opens.iter().any(|open| prompt.ends_with(open)))
    }

    /// Whether the prompt ends with a reasoning block that the template closed.
    pub fn closes_reasoning(self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        let thoughts = self.reasoning.thoughts();
        thoughts.is_some_and(|thoughts| thoughts.closes.iter().any(|close| prompt.ends_with(close)))
    }

    /// Single tokens that open reasoning, and the single token that closes reasoning; `None` where no single
    /// token closes reasoning.
    pub fn reasoning_token_ids(self, tokenizer: &Tokenizer) -> Option<(Vec<u32>, u32)> {
        let thoughts = self.reasoning.thoughts()?;
        let id = |text: &&str| tokenizer.id_of(text);
        let close = thoughts.closes.iter().find_map(id)?;
        Some((thoughts.opens.iter().filter_map(id).collect(), close))
    }

    /// Texts that open reasoning, and texts that close reasoning; equal indices belong together.
    pub fn reasoning_delimiters(
        self,
    ) -> Option<(&'static [&'static str], &'static [&'static str])> {
        let thoughts = self.reasoning.thoughts()?;
        Some((thoughts.opens, thoughts.closes))
    }

    /// Control tokens that the [`AnswerParser`](super::AnswerParser) needs as text, sorted. The decoder
    /// otherwise drops the text of control tokens.
    pub fn visible_control_ids(self, tokenizer: &Tokenizer) -> Vec<u32> {
        let mut ids: Vec<u32> = self
            .texts()
            .into_iter()
            .filter_map(|text| tokenizer.id_of(text))
            .filter(|&id| tokenizer.is_control(id))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// All delimiters of the format.
    pub(super) fn texts(self) -> Vec<&'static str> {
        let mut texts = Vec::new();
        if let Some(syntax) = self.tools.syntax() {
            let markers = family_syntax::all_markers(syntax, self.reasoning.thoughts());
            texts.extend(markers.map(|marker| marker.text));
            texts.extend(syntax.inside);
        }
        if let Some(thoughts) = self.reasoning.thoughts() {
            texts.extend(thoughts.opens);
            texts.extend(thoughts.closes);
            texts.extend(thoughts.drops);
            // Gemma's opening delimiter is a token followed by a word.
            texts.extend(thoughts.opens.iter().filter_map(|open| {
                let end = open.find('>')? + 1;
                open.get(..end)
            }));
        }
        if self.tools == ToolFamily::Harmony {
            texts.extend(super::harmony_parser::MARKERS);
        }
        texts
    }
}

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
