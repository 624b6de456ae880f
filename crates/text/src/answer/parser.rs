//! The parser of one answer.

use super::family::{AnswerFormat, ToolFamily};
use super::harmony::Harmony;
use super::out::Out;
use super::part::PartSink;
use super::schemas::ToolSchemas;
use super::tagged::Tagged;
use std::sync::Arc;

/// Takes an answer's text in pieces and tells what it is made of.
///
/// How the text is cut into pieces changes nothing: the parts concatenate to the same, whatever the
/// cut, and none is ever taken back. One piece's text of one kind is one part.
#[derive(Debug)]
pub struct AnswerParser {
    machine: Machine,
    out: Out,
}

#[derive(Debug)]
enum Machine {
    Plain,
    Tagged(Box<Tagged>),
    Harmony(Box<Harmony>),
}

impl AnswerParser {
    /// At the beginning of an answer. `tools`: those of the request; without, calls are not looked
    /// for. `in_reasoning`: whether the prompt left the model in the middle of that
    /// ([`AnswerFormat::opens_reasoning`]).
    pub fn new(format: AnswerFormat, tools: Option<&Arc<ToolSchemas>>, in_reasoning: bool) -> Self {
        let thoughts = format.reasoning.thoughts();
        let calls = format.tools.syntax().zip(tools.map(Arc::clone));
        let machine = match format.tools {
            ToolFamily::Harmony => Machine::Harmony(Box::new(Harmony::new())),
            _ if calls.is_none() && thoughts.is_none() => Machine::Plain,
            _ => Machine::Tagged(Box::new(Tagged::new(calls, thoughts, in_reasoning))),
        };
        Self {
            machine,
            out: Out::default(),
        }
    }

    /// The same of an answer that has to be calls and nothing else: text is dropped, which is punctuation between calls
    /// and the beginning of a call that was cut short before its name and arguments were known. Reasoning is kept.
    #[must_use]
    pub fn calls_only(mut self) -> Self {
        self.out.drop_text();
        self
    }

    /// Takes the next piece; tells what became certain.
    pub fn push(&mut self, text: &str, sink: &mut (impl PartSink + ?Sized)) {
        match &mut self.machine {
            Machine::Plain => self.out.text().push_str(text),
            Machine::Tagged(machine) => machine.push(text, &mut self.out),
            Machine::Harmony(machine) => machine.push(text, &mut self.out),
        }
        self.out.tell(sink);
    }

    /// The answer is over: tells what was held back.
    pub fn finish(&mut self, sink: &mut (impl PartSink + ?Sized)) {
        match &mut self.machine {
            Machine::Plain => {}
            Machine::Tagged(machine) => machine.finish(&mut self.out),
            Machine::Harmony(machine) => machine.finish(&mut self.out),
        }
        self.out.tell(sink);
    }

    /// How many bytes were looked at, each as often as it was: what reading cost, whatever the machine it ran on.
    pub fn looked(&self) -> u64 {
        self.out.looked()
    }

    /// How often something that was marked as a call could not be read as one, or not to its end. What was not
    /// understood was told as it stands.
    pub fn broken_calls(&self) -> u32 {
        self.out.broken()
    }

    /// Whether the text ended in the middle of a call: cut short where the answer was, or else not whole.
    pub fn ends_in_call(&self) -> bool {
        self.out.is_cut()
    }
}
