//! Flags of output parsing.

use crate::config::{Field, Layers, ReasoningParser, ToolParser};
use clap::Args;

/// How answers are read and told.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AnswerArgs {
    /// Tool-call parser.
    #[arg(long, value_name = "FAMILY", visible_alias = "tool-call-parser")]
    pub(crate) tool_parser: Option<ToolParser>,
    /// Reasoning parser.
    #[arg(long, value_name = "FAMILY")]
    pub(crate) reasoning_parser: Option<ReasoningParser>,
    /// Field of a chat message that carries the reasoning.
    #[arg(long, value_name = "FIELD")]
    pub(crate) reasoning_field: Option<Field>,
}

impl AnswerArgs {
    /// These over other layers.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("answers.tool_parser", self.tool_parser.as_ref())
            .flag("answers.reasoning_parser", self.reasoning_parser.as_ref())
            .flag("answers.reasoning_field", self.reasoning_field.as_ref())
    }
}
