//! Output of the parsers: appends parts, and counts.

use super::answer_parts::{AnswerParts, Part};

/// State of an answer that outlives one piece of text.
#[derive(Debug, Default)]
pub(super) struct WriterState {
    /// Number of calls started.
    calls: u32,
    /// Whether a call has started and not ended.
    is_open: bool,
    /// Number of malformed calls.
    broken: u32,
    /// Whether the text ended in a call.
    is_truncated: bool,
    /// Bytes examined.
    examined: u64,
    /// Receives content that is dropped, where the answer must consist of calls.
    dropped: Option<String>,
}

impl WriterState {
    /// Drops content from now on.
    pub(super) fn drop_content(&mut self) {
        self.dropped = Some(String::new());
    }

    pub(super) fn broken(&self) -> u32 {
        self.broken
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    pub(super) fn examined(&self) -> u64 {
        self.examined
    }
}

/// Appends the parts of one piece of text. Text of one kind without other parts between forms one part.
pub(super) struct PartWriter<'a> {
    parts: &'a mut AnswerParts,
    state: &'a mut WriterState,
}

impl<'a> PartWriter<'a> {
    pub(super) fn new(parts: &'a mut AnswerParts, state: &'a mut WriterState) -> Self {
        parts.close();
        Self { parts, state }
    }

    /// Closes the last part.
    pub(super) fn finish(self) {
        self.parts.close();
        if let Some(dropped) = &mut self.state.dropped {
            dropped.clear();
        }
    }

    /// The buffer for content.
    pub(super) fn content(&mut self) -> &mut String {
        match &mut self.state.dropped {
            Some(dropped) => {
                self.parts.close();
                dropped
            }
            None => self.parts.extend(Part::Content),
        }
    }

    /// The buffer for reasoning.
    pub(super) fn reasoning(&mut self) -> &mut String {
        self.parts.extend(Part::Reasoning)
    }

    /// The buffer for arguments of the open call.
    pub(super) fn arguments(&mut self) -> &mut String {
        debug_assert!(self.state.is_open, "arguments belong to a call");
        let index = self.call_index();
        self.parts
            .extend(|fragment| Part::CallArguments { index, fragment })
    }

    /// Starts a call; an empty `id` is none.
    pub(super) fn start_call(&mut self, name: &str, id: &str) {
        debug_assert!(!self.state.is_open, "one call at a time");
        self.parts.start_call(self.state.calls, name, id);
        self.state.is_open = true;
        self.state.calls += 1;
    }

    /// Ends the open call.
    pub(super) fn end_call(&mut self) {
        debug_assert!(self.state.is_open, "only an open call can end");
        self.parts.end_call(self.call_index());
        self.state.is_open = false;
    }

    /// Whether a call has started and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.state.is_open
    }

    /// A value that changes with every output.
    pub(super) fn progress(&self) -> (usize, bool) {
        (self.parts.text_len(), self.state.is_open)
    }

    /// Counts a malformed call.
    pub(super) fn count_broken(&mut self) {
        self.state.broken += 1;
    }

    /// Records that the text ended in a call.
    pub(super) fn set_truncated(&mut self) {
        self.state.is_truncated = true;
    }

    /// Counts examined bytes, once for each time that they are examined.
    pub(super) fn count_examined(&mut self, bytes: usize) {
        self.state.examined += bytes as u64;
    }

    /// Index of the call that started last.
    fn call_index(&self) -> u32 {
        self.state.calls.saturating_sub(1)
    }
}
