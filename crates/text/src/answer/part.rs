//! Parts of an answer.

/// A part of an answer. Parts are final: no later part changes an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Content.
    Text(&'a str),
    /// Reasoning.
    Reasoning(&'a str),
    /// Start of a tool call, with the tool's name and, where the model wrote one, the id.
    ToolStart {
        /// Index of the call in the answer, from 0.
        index: u32,
        /// Id as the model wrote the id.
        id: Option<&'a str>,
        /// Name of the tool; never empty.
        name: &'a str,
    },
    /// A fragment of a call's arguments. The fragments of a complete call concatenate to one JSON value.
    ToolArgs {
        /// Index of the call that started last.
        index: u32,
        /// Never empty.
        fragment: &'a str,
    },
    /// End of a tool call. After a truncated or malformed call the fragments are incomplete.
    ToolEnd {
        /// Index of the call.
        index: u32,
    },
}

/// Receiver of parts.
pub trait PartSink {
    /// Receives the next part.
    fn part(&mut self, part: Part<'_>);
}

impl<F: FnMut(Part<'_>)> PartSink for F {
    fn part(&mut self, part: Part<'_>) {
        self(part);
    }
}
