//! Settings of output parsing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::ReasoningField;
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

/// Output parsing: tool calls and reasoning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Answers {
    /// Tool-call parser; `auto`: detected from the chat template, or else from the vocabulary.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the template and the vocabulary identify all common models"))]
    pub(crate) tool_parser: ToolParser,
    /// Reasoning parser; `auto`: detected from the chat template, or else from the vocabulary.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "the same"))]
    pub(crate) reasoning_parser: ReasoningParser,
    /// Field of an OpenAI chat message that carries the reasoning.
    #[schemars(extend("x-reload" = "live", "x-reason" = "the field that most clients read (used by DeepSeek, vLLM and llama.cpp)"))]
    pub(crate) reasoning_field: Field,
    /// Treat objects whose schema has `properties` and no `additionalProperties` as closed. A request field of the same name overrides this.
    #[schemars(extend("x-reload" = "live", "x-reason" = "small models otherwise invent members until `max_tokens`; llama.cpp closes such objects too"))]
    pub(crate) disable_additional_properties: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            tool_parser: ToolParser::default(),
            reasoning_parser: ReasoningParser::default(),
            reasoning_field: Field::default(),
            disable_additional_properties: true,
        }
    }
}

/// A family of models, as far as they write calls differently.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub(crate) enum ToolParser {
    /// Detected from the chat template, or else from the vocabulary.
    #[default]
    Auto,
    /// None: everything is content.
    None,
    /// `<tool_call>` and JSON: Hermes, Qwen 2.5 and 3, many others.
    Hermes,
    /// `<function=NAME>` with a tag for each parameter: Qwen3-Coder.
    #[serde(rename = "qwen3-coder")]
    #[value(name = "qwen3-coder")]
    Qwen3Coder,
    /// Llama 3.
    Llama3,
    /// Llama 4.
    Llama4,
    /// Mistral, all versions.
    Mistral,
    /// DeepSeek V3, R1, V3.1.
    #[serde(rename = "deepseek")]
    #[value(name = "deepseek")]
    DeepSeek,
    /// Phi-4 mini.
    Phi4,
    /// Granite 3 and 4.
    Granite,
    /// Kimi K2.
    #[serde(rename = "kimi-k2")]
    #[value(name = "kimi-k2")]
    KimiK2,
    /// GLM-4.5 and later.
    Glm,
    /// MiniMax M2.
    #[serde(rename = "minimax")]
    #[value(name = "minimax")]
    MiniMax,
    /// Gemma 3 and 4, FunctionGemma.
    Gemma,
    /// gpt-oss (Harmony channels), including reasoning.
    Harmony,
    /// Bare JSON, for models without a format of their own.
    Json,
}

/// A family of models, as far as they write reasoning differently.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReasoningParser {
    /// Detected from the chat template, or else from the vocabulary.
    #[default]
    Auto,
    /// None: everything is content.
    None,
    /// `<think>`.
    Think,
    /// `[THINK]`.
    Mistral,
    /// `<think>`, or Granite's sentences.
    Granite,
    /// Gemma's thought channel.
    Gemma,
    /// `◁think▷`: Kimi before K2.
    Kimi,
}

/// A field of a message.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Field {
    /// `reasoning_content`.
    #[default]
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
    /// Both.
    Both,
}

impl Answers {
    /// The output parser for a model with this chat template. `is_token`: whether the vocabulary has a text as one token.
    pub(crate) fn format(
        &self,
        template: Option<&str>,
        is_token: impl Fn(&str) -> bool,
    ) -> AnswerFormat {
        let shown = template.map(AnswerFormat::detect).unwrap_or_default();
        let shown = shown.or_from_vocabulary(is_token);
        AnswerFormat {
            tools: match self.tool_parser {
                ToolParser::Auto => shown.tools,
                named => ToolFamily::from_name(&value_name(&named)).unwrap_or(shown.tools),
            },
            reasoning: match self.reasoning_parser {
                ReasoningParser::Auto => shown.reasoning,
                named => ReasoningFamily::from_name(&value_name(&named)).unwrap_or(shown.reasoning),
            },
        }
    }

    /// The parsers where neither template nor vocabulary identify a tool family: as
    /// [`AnswerFormat::with_json_fallback`] has it, unless a family is named.
    pub(crate) fn with_json_fallback(&self, shown: AnswerFormat) -> AnswerFormat {
        match self.tool_parser {
            ToolParser::Auto => shown.with_json_fallback(),
            _ => shown,
        }
    }

    /// The message field for reasoning.
    pub(crate) fn field(&self) -> ReasoningField {
        match self.reasoning_field {
            Field::ReasoningContent => ReasoningField::ReasoningContent,
            Field::Reasoning => ReasoningField::Reasoning,
            Field::Both => ReasoningField::Both,
        }
    }
}

/// The value's name in a settings file.
fn value_name(value: &impl clap::ValueEnum) -> String {
    let possible = value.to_possible_value();
    possible.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn settings_and_families_correspond() {
        let names = |of: Vec<String>| of.into_iter().filter(|name| name != "auto").collect();
        let mut tools: Vec<String> = names(
            ToolParser::value_variants()
                .iter()
                .map(value_name)
                .collect(),
        );
        let mut known: Vec<_> = ToolFamily::all().map(|(name, _)| name).collect();
        tools.sort();
        known.sort_unstable();
        assert_eq!(tools, known);
        let mut thoughts: Vec<String> = names(
            ReasoningParser::value_variants()
                .iter()
                .map(value_name)
                .collect(),
        );
        let mut known: Vec<_> = ReasoningFamily::all().map(|(name, _)| name).collect();
        thoughts.sort();
        known.sort_unstable();
        assert_eq!(thoughts, known);
        for parser in ToolParser::value_variants() {
            let written = serde_json::to_value(parser).expect("a name");
            assert_eq!(written, value_name(parser), "in a file as in a flag");
        }
    }

    #[test]
    fn explicit_parser_overrides_template_and_vocabulary() {
        let template = Some("<tool_call> </think> tools");
        let no_token = |_: &str| false;
        let mut answers = Answers::default();
        let shown = answers.format(template, no_token);
        assert_eq!(
            (shown.tools, shown.reasoning),
            (ToolFamily::Hermes, ReasoningFamily::Think)
        );
        let tokens = |text: &str| ["[TOOL_CALLS]", "[THINK]", "[/THINK]"].contains(&text);
        assert_eq!(answers.format(template, tokens), shown, "the template does");
        let by_tokens = answers.format(None, tokens);
        assert_eq!(
            (by_tokens.tools, by_tokens.reasoning),
            (ToolFamily::Mistral, ReasoningFamily::Mistral)
        );
        (answers.tool_parser, answers.reasoning_parser) = (ToolParser::Glm, ReasoningParser::None);
        for (template, is_token) in [(template, true), (None, true), (None, false)] {
            let said = answers.format(template, |text| is_token && tokens(text));
            assert_eq!(
                (said.tools, said.reasoning),
                (ToolFamily::Glm, ReasoningFamily::None)
            );
        }
        let nothing = Answers::default().format(None, no_token);
        assert_eq!(nothing, AnswerFormat::default());
        for (parser, want) in [
            (ToolParser::Auto, ToolFamily::Json),
            (ToolParser::None, ToolFamily::None),
        ] {
            answers.tool_parser = parser;
            assert_eq!(
                answers.with_json_fallback(nothing).tools,
                want,
                "{parser:?}"
            );
        }
    }
}
