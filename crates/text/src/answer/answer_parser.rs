//! The output parser.

use super::answer_parts::AnswerParts;
use super::delimited_parser::DelimitedParser;
use super::harmony_parser::HarmonyParser;
use super::model_family::{AnswerFormat, ToolFamily};
use super::part_writer::{PartWriter, WriterState};
use super::tool_schemas::ToolSchemas;
use std::sync::Arc;

/// Separates an answer's text into content, reasoning and tool calls, incrementally.
///
/// Split law: any division of the text into pieces gives the same concatenated parts. Emitted parts are
/// final. All text of one kind from one piece forms one part.
#[derive(Debug)]
pub struct AnswerParser {
    machine: AnswerMachine,
    state: WriterState,
}

#[derive(Debug)]
enum AnswerMachine {
    Plain,
    DelimitedParser(Box<DelimitedParser>),
    Harmony(Box<HarmonyParser>),
}

impl AnswerParser {
    /// A parser at the beginning of an answer. Without `tools` (the tools of the request), calls are not
    /// parsed. `in_reasoning`: the prompt ends inside a reasoning block ([`AnswerFormat::opens_reasoning`]).
    pub fn new(format: AnswerFormat, tools: Option<&Arc<ToolSchemas>>, in_reasoning: bool) -> Self {
        let thoughts = format.reasoning.thoughts();
        let calls = format.tools.syntax().zip(tools.map(Arc::clone));
        let machine = match format.tools {
            ToolFamily::Harmony => AnswerMachine::Harmony(Box::new(HarmonyParser::new())),
            _ if calls.is_none() && thoughts.is_none() => AnswerMachine::Plain,
            _ => AnswerMachine::DelimitedParser(Box::new(DelimitedParser::new(
                calls,
                thoughts,
                in_reasoning,
            ))),
        };
        Self {
            machine,
            state: WriterState::default(),
        }
    }

    /// This parser for an answer that must consist of calls: content is dropped, which can only be
    /// punctuation between calls or a truncated call whose name and arguments are not yet known. Reasoning is
    /// kept.
    #[must_use]
    pub fn calls_only(mut self) -> Self {
        self.state.drop_content();
        self
    }

    /// This parser for an answer in a response format: JSON that such an answer begins with is no call.
    #[must_use]
    pub fn without_bare_calls(mut self) -> Self {
        if let AnswerMachine::DelimitedParser(machine) = &mut self.machine {
            machine.reject_bare_calls();
        }
        self
    }

    /// Consumes a piece of text and appends the parts that became final.
    pub fn push(&mut self, text: &str, parts: &mut AnswerParts) {
        let mut out = PartWriter::new(parts, &mut self.state);
        match &mut self.machine {
            AnswerMachine::Plain => out.content().push_str(text),
            AnswerMachine::DelimitedParser(machine) => machine.push(text, &mut out),
            AnswerMachine::Harmony(machine) => machine.push(text, &mut out),
        }
        out.finish();
    }

    /// Ends the answer and appends the held-back text.
    pub fn finish(&mut self, parts: &mut AnswerParts) {
        let mut out = PartWriter::new(parts, &mut self.state);
        match &mut self.machine {
            AnswerMachine::Plain => {}
            AnswerMachine::DelimitedParser(machine) => machine.finish(&mut out),
            AnswerMachine::Harmony(machine) => machine.finish(&mut out),
        }
        out.finish();
    }

    /// Total bytes examined, counting repeated examination: the cost of parsing, independent of the machine.
    pub fn bytes_examined(&self) -> u64 {
        self.state.examined()
    }

    /// Number of delimited calls that could not be parsed completely. Their text was emitted unchanged.
    pub fn broken_calls(&self) -> u32 {
        self.state.broken()
    }

    /// Whether the text ends inside a call, because the answer was truncated or the call is incomplete.
    pub fn ends_in_call(&self) -> bool {
        self.state.is_truncated()
    }
}
