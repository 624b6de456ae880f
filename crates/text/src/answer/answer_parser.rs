//! The output parser, and the stop strings of an answer.

use super::answer_parts::{AnswerParts, Part, PartWriter, WriterState};
use super::delimited_parser::DelimitedParser;
use super::harmony_parser::HarmonyParser;
use super::model_family::{AnswerFormat, ToolFamily};
use super::tool_schemas::ToolSchemas;
use crate::stop::{StopHit, StopMatcher};
use std::sync::Arc;

/// Separates an answer's text into content, reasoning and tool calls, incrementally.
///
/// Stop strings act on the content alone ([`stop_at`](Self::stop_at)).
///
/// Split law: any division of the text into pieces gives the same concatenated parts. Emitted parts are
/// final. All text of one kind from one piece forms one part.
#[derive(Debug)]
pub struct AnswerParser {
    machine: AnswerMachine,
    state: WriterState,
    /// `None` without stop strings.
    filter: Option<Box<ContentFilter>>,
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
            filter: None,
        }
    }

    /// From now on the answer ends where this matcher finds a stop string in the content. Content around other parts counts
    /// as separate texts.
    pub fn stop_at(&mut self, matcher: StopMatcher) {
        self.filter = Some(Box::new(ContentFilter::new(matcher)));
    }

    /// The stop string that ended the answer.
    pub fn stop_hit(&self) -> Option<StopHit> {
        self.filter.as_ref().and_then(|filter| filter.hit())
    }

    /// Bytes of the text so far that no part has yet: held back, or behind the stop string.
    pub fn held_bytes(&self) -> usize {
        let in_machine = match &self.machine {
            AnswerMachine::Plain => 0,
            AnswerMachine::DelimitedParser(machine) => machine.held_bytes(),
            AnswerMachine::Harmony(machine) => machine.held_bytes(),
        };
        let filter = self.filter.as_ref();
        in_machine + filter.map_or(0, |filter| filter.held_bytes())
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

    /// Consumes a piece of text and appends the parts that became final. After a stop string no part is appended.
    pub fn push(&mut self, text: &str, parts: &mut AnswerParts) {
        let (machine, state) = (&mut self.machine, &mut self.state);
        match &mut self.filter {
            None => machine.push(text, PartWriter::new(parts, state)),
            Some(filter) if filter.hit().is_some() => {}
            Some(filter) => {
                machine.push(text, PartWriter::new(filter.buffer(), state));
                filter.pass(parts);
            }
        }
    }

    /// Ends the answer and appends the held-back text.
    pub fn finish(&mut self, parts: &mut AnswerParts) {
        let (machine, state) = (&mut self.machine, &mut self.state);
        match &mut self.filter {
            None => machine.finish(PartWriter::new(parts, state)),
            Some(filter) if filter.hit().is_some() => {}
            Some(filter) => {
                machine.finish(PartWriter::new(filter.buffer(), state));
                filter.finish(parts);
            }
        }
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

impl AnswerMachine {
    fn push(&mut self, text: &str, mut out: PartWriter<'_>) {
        match self {
            Self::Plain => out.content().push_str(text),
            Self::DelimitedParser(machine) => machine.push(text, &mut out),
            Self::Harmony(machine) => machine.push(text, &mut out),
        }
        out.finish();
    }

    fn finish(&mut self, mut out: PartWriter<'_>) {
        match self {
            Self::Plain => {}
            Self::DelimitedParser(machine) => machine.finish(&mut out),
            Self::Harmony(machine) => machine.finish(&mut out),
        }
        out.finish();
    }
}

/// Passes parts on until a stop string is complete in the content. Content that may be the beginning of a stop string is held
/// back, and passed on when another part follows: stop strings do not span parts.
#[derive(Debug)]
struct ContentFilter {
    matcher: StopMatcher,
    /// Parts of one piece of text, before the filter.
    parsed: AnswerParts,
    hit: Option<StopHit>,
    /// Bytes of content from the stop string on.
    stopped_bytes: usize,
}

impl ContentFilter {
    pub(super) fn new(matcher: StopMatcher) -> Self {
        Self {
            matcher,
            parsed: AnswerParts::default(),
            hit: None,
            stopped_bytes: 0,
        }
    }

    /// The stop string that was found, which ends the answer.
    pub(super) fn hit(&self) -> Option<StopHit> {
        self.hit
    }

    /// The buffer for the parts of the next piece of text; then [`pass`](Self::pass).
    pub(super) fn buffer(&mut self) -> &mut AnswerParts {
        &mut self.parsed
    }

    /// Bytes of content that were parsed and not passed on.
    pub(super) fn held_bytes(&self) -> usize {
        self.matcher.held_bytes() + self.stopped_bytes
    }

    /// Passes the parts of the buffer on.
    pub(super) fn pass(&mut self, out: &mut AnswerParts) {
        out.close();
        for part in self.parsed.iter() {
            match part {
                Part::Content(text) => {
                    let (held, before) = (self.matcher.held_bytes(), out.text_len());
                    self.hit = self.matcher.push(text, out.extend(Part::Content));
                    if self.hit.is_some() {
                        let passed = out.text_len() - before;
                        self.stopped_bytes = held + text.len() - passed;
                        break;
                    }
                }
                part => {
                    if self.matcher.held_bytes() > 0 {
                        self.matcher.finish(out.extend(Part::Content));
                    }
                    out.append(part);
                }
            }
        }
        out.close();
        self.parsed.clear();
    }

    /// Passes on the parts of the buffer, which are the answer's last, and the held content.
    pub(super) fn finish(&mut self, out: &mut AnswerParts) {
        self.pass(out);
        if self.hit.is_none() {
            self.matcher.finish(out.extend(Part::Content));
            out.close();
        }
    }
}
