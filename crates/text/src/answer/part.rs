//! What an answer is made of.

/// A piece of an answer. Pieces are final: none is ever taken back or contradicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// What the user is told.
    Text(&'a str),
    /// What the model thinks before that.
    Reasoning(&'a str),
    /// A tool call begins. Its name, and where the model gave one its id, are said once, here.
    ToolStart {
        /// Counts an answer's calls, from 0.
        index: u32,
        /// As the model wrote it.
        id: Option<&'a str>,
        /// Which tool; never empty.
        name: &'a str,
    },
    /// More of a call's arguments. A whole call's fragments make one JSON value.
    ToolArgs {
        /// Of this call, the one that began last.
        index: u32,
        /// Never empty.
        fragment: &'a str,
    },
    /// A tool call is over. After a call that is cut short or breaks off, the fragments are what there was.
    ToolEnd {
        /// Which.
        index: u32,
    },
}

/// Where parts go.
pub trait PartSink {
    /// Takes the next one.
    fn part(&mut self, part: Part<'_>);
}

impl<F: FnMut(Part<'_>)> PartSink for F {
    fn part(&mut self, part: Part<'_>) {
        self(part);
    }
}
